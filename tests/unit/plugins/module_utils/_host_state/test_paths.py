# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories, files and links."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.paths import meaning
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import (
    HostStateError,
)

from tests.unit.simulated_host import MARK, FakeHost, read, snapshot, write


def test_new_file_with_its_parents(host: FakeHost) -> None:
    done = host.converge(files=[{"path": "/etc/sparkthor/a/b.conf", "content": MARK + "A=1\n", "mode": "0640"}])
    assert done.changed_paths == ["/etc", "/etc/sparkthor", "/etc/sparkthor/a", "/etc/sparkthor/a/b.conf"]
    assert read(host, "/etc/sparkthor/a/b.conf") == MARK + "A=1\n"
    assert stat.S_IMODE((host.root / "etc/sparkthor/a/b.conf").stat().st_mode) == 0o640
    assert [p.name for p in (host.root / "etc/sparkthor/a").iterdir()] == ["b.conf"], "a temporary file stayed"


def test_own_file_is_replaced_without_backup(host: FakeHost) -> None:
    write(host, "/etc/x", MARK + "A=1\n")
    done = host.converge(files=[{"path": "/etc/x", "content": MARK + "A=2\n"}])
    assert done.diff == [
        {"before_header": "/etc/x", "after_header": "/etc/x", "before": MARK + "A=1\n", "after": MARK + "A=2\n"}
    ]
    assert not (host.root / "etc/x.sparkthor-orig").exists()


def test_foreign_file_is_kept_once(host: FakeHost) -> None:
    write(host, "/etc/x", "by hand\n", 0o640)
    host.converge(files=[{"path": "/etc/x", "content": MARK + "A=2\n"}])
    assert read(host, "/etc/x.sparkthor-orig") == "by hand\n"
    assert stat.S_IMODE((host.root / "etc/x.sparkthor-orig").stat().st_mode) == 0o640
    write(host, "/etc/x", "by hand again\n")
    host.converge(files=[{"path": "/etc/x", "content": MARK + "A=2\n"}])
    assert read(host, "/etc/x.sparkthor-orig") == "by hand\n"


def test_foreign_file_without_backup(host: FakeHost) -> None:
    write(host, "/etc/x", "by hand\n")
    host.converge(files=[{"path": "/etc/x", "content": MARK, "backup": False}])
    assert not (host.root / "etc/x.sparkthor-orig").exists()


@pytest.mark.parametrize("check", [True, False])
def test_refuse_names_the_file_and_changes_nothing(host: FakeHost, check: bool) -> None:
    write(host, "/etc/x", "by hand\n")
    before = snapshot(host.root)
    spec = {"path": "/etc/x", "content": MARK + "A=1\n", "foreign": "refuse"}
    with pytest.raises(HostStateError, match="/etc/x was not written by this collection"):
        host.apply(check=check, files=[{"path": "/etc/first", "content": MARK}, spec])
    assert snapshot(host.root) == before


def test_adopt_leaves_what_says_the_same(host: FakeHost) -> None:
    write(host, "/etc/x", "# mine\nA=1  \n\n")
    spec = {"path": "/etc/x", "content": MARK + "A=1\n", "foreign": "adopt"}
    assert not host.apply(files=[spec]).changed
    assert read(host, "/etc/x") == "# mine\nA=1  \n\n"
    write(host, "/etc/x", "A=2\n")
    with pytest.raises(HostStateError, match="/etc/x"):
        host.apply(files=[spec])


def test_link_in_place_of_a_file_is_replaced_and_kept(host: FakeHost) -> None:
    write(host, "/etc/elsewhere", "theirs\n")
    (host.root / "etc/x").symlink_to("elsewhere")
    host.converge(files=[{"path": "/etc/x", "content": MARK}])
    assert not (host.root / "etc/x").is_symlink()
    assert read(host, "/etc/elsewhere") == "theirs\n"
    assert (host.root / "etc/x.sparkthor-orig").readlink() == Path("elsewhere")


def test_secret_is_never_shown(host: FakeHost) -> None:
    write(host, "/etc/key", "old-SECRET\n", 0o600)
    done = host.converge(files=[{"path": "/etc/key", "content": "new-SECRET\n", "secret": True}])
    assert done.changed_paths == ["/etc/key"]
    assert "SECRET" not in repr(done)
    assert done.diff[0]["before"] != done.diff[0]["after"]
    assert stat.S_IMODE((host.root / "etc/key").stat().st_mode) == 0o600


def test_mode_alone(host: FakeHost) -> None:
    write(host, "/etc/x", MARK, 0o666)
    done = host.converge(files=[{"path": "/etc/x", "content": MARK}])
    assert done.diff[0]["before"] == "owner root\ngroup root\nmode 0666\n"
    assert done.diff[0]["after"] == "owner root\ngroup root\nmode 0644\n"


def test_failed_write_leaves_the_old_file(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    write(host, "/etc/x", MARK + "old\n")

    def full(*_arguments: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(HostStateError, match="/etc/x cannot be written: No space left"):
        host.apply(files=[{"path": "/etc/x", "content": MARK + "new\n"}])
    assert read(host, "/etc/x") == MARK + "old\n"
    assert [p.name for p in (host.root / "etc").iterdir()] == ["x"]


def test_unknown_owner(host: FakeHost) -> None:
    spec = {"path": "/etc/x", "content": MARK, "owner": "nobody-here"}
    assert host.apply(check=True, files=[spec]).changed_paths == ["/etc", "/etc/x"]
    with pytest.raises(HostStateError, match="/etc/x: user nobody-here does not exist"):
        host.apply(files=[spec])


def test_directories(host: FakeHost) -> None:
    (host.root / "var").mkdir(mode=0o755)
    (host.root / "var/loose").mkdir()
    (host.root / "var/loose").chmod(0o777)
    done = host.converge(
        directories=[
            {"path": "/var/loose", "mode": "0750"},
            {"path": "/var/new", "mode": "0700"},
            {"path": "/var/new/in"},
        ]
    )
    assert done.changed_paths == ["/var/loose", "/var/new", "/var/new/in"]
    assert stat.S_IMODE((host.root / "var/new").stat().st_mode) == 0o700


def test_directory_behind_a_link_is_accepted(host: FakeHost) -> None:
    (host.root / "big").mkdir(mode=0o755)
    (host.root / "models").symlink_to("big")
    assert not host.apply(directories=[{"path": "/models"}]).changed


def test_file_in_place_of_a_directory(host: FakeHost) -> None:
    write(host, "/var", "")
    with pytest.raises(HostStateError, match="/var is not a directory"):
        host.apply(directories=[{"path": "/var"}])


def test_links(host: FakeHost) -> None:
    write(host, "/usr/lib/t/multi-user.target", "")
    (host.root / "lib").symlink_to("usr/lib")
    wanted = {"path": "/etc/t/default.target", "target": "/usr/lib/t/multi-user.target"}
    host.converge(links=[wanted])
    assert (host.root / "etc/t/default.target").readlink() == Path("/usr/lib/t/multi-user.target")


def test_link_that_leads_to_the_same_place_is_right(host: FakeHost) -> None:
    write(host, "/usr/lib/t/a.target", "")
    (host.root / "lib").symlink_to("usr/lib")
    (host.root / "etc").mkdir()
    (host.root / "etc/d").symlink_to("/lib/t/a.target")
    assert not host.apply(links=[{"path": "/etc/d", "target": "/usr/lib/t/a.target"}]).changed


def test_absent(host: FakeHost) -> None:
    write(host, "/etc/d/x", "")
    write(host, "/etc/f", "")
    done = host.converge(absent=["/etc/d", "/etc/f", "/etc/never-was"])
    assert done.changed_paths == ["/etc/d", "/etc/f"]
    assert list((host.root / "etc").iterdir()) == []


def test_meaning() -> None:
    assert meaning(b"# c\n; c\n\nA=1 \n  B\n") == [b"A=1", b"  B"]
