# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import folders


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for /var/lib: root's, and closed up to the root."""
    monkeypatch.setattr(folders, "_name", lambda uid: "root" if uid in (0, os.getuid()) else "somebody")
    return tmp_path


def test_new_empty_and_private_folders_are_taken(top: Path) -> None:
    (top / "empty").mkdir(mode=0o777)
    (top / "disk/lost+found").mkdir(parents=True)
    (top / "ours").mkdir(mode=0o755)
    (top / "ours/model").touch()
    for path in ("new/deep", "empty", "disk", "ours"):
        assert folders.unfit(str(top / path), str(top)) == "", path


def test_what_others_write_to_or_own_is_refused(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "file").touch()
    shared = top / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "x").touch()
    assert folders.unfit(str(top / "file"), str(top)) == "it is not a folder"
    assert folders.unfit(str(shared), str(top)) == "it is not empty and others may write to it"
    assert folders.unfit(str(shared / "new"), str(top)) == f"everybody may write to {shared}"
    theirs = top / "theirs"
    theirs.mkdir()
    (theirs / "x").touch()
    monkeypatch.setattr(folders, "_name", lambda uid: "alice")
    assert folders.unfit(str(theirs), str(top)) == "it is not empty and belongs to alice"


def test_a_link_to_a_folder_on_another_disk_is_judged_by_the_folder(top: Path) -> None:
    shared = top / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "x").mkdir()
    (top / "cache").symlink_to(shared / "x")
    assert folders.unfit(str(top / "cache"), str(top)) == f"everybody may write to {shared}"


def test_what_is_refused_names_variable_value_and_fix() -> None:
    (refused,) = folders.refused({"engine_cache_dir": "/dev/null", "model_store_root": "/no/such/folder"})
    assert refused.startswith("engine_cache_dir: '/dev/null': it is not a folder; give a folder that is new")
