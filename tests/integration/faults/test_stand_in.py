# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own watchdog over one command, on a machine without systemd: a rank is killed, the group comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "faults" / "unit.py"
ENGINE = Path(__file__).with_name("stand_in_engine.py")


@pytest.mark.parametrize("stop", [False, True], ids=["killed", "stopped"])
def test_a_lost_rank_is_noticed_and_the_whole_group_started_anew(tmp_path: Path, stop: bool) -> None:
    folder, door = tmp_path / "g", tmp_path / "engine.sock"
    words = [sys.executable, str(SCRIPT), "prove", "--folder", str(folder), "--socket", str(door), "--model", "m"]
    words += [
        "--kill",
        "a-rank$",
        "--interval",
        "1",
        "--deadline",
        "3",
        "--timeout",
        "180",
        *(["--stop"] if stop else []),
    ]
    done = subprocess.run(
        [*words, "--", sys.executable, str(ENGINE), str(door), "rank"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr + (folder / "watchdog.log").read_text()
    result = json.loads(done.stdout)
    assert "a-rank" in result["killed"]
    assert result["left_over"] == []
    assert result["restarts"] == {"completion": 1}
    assert result["noticed"] < result["serving_again"] < 180
    assert any("restarting: completion timed out" in line for line in result["story"])
    # whatever ran is gone with it
    assert str(tmp_path) not in subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
