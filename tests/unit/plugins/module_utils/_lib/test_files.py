# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader never sees half of a file, and half a file of somebody else's is none."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files


def test_content_and_mode_arrive_together(tmp_path: Path) -> None:
    path = tmp_path / "a"
    files.write_atomic(str(path), "grün\n", mode=0o600)
    assert path.read_text(encoding="utf-8") == "grün\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    files.write_atomic(str(path), b"\xff", os.getuid(), os.getgid(), 0o644)
    assert path.read_bytes() == b"\xff"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert os.listdir(tmp_path) == ["a"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomic(str(path), "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.write_atomic("a", "x")
    assert (tmp_path / "a").read_text() == "x"


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b'{"a": 1}', {"a": 1}), (b'{"a": 1', {}), (b"[1]", {}), (b"", {}), (b"\xff\xfe", {}), (None, {})],
)
def test_json_of_others(tmp_path: Path, content: bytes | None, expected: dict[str, int]) -> None:
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content)
    assert files.read_json(str(path)) == expected
