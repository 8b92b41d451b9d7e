# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which scenario CI takes in turn: what it prints is what tools/test.sh runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools import test_full, turn

TOP = Path(__file__).parents[3]


def test_it_prints_the_line_of_this_commit() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "tools.turn"], cwd=TOP, capture_output=True, text=True, check=True
    ).stdout.split()
    assert tuple(said) == turn.turn(int(test_full.git("rev-list", "--count", "HEAD")))


def test_each_name_is_a_scenario() -> None:
    assert {name for line in turn.TURNS for name in line} <= set(test_full.commands())
