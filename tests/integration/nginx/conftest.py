# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables are those of the planner's own tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.plugins.plugin_utils._plan.conftest import variables

__all__ = ["variables"]


@pytest.fixture(name="tmp_path")
def _tmp_path() -> Iterator[Path]:
    """A folder with a short name: a socket's path has room for 108 characters."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
