# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own watchdog over an engine whose steps take as long as a large model's, in real time, without a host.

What the engine's process shows is read by what runs on hosts. One after the other SLOW_STEPS=5,30,60,180,300 take an
hour; the engine idles, so ``pytest -n 5`` runs them side by side.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import life, serving
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import patience

from tools.faults import unit

STEPS = [float(word) for word in os.environ.get("SLOW_STEPS", "5,30").split(",")]
#: two samples of the process, and rounds of a busy machine
SLACK = 40.0
LONG = "x" * 100
#: seconds of a load without a line in the log, more than a load gets that shows no sign of life
QUIET = float(os.environ.get("QUIET_LOAD", "2400"))
LOAD_STALL = QUIET / 2
ENGINE = Path(__file__).with_name("stand_in_engine.py")


@dataclasses.dataclass
class Group:
    folder: Path
    limits: dict[str, float]

    def state(self) -> dict[str, Any]:
        return files.read_json(str(self.folder / "state.json"))

    def restarts(self) -> dict[str, int]:
        return dict(self.state().get("restarts") or {})

    def step(self, word: str) -> None:
        (self.folder / "steps").write_text(word)

    def ask(self, seconds: float) -> int:
        body = {"model": "m", "prompt": LONG, "max_tokens": 1}
        return serving.request(str(self.folder / "s"), "POST", "/v1/completions", seconds, body)[0]

    def until(self, holds: Callable[[], bool], seconds: float) -> float:
        begun = time.monotonic()
        while not holds():
            assert time.monotonic() - begun < seconds, self.state().get("line")
            time.sleep(0.2)
        return time.monotonic() - begun


def publish(group: Group, stop: threading.Event) -> None:
    """As a rank's own program does it, for a group of one."""
    sampler, path = life.Sampler(), str(group.folder / "group.json")
    while not stop.wait(2):
        state = group.state()
        pid = int((state.get("unit") or {}).get("main_pid") or 0)
        told: dict[str, Any] = {"updated": time.time(), "ranks": {"10.0.0.1": "one"}, "signs": {}}
        if pid and (state.get("stall") or {}).get("overdue"):
            # restarted meanwhile, there is nothing to sample
            with contextlib.suppress(ProcessLookupError):
                told["signs"] = {"spark-01": dataclasses.asdict(sampler.sample(life.of_session(os.getsid(pid)), 0))}
        files.write_atomic(path, json.dumps(told))


@contextlib.contextmanager
def watched(folder: Path, limits: dict[str, float], *words: str) -> Iterator[Group]:
    """A stand-in engine as a unit, and the watchdog over it."""
    found = Group(folder, limits)
    found.step("0")
    config = {
        **{"unit": "group.service", "socket": str(folder / "s"), "model": "m", "ray": False},
        **{"health_socket": str(folder / "h"), "state": str(folder / "state.json")},
        **{"metrics": str(folder / "metrics.prom"), "group_state": str(folder / "group.json")},
        "settings": {**limits, "expected": {"10.0.0.1": "spark-01"}},
    }
    command = [sys.executable, str(ENGINE), str(folder / "s"), *words]
    runner = subprocess.Popen([sys.executable, unit.__file__, "run", "--folder", str(folder), "--", *command])
    stop = threading.Event()
    speaker = threading.Thread(target=publish, args=(found, stop))
    found.until((folder / "control.sock").exists, 30)
    guard = unit.watchdog(folder, config)
    speaker.start()
    try:
        yield found
    finally:
        stop.set()
        speaker.join()
        for process in (guard, runner):
            process.terminate()
            process.wait(60)


@pytest.fixture
def group(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Group]:
    step = float(request.param)
    limits = {
        "step_patience": max(patience.LEAST_PATIENCE, math.ceil(patience.MARGIN * step)),
        "wedge_bound": max(patience.LEAST_BOUND, math.ceil(patience.STILL_MARGIN * step)),
    }
    with watched(tmp_path, limits, "steps", str(tmp_path / "steps")) as found:
        found.until(lambda: found.state().get("state") == "serving", 60)
        yield found


def waits_in_vain(group: Group) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        group.ask(3600)


@pytest.mark.parametrize(("group", "step"), [(one, one) for one in STEPS], indirect=["group"], ids=str)
def test_a_slow_step_is_left_alone_and_a_wedged_one_is_not(group: Group, step: float) -> None:
    group.step(f"{step:g}")
    began = group.state()["unit"]["invocation"]
    for _time in range(2):
        assert group.ask(step + 60) == 200
    assert (group.restarts(), group.state()["unit"]["invocation"]) == ({}, began)

    group.step("wedge")
    client = threading.Thread(target=waits_in_vain, args=(group,), daemon=True)
    client.start()
    noticed = group.until(lambda: group.restarts() == {"completion": 1}, group.limits["wedge_bound"] + SLACK)
    print(
        f"\nstep {step:g} s: noticed after {noticed:.0f} s, bound {group.limits['wedge_bound']:g} s, {os.getloadavg()}"
    )
    group.step("0")
    group.until(lambda: group.state().get("state") == "serving" and group.state()["unit"]["invocation"] != began, 60)
    client.join(10)
    assert not client.is_alive()


def test_a_load_that_says_nothing_for_forty_minutes_is_left_alone(tmp_path: Path) -> None:
    with watched(tmp_path, {"load_stall": LOAD_STALL}, "loads", f"{QUIET:g}") as group:
        group.until(lambda: group.state().get("state") == "loading", 60)
        began = group.state()["unit"]["invocation"]
        took = group.until(lambda: group.state().get("state") == "serving", QUIET + 120)
        print(f"\nquiet for {QUIET:g} s, serving after {took:.0f} s, {os.getloadavg()}")
        assert (group.restarts(), group.state()["unit"]["invocation"]) == ({}, began)
