# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the serving user plants where it may write changes nothing outside, whatever is declared there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.originals import LEDGER
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import HostStateError

from tests.unit.simulated_host import MARK, FakeHost, snapshot

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user")
NOBODY = 65534


@pytest.fixture
def outside(host: FakeHost) -> Path:
    (host.root / "etc").mkdir()
    (host.root / "etc" / "shadow").write_text("root:*:")
    (host.root / "etc" / "shadow").chmod(0o600)
    return host.root / "etc"


@pytest.fixture
def home(host: FakeHost) -> Path:
    """As earlier versions left it."""
    path = host.root / "var/lib/sparkthor"
    path.mkdir(parents=True)
    os.chown(path, NOBODY, NOBODY)
    return path


def plant(path: Path, target: str) -> None:
    path.symlink_to(target)
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


DECLARED: dict[str, dict[str, Any]] = {
    "directory": {"directories": [{"path": "/var/lib/sparkthor/cache", "mode": "0777"}]},
    "below a directory": {"directories": [{"path": "/var/lib/sparkthor/cache/new", "mode": "0777"}]},
    "file": {"files": [{"path": "/var/lib/sparkthor/cache/shadow", "content": MARK, "mode": "0666"}]},
    "link": {"links": [{"path": "/var/lib/sparkthor/cache/shadow", "target": "/"}]},
    "absent": {"absent": ["/var/lib/sparkthor/cache/shadow"]},
}


@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
def test_a_planted_folder_link_stops_the_run(
    host: FakeHost, outside: Path, home: Path, declared: dict[str, Any]
) -> None:
    plant(home / "cache", "../../../etc")
    before = snapshot(outside), outside.stat().st_mode
    with pytest.raises(HostStateError, match="/var/lib/sparkthor/cache"):
        host.apply(**declared)
    assert (snapshot(outside), outside.stat().st_mode) == before


def test_a_link_of_roots_own_is_a_folder_like_any_other(host: FakeHost, home: Path) -> None:
    (host.root / "data").mkdir(mode=0o700)
    (home / "models").symlink_to(host.root / "data")
    host.converge(directories=[{"path": "/var/lib/sparkthor/models", "mode": "0755"}])
    assert (host.root / "data").stat().st_mode & 0o777 == 0o755
    assert (home / "models").is_symlink()


def test_the_owner_of_a_second_name_is_not_changed(host: FakeHost, outside: Path, home: Path) -> None:
    (outside / "shadow").write_text(MARK)
    (home / "file").hardlink_to(outside / "shadow")
    host.converge(files=[{"path": "/var/lib/sparkthor/file", "content": MARK, "mode": "0666"}])
    assert (home / "file").stat().st_mode & 0o777 == 0o666
    assert (outside / "shadow").stat().st_mode & 0o777 == 0o600


def test_what_stands_in_a_second_name_is_neither_shown_nor_kept(host: FakeHost, outside: Path, home: Path) -> None:
    (outside / "shadow").write_text("of-root-alone")
    (home / "file").hardlink_to(outside / "shadow")
    result = host.converge(files=[{"path": "/var/lib/sparkthor/file", "content": MARK}])
    assert "of-root-alone" not in repr(result)
    assert [path.name for path in home.iterdir() if "of-root-alone" in path.read_text()] == []
    assert (home / "file").read_text() == MARK
    assert (outside / "shadow").read_text() == "of-root-alone"


def test_links_below_what_is_removed_go_alone(host: FakeHost, outside: Path, home: Path) -> None:
    (home / "cache").mkdir()
    plant(home / "cache" / "etc", "../../../../etc")
    before = snapshot(outside)
    host.converge(absent=["/var/lib/sparkthor/cache"])
    assert not (home / "cache").exists()
    assert snapshot(outside) == before


def test_a_forged_ledger_is_not_believed(host: FakeHost, outside: Path, home: Path) -> None:
    """Teardown would else put a link of the user's choice at a path of root's."""
    unit = outside / "systemd/system/default.target"
    unit.parent.mkdir(parents=True)
    unit.symlink_to("/usr/lib/systemd/system/multi-user.target")
    path = "/etc/systemd/system/default.target"
    forged = host.root / LEDGER.lstrip("/")
    forged.write_text(json.dumps({"links": {path: "/var/lib/sparkthor/evil.target"}}))
    os.chown(forged, NOBODY, NOBODY)
    found = host.apply(restore=[path])
    assert os.readlink(unit) == "/usr/lib/systemd/system/multi-user.target"
    assert not found.changed
    assert "another user can have written it" in found.warnings[0]


def test_the_ledgers_folder_becomes_roots_before_it_is_written(host: FakeHost, home: Path) -> None:
    host.apply(links=[{"path": "/etc/x", "target": "/usr/lib/x"}])
    assert home.stat().st_uid == 0
    assert json.loads((host.root / LEDGER.lstrip("/")).read_text())["links"] == {"/etc/x": None}
