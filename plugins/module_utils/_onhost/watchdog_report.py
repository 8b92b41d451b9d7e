# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What the watchdog tells: its state file, its metrics, the answer of /health, and what it reads of the engine's."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from . import limits
from .engines import registry
from .engines.base import MetricNames
from .observation import Observation
from .state_words import LOADING, STATES
from .watchdog import CAUSES, VERSION, Decision, Watchdog


def _values(text: str) -> Iterator[tuple[str, float]]:
    """Name and value of each sample."""
    for line in text.splitlines():
        name = line.split("{", 1)[0].split(" ", 1)[0]
        try:
            value = float(line.rsplit(" ", 1)[1])
        except (IndexError, ValueError):
            continue
        # what the engine says: with one that is none nobody could reckon
        if math.isfinite(value):
            yield name, value


def engine_counters(text: str, names: MetricNames = registry.DEFAULT.metrics) -> tuple[float, ...] | None:
    """The numbers of the engine's ``/metrics`` that move only when the engine itself did something."""
    sums = [0.0] * (max(names.moves.values()) + 1)
    counted = False
    for name, value in _values(text):
        index = names.moves.get(name)
        if index is not None:
            sums[index] += value
            counted = True
    return tuple(sums) if counted else None


def requests_in_flight(text: str, names: MetricNames = registry.DEFAULT.metrics) -> int | None:
    """Requests running or waiting in the engine, from ``/metrics``."""
    counted = (*names.running, *names.waiting)
    found = [value for name, value in _values(text) if name in counted]
    return int(sum(found)) if found else None


def status(machine: Watchdog, decision: Decision, seen: Observation, since: float, wall: float) -> dict[str, Any]:
    """The content of the state file: what people, modules and the next process of the watchdog want to know."""
    ago = None if machine.success_at is None else max(0.0, seen.now - machine.success_at)
    return {
        "version": VERSION,
        "state": decision.state,
        "detail": decision.detail,
        "line": decision.line,
        "healthy": decision.healthy,
        "since": round(since, 3),
        "updated": round(wall, 3),
        "unit": dataclasses.asdict(seen.unit),
        "completion": {
            "seconds_ago": None if ago is None else round(ago, 3),
            "latency": None if not machine.latencies else round(machine.latencies[-1], 4),
            "median_latency": None if machine.latency is None else round(machine.latency, 4),
            "deadline": machine.deadline,
        },
        "stall": {
            "overdue": machine.overdue,
            "seconds": round(machine.stalled, 1),
            "allowed": machine.allowed,
            "evidence": machine.verdict.kind,
        },
        "answers": dict(machine.answers),
        "failures": machine.failures,
        "fraction": seen.fraction,
        "progress": seen.progress,
        "load": None if seen.load is None or machine.served else dict(seen.load),
        "ranks": {
            "expected": dict(machine.settings.expected),
            "known": seen.ranks is not None,
            "missing": list(machine.missing),
            "without": [machine.settings.expected.get(one, one) for one in machine.without],
        },
        "restarts": dict(machine.restarts),
        "attempts": machine.attempts,
        "next_restart_in": round(machine.wait_before_restart(seen.now), 1),
        "memory": machine.dump(),
    }


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _answers_lines(told: Mapping[str, Any]) -> list[str]:
    if not told.get("asked"):
        return []
    return [
        "# HELP sparkthor_serving_answers_asked Simple tasks that the model was asked after its start.",
        "# TYPE sparkthor_serving_answers_asked gauge",
        f"sparkthor_serving_answers_asked {told['asked']}",
        "# HELP sparkthor_serving_answers_right Those of them that it answered rightly.",
        "# TYPE sparkthor_serving_answers_right gauge",
        f"sparkthor_serving_answers_right {told['right']}",
    ]


def metrics_text(state: Mapping[str, Any], wall: float) -> str:
    """The same in Prometheus' text format."""
    lines = [
        "# HELP sparkthor_serving_state 1 for the state that the serving group is in.",
        "# TYPE sparkthor_serving_state gauge",
    ]
    lines += [f'sparkthor_serving_state{{state="{name}"}} {int(state["state"] == name)}' for name in STATES]
    lines += [
        "# HELP sparkthor_serving_healthy 1 while a real completion succeeded recently and nothing is amiss.",
        "# TYPE sparkthor_serving_healthy gauge",
        f"sparkthor_serving_healthy {int(bool(state['healthy']))}",
        "# HELP sparkthor_serving_state_seconds Time spent in this state so far.",
        "# TYPE sparkthor_serving_state_seconds gauge",
        f"sparkthor_serving_state_seconds {max(0.0, wall - state['since']):.1f}",
        "# HELP sparkthor_serving_restarts_total Restarts of the serving group since boot, by cause.",
        "# TYPE sparkthor_serving_restarts_total counter",
    ]
    restarts = state.get("restarts") or {}
    lines += [
        f'sparkthor_serving_restarts_total{{cause="{_label(cause)}"}} {int(restarts.get(cause, 0))}'
        for cause in [*CAUSES, *sorted(set(restarts) - set(CAUSES))]
    ]
    completion = state.get("completion") or {}
    if completion.get("latency") is not None:
        lines += [
            "# HELP sparkthor_serving_completion_seconds Latency of the newest one-token completion that succeeded.",
            "# TYPE sparkthor_serving_completion_seconds gauge",
            f"sparkthor_serving_completion_seconds {completion['latency']:.4f}",
        ]
    if completion.get("seconds_ago") is not None:
        lines += [
            "# HELP sparkthor_serving_completion_age_seconds Time since a one-token completion succeeded.",
            "# TYPE sparkthor_serving_completion_age_seconds gauge",
            f"sparkthor_serving_completion_age_seconds {completion['seconds_ago']:.1f}",
        ]
    lines += _answers_lines(state.get("answers") or {})
    stall = state.get("stall") or {}
    if stall:
        lines += [
            "# HELP sparkthor_serving_stall_seconds Time without a token while requests are in flight.",
            "# TYPE sparkthor_serving_stall_seconds gauge",
            f"sparkthor_serving_stall_seconds {stall['seconds']:.1f}",
            "# HELP sparkthor_serving_stall_allowed_seconds Time without a token after which the group is restarted.",
            "# TYPE sparkthor_serving_stall_allowed_seconds gauge",
            f"sparkthor_serving_stall_allowed_seconds {stall['allowed']:.1f}",
        ]
    ranks = state.get("ranks") or {}
    if ranks.get("expected"):
        missing = {*(ranks.get("missing") or ()), *(ranks.get("without") or ())}
        lines += [
            "# HELP sparkthor_serving_rank_alive 1 while this host is a member of the group.",
            "# TYPE sparkthor_serving_rank_alive gauge",
        ]
        # Prometheus gives each sample the label "host" of its target, the head
        lines += [
            f'sparkthor_serving_rank_alive{{rank="{_label(name)}"}} {int(name not in missing)}'
            for name in ranks["expected"].values()
        ]
    return "\n".join(lines) + "\n"


def health_body(state: Mapping[str, Any] | None, age: float) -> tuple[int, dict[str, Any]]:
    """What ``/health`` answers: 200 only for a group that completed something recently.

    Everybody may ask: of what the watchdog knows it says the state and how far a load is, and no line of a log, no
    answer of the engine and no name of a host.

    ``age``: seconds since the state was observed, by a clock that nobody sets.
    """
    if state is None:
        return 503, {"status": "unknown", "detail": "the watchdog has observed nothing yet"}
    if age > limits.WATCHDOG_STALE:
        return 503, {"status": "unknown", "detail": f"the watchdog has observed nothing for {age:.0f} s"}
    fraction = state.get("fraction")
    body: dict[str, Any] = {
        "status": state["state"],
        "detail": "" if state["state"] != LOADING or fraction is None else f"{round(fraction * 100)} %",
        "completion_seconds_ago": (state.get("completion") or {}).get("seconds_ago"),
        "generation": state.get("generation"),
    }
    return (200 if state["healthy"] else 503), body
