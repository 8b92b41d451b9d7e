# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tools.faults.busy``: half an hour at full load, and the watchdog must not touch it.

The engine gets small steps and a short deadline of the watchdog by ``site.yml``, then more clients than it can run at
once, each with a prompt whose prefill alone takes longer than that deadline.  Judged: requests waiting in every sample,
prefills longer than the deadline, not one restart, the state never anything but serving, no request lost.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.faults.__main__ import RESULTS, commit, say
from tools.faults.observe import Watch
from tools.faults.site import VLLM, Site
from tools.playbooks import run_playbook

SMALL_STEPS: dict[str, Any] = {
    "vllm_serve_args": {"max-num-batched-tokens": 16, "enable-prefix-caching": False},
    "vllm_serve_max_model_len": 2048,
}
CLIENTS = 12
PROMPT = 1600
METRICS = "curl -s --max-time 10 --unix-socket /run/sparkthor/vllm/vllm.sock http://x/metrics"


@dataclass
class Busy:
    minutes: float
    deadline: float
    commit: str = ""
    samples: int = 0
    least_waiting: float | None = None
    #: samples in which nobody waited
    idle: int = 0
    requests: int = 0
    failed: list[str] = field(default_factory=list)
    prefills: float = 0.0
    mean_prefill: float = 0.0
    #: prefills that took longer than the deadline, from the engine's own histogram
    longer: float = 0.0
    restarts: dict[str, int] = field(default_factory=dict)
    states: list[str] = field(default_factory=list)
    #: probes that only waited, as the watchdog's journal tells
    excused: int = 0
    median_latency: float | None = None
    troubles: list[str] = field(default_factory=list)


def values(text: str, name: str) -> list[tuple[str, float]]:
    """(labels, value) of a metric, one for each of its lines."""
    found = re.findall(rf"^{re.escape(name)}(\{{[^}}]*\}})? ([0-9.e+-]+)$", text, re.MULTILINE)
    return [(labels, float(value)) for labels, value in found]


def total(text: str, name: str) -> float:
    return sum(value for _labels, value in values(text, name))


def longer_than(text: str, name: str, seconds: float) -> float:
    """How many observations of a histogram were surely longer: those above the first bucket that holds ``seconds``."""
    below: dict[float, float] = {}
    for labels, value in values(text, f"{name}_bucket"):
        edge = re.search(r'le="([^"]+)"', labels)
        if edge:
            below[float(edge.group(1))] = below.get(float(edge.group(1)), 0.0) + value
    edges = sorted(edge for edge in below if edge >= seconds)
    return below[edges[-1]] - below[edges[0]] if edges else 0.0


class Load:
    def __init__(self, site: Site, result: Busy) -> None:
        self.endpoint = site.endpoint
        self.result = result
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.client, args=(n,), daemon=True) for n in range(CLIENTS)]

    def client(self, number: int) -> None:
        dice = random.Random(number)
        while not self.stop.is_set():
            prompt = "".join(dice.choice("abcdefghijklmnopqrstuvwxyz") for _letter in range(PROMPT))
            error = self.endpoint.complete(8, stream=False, timeout=1800, prompt=prompt)
            with self.lock:
                self.result.requests += 1
                if error and not self.stop.is_set():
                    self.result.failed.append(error)


def judge(result: Busy) -> list[str]:
    found = []
    if result.idle or not result.samples:
        found.append(f"nobody waited in {result.idle} of {result.samples} samples")
    if result.longer < 1:
        found.append(f"no prefill took longer than {result.deadline:g} s: nothing was proved")
    if result.restarts:
        found.append(f"restarts: {result.restarts}")
    other = sorted({line for line in result.states if not line.startswith("serving")})
    if other:
        found.append(f"states: {other}")
    if result.failed:
        found.append(f"{len(result.failed)} requests failed, the first with {result.failed[0]}")
    return found


def measure(site: Site, minutes: float, deadline: float) -> Busy:
    result = Busy(minutes, deadline, commit())
    before = site.on(site.head, METRICS)
    counted = json.loads(site.on(site.head, "cat /run/sparkthor/state.json"))["restarts"]
    invocation = site.shown(site.head, VLLM, "InvocationID")
    load = Load(site, result)
    latencies: list[float] = []
    for thread in load.threads:
        thread.start()
    warm = time.monotonic() + 120
    while total(site.on(site.head, METRICS, check=False), "vllm:num_requests_waiting") < 1:
        if time.monotonic() > warm:
            result.troubles.append("no request ever waited")
            break
        time.sleep(1)
    text = before
    with Watch(site.leader) as watch:
        begun = time.monotonic()
        told = begun
        while time.monotonic() - begun < 60 * minutes:
            time.sleep(4)
            text = site.on(site.head, METRICS, check=False) or text
            waiting = total(text, "vllm:num_requests_waiting")
            result.samples += 1
            result.idle += waiting < 1
            result.least_waiting = waiting if result.least_waiting is None else min(result.least_waiting, waiting)
            result.excused += str(watch.newest.get("line", "")).startswith("serving: busy")
            latencies.append(float((watch.newest.get("completion") or {}).get("latency") or 0))
            if time.monotonic() - told > 300:
                told = time.monotonic()
                say(f"  {(told - begun) / 60:.0f} min: {result.requests} requests, {waiting:g} waiting, {watch.state}")
        result.states = sorted({line for _moment, _state, line in watch.changes})
        after = watch.newest.get("restarts") or {}
    load.stop.set()
    name = "vllm:request_prefill_time_seconds"
    result.prefills = total(text, f"{name}_count") - total(before, f"{name}_count")
    if result.prefills:
        spent = total(text, f"{name}_sum") - total(before, f"{name}_sum")
        result.mean_prefill = round(spent / result.prefills, 2)
    result.longer = longer_than(text, name, deadline) - longer_than(before, name, deadline)
    result.restarts = {key: n - counted.get(key, 0) for key, n in after.items() if n != counted.get(key, 0)}
    result.median_latency = round(statistics.median(latencies), 2) if latencies else None
    if site.shown(site.head, VLLM, "InvocationID") != invocation:
        result.troubles.append("the engine was started anew")
    result.troubles += judge(result)
    return result


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults.busy", description=__doc__)
    parser.add_argument("--lab", required=True)
    parser.add_argument("--inventory", default="lab_tiny")
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--deadline", type=float, default=5.0, help="of the watchdog's probe")
    parser.add_argument("--kept", type=Path, default=RESULTS / "busy.json")
    options = parser.parse_args(argv)
    site = Site.open(options.lab, options.inventory)
    watchdog = {"vllm_serve_watchdog_deadline": options.deadline, "vllm_serve_watchdog_interval": options.deadline}
    outcome = run_playbook("site.yml", site.inventories, extra_vars={**SMALL_STEPS, **watchdog}, name="busy", say=say)
    if outcome.rc != 0:
        say("\n".join(outcome.failures))
        return 2
    result = measure(site, options.minutes, options.deadline)
    options.kept.parent.mkdir(parents=True, exist_ok=True)
    options.kept.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    say(json.dumps(asdict(result), indent=1))
    return 1 if result.troubles else 0


if __name__ == "__main__":
    sys.exit(main())
