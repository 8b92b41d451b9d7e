# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A serving unit, its ranks and its engine around one watchdog, on a clock of their own."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    observation,
    patience,
    watchdog,
)

EXPECTED = {"10.0.0.1": "spark-01", "10.0.0.2": "spark-02", "10.0.0.3": "spark-03"}

ALIVE = {"10.0.0.1": "n1", "10.0.0.2": "n2", "10.0.0.3": "n3"}


class World:
    """A clock, a unit and an engine around one machine."""

    def __init__(self, **settings: Any) -> None:
        self.machine = watchdog.Watchdog(watchdog.Settings(expected=EXPECTED, **settings))
        self.now = 1000.0
        self.unit = observation.Unit("active", "running", "inv-1", 4711)
        self.ranks: dict[str, str] | None = dict(ALIVE)
        self.listening = True
        self.in_flight: int | None = 0
        self.signs: dict[str, patience.Signs] = {}
        self.counters: tuple[float, ...] | None = (0.0,)
        self.maintenance: str | None = None
        self.draining = False
        self.mark = ""
        self.answer = "ok"
        self.latency = 0.1
        self.asked: tuple[float, float] | None = None  # when the probe in flight began, its deadline
        self.decisions: list[watchdog.Decision] = []
        self.on_restart = True
        self.answerable = False
        self.told: dict[str, Any] = {}  # what the simple tasks show, at the next step after they were asked
        self.asking = False
        self.times_asked = 0
        self.in_the_kernel: dict[int, str] = {}

    def step(self, seconds: float = 2.0) -> watchdog.Decision:
        self.now += seconds
        probe = None
        if self.asked:
            began, deadline = self.asked
            if self.answer == "hang":
                if self.now - began >= deadline:
                    text = f"completion timed out after {deadline:.0f} s"
                    probe = observation.Probe(began, began + deadline, "timeout", text)
            elif self.now - began >= self.latency:
                probe = observation.Probe(
                    began, began + self.latency, self.answer, "" if self.answer == "ok" else "said no"
                )
            if probe:
                self.asked = None
        seen = observation.Observation(
            now=self.now,
            unit=self.unit,
            ranks=self.ranks,
            listening=self.listening,
            probing=self.asked is not None,
            probe=probe,
            counters=self.counters,
            in_flight=self.in_flight,
            signs=self.signs if self.machine.overdue else None,
            mark=self.mark,
            progress=self.mark,
            maintenance=self.maintenance,
            draining=self.draining,
            answerable=self.answerable,
            answers=self.told if self.asking else None,
            in_the_kernel=self.in_the_kernel,
        )
        self.asking = False
        decision = self.machine.decide(seen)
        self.seen = seen
        if decision.probe_deadline is not None:
            assert self.asked is None
            self.asked = (self.now, decision.probe_deadline)
        if decision.ask:
            self.asking = True
            self.times_asked += 1
        if decision.restart and self.on_restart:
            self.started_anew()
        self.decisions.append(decision)
        return decision

    def run(self, seconds: float, step: float = 2.0) -> list[watchdog.Decision]:
        before = len(self.decisions)
        end = self.now + seconds
        while self.now < end:
            self.step(step)
        return self.decisions[before:]

    def started_anew(self, restarts: int = 0) -> None:
        number = int(self.unit.invocation.split("-")[1]) + 1
        self.unit = observation.Unit("active", "running", f"inv-{number}", 4711 + number, restarts=restarts)
        self.asked = None

    def serve(self) -> World:
        decisions = self.run(10)
        assert decisions[-1].line == "serving"
        assert decisions[-1].healthy
        return self
