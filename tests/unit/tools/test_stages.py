# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tools/test.sh runs behind other stages: it is heard of, ends the run where it fails, and never outlives it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
TEXT = (TOP / "tools" / "test.sh").read_text(encoding="utf-8")
FUNCTIONS = TEXT[TEXT.index("\nbegin() ") : TEXT.index("\nlint() ")]


def run(script: str) -> tuple[int, list[str]]:
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{FUNCTIONS}\n{script}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, [line for line in done.stdout.splitlines() if line and not line.startswith("===")]


def ended(pid: int) -> bool:
    until = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_what_is_behind_has_the_lowest_priority_and_is_heard_of_in_the_end(tmp_path: Path) -> None:
    script = f"""
    behind 'nice; until [ -e {tmp_path}/done ]; do sleep 0.01; done' 'echo two; echo three'
    first() {{ echo first at $(nice); }}
    last() {{ touch {tmp_path}/done; echo last; }}
    before_it first last
    echo whole
    """
    code, said = run(script)
    assert code == 0
    assert said[0] == f"first at {os.nice(0)}"
    assert said[-1] == "whole"
    # each line's words stand together, and those of a line that has ended come before the next stage or after it
    assert said.index("three") == said.index("two") + 1
    assert said.index("19") > said.index("last")


def test_a_failure_behind_ends_the_run_before_the_next_stage_and_all_else(tmp_path: Path) -> None:
    script = f"""
    behind 'echo why; false; echo never' 'echo $BASHPID >{tmp_path}/pid; sleep 60 & wait'
    first() {{ until [ -e {tmp_path}/pid ] && [ -s $BEHIND/0.ended ]; do sleep 0.01; done; echo first; }}
    before_it first 'echo second'
    """
    code, said = run(script)
    assert (code, said) == (1, ["first", "why"])
    assert ended(int((tmp_path / "pid").read_text()))


def test_a_stage_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    script = f"""
    behind 'sleep 60 & echo $! >{tmp_path}/pid; wait'
    first() {{ until [ -s {tmp_path}/pid ]; do sleep 0.01; done; false; }}
    before_it first 'echo second'
    """
    code, said = run(script)
    assert (code, said) == (1, [])
    assert ended(int((tmp_path / "pid").read_text()))


def test_what_is_killed_behind_has_not_passed(tmp_path: Path) -> None:
    script = f"""
    behind 'echo $BASHPID >{tmp_path}/pid; sleep 60 & wait'
    first() {{ until [ -s {tmp_path}/pid ]; do sleep 0.01; done; kill -KILL $(cat {tmp_path}/pid); }}
    before_it first
    echo whole
    """
    assert run(script)[0] == 1
