# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import argument_spec
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_state


def test_the_arguments_are_those_of_the_module() -> None:
    state = host_state.HostState(files=[{"path": "/x", "content": "y"}], units=[host_state.switched_off("u")])
    arguments = state.arguments()
    spec = argument_spec()
    assert set(arguments) <= set(spec)
    for option in ("files", "units"):
        assert set(arguments[option][0]) <= set(spec[option]["options"])
    assert set(host_state.directory("/x", group="g")) <= set(spec["directories"]["options"])


def test_environment_is_sorted_and_quoted_as_systemd_reads_it() -> None:
    text = host_state.environment_text({"b": 'x"y', "A": "$h `c` \\n", "c": 3})
    assert text.splitlines() == [host_state.MARKER, 'A="\\$h \\`c\\` \\\\n"', 'b="x\\"y"', 'c="3"']
    assert text.endswith("\n")


def test_states_are_merged_in_their_order() -> None:
    first = host_state.HostState(files=[{"path": "/a"}], sysctls={"x": 1}, restore=["u"])
    second = host_state.HostState(files=[{"path": "/b"}], sysctls={"x": 2, "y": 3})
    both = host_state.merged([first, second])
    assert [file["path"] for file in both.files] == ["/a", "/b"]
    assert (both.sysctls, both.restore, first.sysctls) == ({"x": 2, "y": 3}, ["u"], {"x": 1})
    assert host_state.merged([]) == host_state.HostState()
