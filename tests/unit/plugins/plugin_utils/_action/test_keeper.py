# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""It lives as long as the run, acts meanwhile, and acts once more when the run is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import keeper


def run_for_a_while() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def added(path: Path, word: str) -> None:
    with path.open("a") as stream:
        stream.write(f"{word}\n")


def words(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def until(path: Path, word: str, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while word not in words(path) and time.monotonic() < end:
        time.sleep(0.05)
    return word in words(path)


def test_it_ends_with_the_run_even_if_that_is_killed(tmp_path: Path) -> None:
    said, run = tmp_path / "said", run_for_a_while()
    child = keeper.keep(run.pid, 0.1, lambda: added(said, "beat"), lambda: added(said, "end"))
    assert until(said, "beat")
    assert "end" not in words(said)
    run.kill()
    run.wait()
    assert os.waitpid(child, 0)[1] == 0
    assert words(said)[-1] == "end"
    assert words(said).count("end") == 1


def test_a_failed_sign_of_life_is_not_the_last(tmp_path: Path) -> None:
    said, run = tmp_path / "said", run_for_a_while()

    def beat() -> None:
        added(said, "beat")
        if len(words(said)) < 2:
            raise OSError("the host is away")
        added(said, "again")

    child = keeper.keep(run.pid, 0.1, beat, lambda: None)
    assert until(said, "again")
    run.kill()
    run.wait()
    os.waitpid(child, 0)


def test_alive() -> None:
    run = run_for_a_while()
    assert keeper.alive(run.pid)
    run.kill()
    # ended, and nobody has waited for it: a caller that hangs must not keep the cluster locked
    os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
    assert not keeper.alive(run.pid)
    run.wait()
    assert not keeper.alive(run.pid)
    assert keeper.alive(1), "another user's"
