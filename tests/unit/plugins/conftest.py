# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of several plugins need."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.clock import Clock
from tests.unit.engine_lock import locked, write_wheels


@pytest.fixture
def clock() -> Clock:
    """In place of the module ``time`` in the module under test."""
    return Clock()


@pytest.fixture
def locked_wheels(tmp_path: Path) -> dict[str, str]:
    """A lock and its wheels, as arguments of a task."""
    pins = ("ray==2.60.0", "vllm==0.32.0", "uv==0.13.8")
    (tmp_path / "lock.txt").write_text(locked(*pins))
    folder = tmp_path / "wheels"
    folder.mkdir()
    write_wheels(folder, *pins)
    return {"requirements": str(tmp_path / "lock.txt"), "wheel_dir": str(folder)}
