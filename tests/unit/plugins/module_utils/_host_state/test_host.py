# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import pwd
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Accounts, Changes, Host, Result
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError


def test_accounts_of_this_host() -> None:
    accounts = Accounts()
    me = pwd.getpwuid(os.getuid())
    assert accounts.uid(me.pw_name) == me.pw_uid
    assert accounts.user_name(me.pw_uid) == me.pw_name
    found = accounts.user(me.pw_name)
    assert found is not None
    assert (found["home"], found["shell"]) == (me.pw_dir, me.pw_shell)
    group = accounts.group_name(me.pw_gid)
    assert group in found["groups"]
    assert accounts.gid(group) == me.pw_gid


def test_accounts_that_are_not_there() -> None:
    accounts = Accounts()
    assert accounts.uid("no-such-user") is None
    assert accounts.gid("no-such-group") is None
    assert accounts.user("no-such-user") is None
    # an id without a name is shown as a number
    assert (accounts.user_name(987_654_321), accounts.group_name(987_654_321)) == ("987654321", "987654321")


@pytest.mark.parametrize(("root", "path"), [("/", "/etc/x"), ("/srv/root", "/srv/root/etc/x"), ("/srv/", "/srv/etc/x")])
def test_a_path_lies_below_the_root(root: str, path: str) -> None:
    assert Host(run=lambda argv, timeout: (0, "", ""), root=root).at("/etc/x") == path


@pytest.mark.parametrize(
    ("found", "changed"),
    [
        ({}, False),
        ({"warnings": ["x"], "restarted_units": ["a.service"], "skipped_groups": ["video"]}, False),
        ({"changed_paths": ["/etc/x"]}, True),
        ({"changed_units": ["a.service"]}, True),
        ({"changed_accounts": ["ray"]}, True),
        ({"changed_sysctls": ["net.core.rmem_max"]}, True),
        ({"daemon_reloaded": True}, True),
    ],
)
def test_what_counts_as_a_change(found: dict[str, Any], changed: bool) -> None:
    assert Result(**found).changed is changed


def test_notes_are_differences_and_those_of_paths_are_changes() -> None:
    changes = Changes(Host(run=lambda argv, timeout: (0, "", "")), check=True)
    changes.note("a.service", "stopped", "started", " (state)")
    assert not changes.result.changed
    changes.note_path("/etc/x", "", "new\n")
    assert changes.result.changed_paths == ["/etc/x"]
    assert changes.result.diff == [
        {
            "before_header": "a.service (state)",
            "after_header": "a.service (state)",
            "before": "stopped",
            "after": "started",
        },
        {"before_header": "/etc/x", "after_header": "/etc/x", "before": "", "after": "new\n"},
    ]


def test_a_failed_command_is_one_sentence() -> None:
    limits = []

    def run(argv: list[str], timeout: float) -> tuple[int, str, str]:
        limits.append(timeout)
        return (0, "done\n", "") if argv == ["true"] else (3, "", "out of luck\n")

    changes = Changes(Host(run=run, timeout=7), check=False)
    assert changes.must(["true"], "try") == "done\n"
    with pytest.raises(HostStateError, match="cannot reload: systemctl daemon-reload ended with 3: out of luck"):
        changes.must(["systemctl", "daemon-reload"], "cannot reload", timeout=1)
    assert limits == [7, 1]
