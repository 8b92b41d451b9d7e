# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import free_bytes, human


@pytest.mark.parametrize(("size", "text"), [(12, "12 B"), (2048, "2.0 KiB"), (379 * 2**30, "379.0 GiB")])
def test_sizes_for_people(size: int, text: str) -> None:
    assert human(size) == text


def test_room_is_known_before_a_folder_is_there(tmp_path: Path) -> None:
    usage = os.statvfs(tmp_path)
    assert free_bytes(str(tmp_path / "not" / "yet")) == pytest.approx(usage.f_bavail * usage.f_frsize, rel=0.05)


def test_room_of_a_relative_path_is_that_of_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert free_bytes("models") > 0
