# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps as long as a large model's: never shot with a request in flight; truly wedged: noticed within the bound."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterator

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.hang import FOLDER
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.patience import (
    LEAST_BOUND,
    LEAST_PATIENCE,
    MARGIN,
    STILL_MARGIN,
)

from tests.integration.conftest import Cluster
from tools.faults import steps
from tools.faults.observe import Watch
from tools.faults.site import RAY, Site, wait
from tools.playbooks import run_playbook

#: seconds of a step; SLOW_STEPS=180,300 for those that take their time
STEPS = [float(word) for word in os.environ.get("SLOW_STEPS", "5,30,60").split(",")]
#: of the watchdog's looks before and after its patience: with the least patience these are two minutes
LOOKS = 10.0


def patience(step: float) -> int:
    """What is planned for a model whose longest step this is."""
    return max(LEAST_PATIENCE, math.ceil(MARGIN * step))


def bound(step: float) -> int:
    return max(LEAST_BOUND, math.ceil(STILL_MARGIN * step))


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    found = Site(cluster.lab, cluster.inventories)
    yield found
    converge(found)


def converge(site: Site, **variables: object) -> None:
    outcome = run_playbook("site.yml", site.inventories, extra_vars=variables or None, name="slow-steps")
    assert outcome.rc == 0, outcome.failures


def slow(site: Site, seconds: float) -> None:
    converge(
        site,
        **steps.install(site),
        vllm_serve_watchdog_step_patience=patience(seconds),
        vllm_serve_watchdog_wedge_bound=bound(seconds),
    )


@pytest.mark.parametrize("seconds", STEPS)
def test_a_slow_step_is_never_shot_and_a_wedged_one_is(site: Site, seconds: float) -> None:
    slow(site, seconds)
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 300, "serving")
        before = dict(watch.newest["restarts"])
        steps.set_step(site, f"{seconds:g}")
        try:
            for _unused in range(2):
                assert site.endpoint.complete(2, stream=False, timeout=3 * seconds + 300, prompt=steps.PROMPT) == ""
        finally:
            steps.end_steps(site)
        assert watch.newest["restarts"] == before
        wedge(site, watch, seconds)


def wedge(site: Site, watch: Watch, seconds: float, word: str = steps.WEDGED) -> None:
    """A step that never ends on one rank, with a client that waits for it."""
    limit = patience(seconds)
    before = dict(watch.newest["restarts"])
    kept = kept_hangs(site)
    steps.set_step(site, word, site.worker)
    client = threading.Thread(
        target=lambda: site.endpoint.complete(2, stream=False, timeout=limit + 300, prompt=steps.PROMPT), daemon=True
    )
    begun = time.monotonic()
    client.start()
    try:
        wait(lambda: watch.newest["restarts"] != before, limit + LOOKS, "the wedged engine to be noticed")
    finally:
        steps.end_steps(site)
    print(f"noticed after {time.monotonic() - begun:.0f} s (bound {bound(seconds)}, patience {limit})")
    wait(lambda: watch.state == "serving", 600, "serving again")
    client.join(60)
    # every host kept something; the head's is of before the restart, which waits for the others only so long, and a
    # task of Ray takes more than that here
    wait(lambda: all(newest > kept[host] for host, newest in kept_hangs(site).items()), 60, "records of all hosts")
    record = json.loads(site.on(site.head, f"cat {FOLDER}/{kept_hangs(site)[site.head]}"))
    assert record["reason"].startswith("sparkthor-vllm.service: "), record
    assert any(entry["title"].startswith(("VLLM::", "vllm serve", "ray::RayWorker")) for entry in record["processes"])


def kept_hangs(site: Site) -> dict[str, str]:
    """The newest record's name by host."""
    return {host: site.on(host, f"ls {FOLDER} | tail -1").strip() for host in site.hosts}


def test_a_wedged_rank_that_turns_in_circles_is_noticed_within_two_minutes(site: Site) -> None:
    slow(site, 5)
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 300, "serving")
        wedge(site, watch, 5, steps.BUSY)


def test_a_stopped_rank_is_noticed_with_requests_in_flight(site: Site) -> None:
    slow(site, 30)
    with Watch(site.leader) as watch:
        wait(lambda: watch.state == "serving", 300, "serving")
        before = dict(watch.newest["restarts"])
        client = threading.Thread(
            target=lambda: site.endpoint.complete(400, stream=False, timeout=600, prompt=steps.PROMPT), daemon=True
        )
        client.start()
        time.sleep(5)
        site.signal(site.worker, site.process(site.worker, RAY, r"ray::RayWorker"), "STOP")
        begun = time.monotonic()
        wait(lambda: watch.newest["restarts"] != before, patience(30) + LOOKS, "the stopped rank to be noticed")
        print(f"noticed after {time.monotonic() - begun:.0f} s")
        wait(lambda: watch.state == "serving", 600, "serving again")
        client.join(60)
