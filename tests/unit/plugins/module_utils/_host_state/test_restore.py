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
        "sysctls": [{"name": "vm.swappiness", "value": 1}],
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


def test_folders_that_we_made_go_with_the_last_thing_in_them(host: FakeHost) -> None:
    write(host, "/etc/theirs/keep", "x\n")
    paths = ["/etc/ours/deep/one", "/etc/ours/two", "/etc/theirs/ours"]
    host.converge(directories=[{"path": "/etc/ours/deep"}], files=[{"path": path, "content": MARK} for path in paths])
    first = host.converge(restore=["/etc/ours/deep/one", "/etc/theirs/ours"])
    assert first.changed_paths == ["/etc/ours/deep/one", "/etc/theirs/ours", "/etc/ours/deep"]
    # what a person put there stays, and the folder with it
    write(host, "/etc/ours/mine", "mine\n")
    assert host.converge(restore=["/etc/ours/two"]).changed_paths == ["/etc/ours/two"]
    (host.root / "etc/ours/mine").unlink()
    write(host, "/etc/ours/three", MARK)
    assert host.converge(restore=["/etc/ours/three"]).changed_paths == ["/etc/ours/three", "/etc/ours"]
    assert (host.root / "etc/theirs").is_dir()


def test_a_call_that_also_writes_leaves_empty_folders(host: FakeHost) -> None:
    host.apply(directories=[{"path": "/srv/d"}], files=[{"path": "/srv/d/f", "content": MARK}])
    host.apply(directories=[{"path": "/srv/d"}], absent=["/srv/d/f"])
    assert (host.root / "srv/d").is_dir()


def test_a_folder_is_removed_with_its_content_only_if_we_made_it(host: FakeHost) -> None:
    write(host, "/data/theirs/file", "x\n")
    host.apply(directories=[{"path": "/data/theirs"}, {"path": "/data/ours"}])
    write(host, "/data/ours/model", "x\n")
    done = host.converge(restore=["/data/theirs", "/data/ours"])
    assert done.changed_paths == ["/data/ours"]
    assert "/data/theirs was there before and stays" in done.warnings[0]


def test_nothing_is_left_of_the_record_when_all_is_taken_back(host: FakeHost) -> None:
    (host.root / "var/lib").mkdir(parents=True)
    host.accounts.users["ada"] = {"home": "/home/ada", "shell": "/bin/sh", "groups": ["ada"]}
    host.apply(
        groups=[{"name": "sparkthor"}],
        users=[{"name": "sparkthor"}, {"name": "ada", "groups": ["video"]}],
        directories=[{"path": "/var/lib/sparkthor"}],
        files=[{"path": "/etc/ours", "content": MARK}],
    )
    (host.root / "etc").is_dir()
    done = host.converge(restore=["user sparkthor", "user ada", "group sparkthor", "/etc/ours"])
    # who was there before stays
    assert done.changed_accounts == ["user sparkthor", "group sparkthor"]
    assert set(host.accounts.users) == {"root", "ada"}
    assert "sparkthor" not in host.accounts.groups
    assert not (host.root / "var/lib/sparkthor").exists()


def test_a_unit_of_others_is_put_back_as_it_was(host: FakeHost) -> None:
    host.unit("docker.service", "inactive", "disabled")
    host.unit("timesync.service", "active", "enabled")
    host.unit("ran.service", "active", "enabled")
    names = ["docker.service", "timesync.service", "ran.service"]
    host.converge(
        units=[
            {"name": "docker.service", "enabled": True, "state": "started"},
            {"name": "timesync.service", "enabled": True, "state": "started"},
            {"name": "ran.service", "enabled": False, "state": "stopped"},
        ]
    )
    done = host.converge(restore=names)
    assert sorted(done.changed_units) == ["docker.service", "ran.service"]
    states = {name: (host.units[name]["ActiveState"], host.units[name]["UnitFileState"]) for name in names}
    assert states == {
        "docker.service": ("inactive", "disabled"),
        "timesync.service": ("active", "enabled"),
        "ran.service": ("active", "enabled"),
    }
    assert not host.apply(restore=names).changed


def test_a_unit_whose_package_is_gone_is_forgotten(host: FakeHost) -> None:
    host.unit("nginx.service", "active", "enabled")
    host.apply(units=[{"name": "nginx.service", "enabled": False, "state": "stopped"}])
    del host.units["nginx.service"]
    assert not host.apply(restore=["nginx.service"]).changed
    assert not (host.root / "var/lib/sparkthor/host_state.json").exists()
