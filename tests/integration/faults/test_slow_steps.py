# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps as long as a large model's: never shot with a request in flight; truly wedged: noticed within the bound."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from tests.integration.conftest import TOP, Cluster
from tools.faults.observe import Watch
from tools.faults.site import RAY, Site, wait
from tools.playbooks import run_playbook

#: seconds of a step; SLOW_STEPS=180,300 for those that take their time
STEPS = [float(word) for word in os.environ.get("SLOW_STEPS", "5,30,60").split(",")]
#: of the lab's small machine, beside the step itself
SLACK = 30.0
LONG = "one two three four five six seven eight nine ten " * 10
WORKER = TOP / "lab" / "engine" / "stepped_worker.py"
STEP_FILE = "/run/lab-step"
_INSTALL = 'printf %s "$1" >"$(echo /opt/sparkthor/venv/lib/python3*/site-packages)/stepped_worker.py"'


def patience(step: float) -> int:
    """What is planned for a model whose longest step this is."""
    return max(120, int(3 * step))


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    found = Site(cluster.lab, cluster.inventories)
    for host in found.hosts:
        found.on(host, _INSTALL, WORKER.read_text(encoding="utf-8"))
    yield found
    converge(found)


def converge(site: Site, **variables: object) -> None:
    outcome = run_playbook("site.yml", site.inventories, extra_vars=variables or None, name="slow-steps")
    assert outcome.rc == 0, outcome.failures


def step(site: Site, word: str) -> None:
    site.everywhere(f"echo {word} >{STEP_FILE}; chmod 644 {STEP_FILE}" if word else f"rm -f {STEP_FILE}")


def slow(site: Site, seconds: float) -> None:
    converge(
        site,
        vllm_serve_args={"worker-cls": "stepped_worker.SteppedWorker"},
        vllm_serve_watchdog_step_patience=patience(seconds),
        vllm_serve_watchdog_wedge_bound=max(60, int(2 * seconds)),
    )


@pytest.mark.parametrize("seconds", STEPS)
def test_a_slow_step_is_never_shot_and_a_wedged_one_is(site: Site, seconds: float) -> None:
    slow(site, seconds)
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 300, "serving")
        before = dict(watch.newest["restarts"])
        step(site, f"{seconds:g}")
        try:
            for _unused in range(2):
                assert site.endpoint.complete(2, stream=False, timeout=3 * seconds + 300, prompt=LONG) == ""
        finally:
            step(site, "")
        assert watch.newest["restarts"] == before
        wedge(site, watch, max(60, int(2 * seconds)), patience(seconds))


def wedge(site: Site, watch: Watch, bound: float, limit: float) -> None:
    """A step that never ends on one rank, with a client that waits for it."""
    before = dict(watch.newest["restarts"])
    site.on(site.worker, f"echo wedge >{STEP_FILE}; chmod 644 {STEP_FILE}")
    client = threading.Thread(
        target=lambda: site.endpoint.complete(2, stream=False, timeout=limit + 300, prompt=LONG), daemon=True
    )
    begun = time.monotonic()
    client.start()
    try:
        wait(lambda: watch.newest["restarts"] != before, limit + SLACK, "the wedged engine to be noticed")
    finally:
        step(site, "")
    print(f"noticed after {time.monotonic() - begun:.0f} s (bound {bound:g}, patience {limit:g})")
    wait(lambda: watch.state == "serving", 600, "serving again")
    client.join(60)


def test_a_stopped_rank_is_noticed_with_requests_in_flight(site: Site) -> None:
    slow(site, 30)
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 300, "serving")
        before = dict(watch.newest["restarts"])
        client = threading.Thread(
            target=lambda: site.endpoint.complete(400, stream=False, timeout=600, prompt=LONG), daemon=True
        )
        client.start()
        time.sleep(5)
        site.signal(site.worker, site.process(site.worker, RAY, r"ray::RayWorker"), "STOP")
        begun = time.monotonic()
        wait(lambda: watch.newest["restarts"] != before, patience(30) + SLACK, "the stopped rank to be noticed")
        print(f"noticed after {time.monotonic() - begun:.0f} s")
        wait(lambda: watch.state == "serving", 600, "serving again")
        client.join(60)
