# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import room


def test_a_model_that_a_host_lacks_needs_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda _path: 1000)
    assert room.refused(str(tmp_path / "models"), {"small": 900}) == []
    [message] = room.refused(str(tmp_path / "models"), {"small": 900, "large": 5000})
    assert "small, large needs 6.0 KiB more" in message
    assert "1000 B are free there; free 5.1 KiB, or set model_store_root" in message


def test_what_is_there_or_on_its_way_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_bytes", lambda _path: 1000)
    (tmp_path / "large").mkdir()
    assert room.refused(str(tmp_path), {"large": 5000}) == []
    (tmp_path / ".incoming").mkdir()
    (tmp_path / ".incoming" / "part").write_bytes(b"x" * 4500)
    assert room.refused(str(tmp_path), {"other": 5000}) == []
