# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in for systemd says and does what the watchdog's own reader of systemctl and journalctl expects."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "faults" / "unit.py"
#: a main process with a child, both of which have to go
COMMAND = "echo a line; sleep 600 & wait"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    words = [sys.executable, str(SCRIPT), "run", "--folder", str(tmp_path), "--", "/bin/sh", "-c", COMMAND]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as process:
        until((tmp_path / "control.sock").exists)
        yield tmp_path
        process.terminate()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)


def runner(folder: Path) -> serving.Runner:
    def run(argv: list[str], seconds: float) -> tuple[int, str, str]:
        return serving.run([str(folder / "bin" / argv[0]), *argv[1:]], 60)

    return run


def test_the_watchdogs_reader_sees_a_unit_that_is_restarted_as_a_whole(folder: Path) -> None:
    run = runner(folder)

    def state() -> serving.observation.Unit:
        unit = serving.unit_state(serving.show("group.service", run))
        assert unit is not None
        return unit

    first = state()
    assert first.running
    until(lambda: serving.journal("group.service", first.invocation, 5, run) == ["a line"])
    children = Path(f"/proc/{first.main_pid}/task/{first.main_pid}/children").read_text().split()
    assert children
    assert serving.restart("group.service", True, run) == ""
    # one answer for both questions: between two the unit may have gone on
    until(lambda: (seen := state()).running and seen.invocation != first.invocation)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in (first.main_pid, *children))
    second = state()
    os.kill(second.main_pid, 9)
    until(lambda: (seen := state()).running and seen.restarts == 1)
    assert state().invocation not in (first.invocation, second.invocation)
    assert run(["systemctl", "isolate", "x"], 5)[0] == 1
