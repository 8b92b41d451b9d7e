# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taking back what was declared once."""

from __future__ import annotations

import os

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
)

from tests.unit.simulated_host import MARK, FakeHost, read, snapshot, write


def test_restore_gives_back_what_was_there(host: FakeHost) -> None:
    write(host, "/etc/foreign", "theirs\n", 0o640)
    write(host, "/etc/untouched", "theirs too\n")
    write(host, "/proc/sys/vm/swappiness", "60\n")
    (host.root / "etc/default.target").symlink_to("graphical.target")
    wanted = {
        "files": [{"path": "/etc/foreign", "content": MARK}, {"path": "/etc/ours", "content": MARK}],
        "links": [
            {"path": "/etc/default.target", "target": "multi-user.target"},
            {"path": "/etc/new-link", "target": "x"},
        ],
        "sysctls": {"vm.swappiness": 1},
    }
    before = {k: v for k, v in snapshot(host.root).items() if "/etc/" in k or "/proc/" in k}
    host.converge(**wanted)
    names = ["/etc/foreign", "/etc/ours", "/etc/untouched", "/etc/default.target", "/etc/new-link", "vm.swappiness"]
    done = host.converge(restore=names)
    assert done.changed_paths == ["/etc/foreign", "/etc/ours", "/etc/default.target", "/etc/new-link"]
    assert done.changed_sysctls == ["vm.swappiness"]
    after = {k: v for k, v in snapshot(host.root).items() if "/etc/" in k or "/proc/" in k}
    assert after.keys() == before.keys()
    assert {k: v for k, v in after.items() if "swappiness" not in k} == {
        k: v for k, v in before.items() if "swappiness" not in k
    }
    assert read(host, "/proc/sys/vm/swappiness").strip() == "60"


@pytest.mark.parametrize("taken_back_by", ["restore", "user"])
def test_a_link_is_taken_back_once(host: FakeHost, taken_back_by: str) -> None:
    path = "/etc/systemd/system/default.target"
    place = host.root / path[1:]
    # of the system's own
    place.parent.mkdir(parents=True)
    host.apply(links=[{"path": path, "target": "/usr/lib/systemd/system/multi-user.target"}])
    if taken_back_by == "user":
        place.unlink()
    # nothing was there before
    assert host.apply(restore=[path]).changed is (taken_back_by == "restore")
    assert not place.is_symlink()
    place.symlink_to("/usr/lib/systemd/system/graphical.target")
    assert not host.apply(restore=[path]).changed
    assert os.readlink(place).endswith("graphical.target")


def test_restore_unmasks_only_what_we_masked(host: FakeHost) -> None:
    host.unit("apt-daily.timer", "active", "enabled")
    host.unit("sleep.target", "inactive", "static")
    host.unit("theirs.service", "inactive", "masked", LoadState="masked")
    names = ["apt-daily.timer", "sleep.target", "theirs.service"]
    host.converge(units=[{"name": name, "masked": True} for name in names])
    done = host.converge(restore=names)
    assert done.changed_units == ["apt-daily.timer", "sleep.target"]
    assert host.verbs() == ["unmask apt-daily.timer sleep.target", "start apt-daily.timer"]
    assert host.units["theirs.service"]["LoadState"] == "masked"


def test_a_unit_is_known_as_masked_until_it_is_unmasked(host: FakeHost) -> None:
    host.unit("sleep.target", "inactive", "static")
    host.apply(units=[{"name": "sleep.target", "masked": True}])
    host.fail["unmask"] = "Connection reset"
    with pytest.raises(HostStateError, match="unmask"):
        host.apply(restore=["sleep.target"])
    host.fail.clear()
    host.apply(restore=["sleep.target"])
    assert host.verbs() == ["unmask sleep.target"]
    assert not host.apply(restore=["sleep.target"]).changed
