# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible as well, in the service that wakes groups on demand:
# pylint: disable=ansible-bad-function

"""Stop, start, restart and drain the serving group on the head, without fighting the watchdog.

Of groups that share a host on demand one serves.  While the host's own one gives way, a marker says for whom; it is in
/run and the unit stays enabled, so that a reboot brings the own group back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator

from .._lib import files
from .._lib.deadline import lock
from . import observation, places, serving, watchdog_report
from .engines import registry

_QUIET_ROUNDS = 2
#: held by whoever stops or starts groups that share a host on demand
LOCK = "/run/sparkthor/on-demand.lock"
#: seconds for which one who stops or starts a group waits for another who does
PATIENCE = 900.0
#: seconds for which the requests of a group that gives way may go on
GIVE_WAY = 300.0

STATES = ("started", "stopped", "restarted", "drained", "awake")


class ControlError(Exception):
    """What could not be done, and why."""


class StillRunning(ControlError):
    """Requests that had not ended in time; new ones are refused further on."""


@dataclasses.dataclass
class Outcome:
    changed: bool = False
    steps: list[str] = dataclasses.field(default_factory=list)
    in_flight: int | None = None


@contextlib.contextmanager
def alone(path: str = LOCK, wait: bool = True) -> Iterator[bool]:
    """Whether nobody else moves groups of this host meanwhile; ``wait`` is up to ``PATIENCE``.  Raises OSError."""
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    with open(path, "a", encoding="ascii") as stream:
        yield lock(stream, PATIENCE if wait else 0.0)


def of_group(group: str, check: bool) -> Control:
    """Of a group beside the host's own one, or of that one where the name is empty."""
    own = places.Places(group)
    return Control(check, own.config, own.draining, own.maintenance[0], own.maintenance)


def drained_restart(group: str, seconds: float) -> Callable[[], str] | None:
    """Restarts a group once its requests have ended, for :func:`ready.ensure`; None where nobody waits for them."""

    def restart() -> str:
        try:
            of_group(group, False).apply("restarted", "", seconds)
        except ControlError as error:
            return str(error)
        return ""

    return restart if seconds > 0 else None


@dataclasses.dataclass
class Control:
    """The doors to the head; a test replaces them."""

    check: bool = False
    config_path: str = serving.CONFIG
    draining: str = serving.DRAINING
    marker: str = serving.MAINTENANCE[0]
    markers: tuple[str, ...] = serving.MAINTENANCE
    runner: serving.Runner = serving.run
    connections: Callable[[str], int | None] = serving.connections
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    #: of the groups that share this host on demand
    lock: str = LOCK
    #: another group on this host
    other: Callable[[str, bool], Control] = of_group

    def __post_init__(self) -> None:
        self.outcome = Outcome()
        self.config = files.read_json(self.config_path)
        self.unit = str(self.config.get("unit", places.OWN.unit))
        self.engine = registry.engine_of(self.config)
        #: names of the groups that take this one's place on demand
        self.others = list(self.config.get("on_demand_groups") or {})
        #: whether it is one of those
        self.sleeps = bool(self.config.get("on_demand"))

    def _do(self, text: str) -> bool:
        """Whether to really do it."""
        self.outcome.changed = True
        self.outcome.steps.append(text)
        return not self.check

    def _write(self, path: str, content: str, text: str) -> None:
        if os.path.exists(path):
            return
        if self._do(text):
            try:
                serving.write_file(path, content)
            except OSError as error:
                raise ControlError(f"{path} cannot be written: {error.strerror}") from error

    def _remove(self, path: str, text: str) -> None:
        if os.path.exists(path) and self._do(text):
            try:
                os.unlink(path)
            except FileNotFoundError:
                return
            except OSError as error:
                raise ControlError(f"{path} cannot be removed: {error.strerror}") from error

    def _systemctl(self, *words: str) -> None:
        status, _out, err = self.runner(["systemctl", *words, self.unit], 120)
        if status != 0:
            raise ControlError(f"systemctl {' '.join(words)} {self.unit}: {err.strip() or f'status {status}'}")

    def _enabled(self) -> bool:
        status, out, _err = self.runner(["systemctl", "is-enabled", self.unit], 15)
        return status == 0 and out.strip() in ("enabled", "enabled-runtime")

    def state(self) -> observation.Unit:
        properties = serving.show(self.unit, self.runner)
        unit = serving.unit_state(properties)
        if unit is None:
            raise ControlError("systemd gives no answer on this host (systemctl show failed)")
        if properties.get("LoadState") == "not-found":
            raise ControlError(f"{self.unit} is not set up on this host; run the vllm_serve role first")
        return unit

    def apply(self, state: str, reason: str, drain_timeout: float) -> Outcome:
        """Bring the group into one of ``STATES``; one at a time does.  A start ends a drain of somebody else's.

        Raises ControlError, OSError."""
        if self.check:
            return self._apply(state, reason, drain_timeout)
        if state == "started":
            self._remove(self.draining, "take new requests again")
        with alone(self.lock if self.others or self.sleeps else f"{self.draining}.lock") as mine:
            if not mine:
                raise ControlError(
                    f"another command has been stopping or starting {self.unit} for {PATIENCE / 60:.0f} minutes; "
                    f"`fuser {self.lock} {self.draining}.lock` on the head names it"
                )
            return self._apply(state, reason, drain_timeout)

    def _apply(self, state: str, reason: str, drain_timeout: float) -> Outcome:
        # a host that was never set up has no unit, and nothing that sleeps
        if state == "awake" and serving.asleep(self.markers) is None:
            return self.outcome
        unit = self.state()
        if state in ("started", "awake"):
            self._start(unit)
        elif state == "stopped":
            if drain_timeout > 0 and unit.running:
                self._drain(drain_timeout)
            self._stop(unit, reason)
        elif state == "restarted":
            if drain_timeout > 0 and unit.running:
                self._drain(drain_timeout)
            self._restart()
        else:
            self._drain(drain_timeout)
        return self.outcome

    def _enable(self) -> None:
        """What is served now has to be served after a reboot too; a stop has taken that away."""
        if not self.sleeps and not self._enabled() and self._do(f"enable {self.unit}"):
            self._systemctl("--quiet", "enable")

    def _start(self, unit: observation.Unit) -> None:
        if self.sleeps:
            # until somebody asks for its model
            self._quiet_no_more()
            return
        self._stop_others()
        self._quiet_no_more()
        self._enable()
        if unit.active not in ("active", "activating", "reloading") and self._do(f"start {self.unit}"):
            self._systemctl("--no-block", "start")

    def _stop(self, unit: observation.Unit, reason: str) -> None:
        # the marker first, so that the watchdog does not take the stop for a failure
        self._write(self.marker, f"{reason}\n", f"maintenance: {reason}")
        if self._enabled() and self._do(f"disable {self.unit}"):
            self._systemctl("--quiet", "disable")
        if unit.active not in ("inactive", "failed") and self._do(f"stop {self.unit}"):
            self._systemctl("stop")

    def _restart(self) -> None:
        if self.sleeps and not self.state().running:
            self._quiet_no_more()
            return
        self._stop_others()
        self._enable()
        if self._do(f"restart {self.unit}"):
            self._systemctl("--no-block", "restart")
        self._quiet_no_more()

    def _quiet_no_more(self) -> None:
        for path in self.markers:
            self._remove(path, f"end of maintenance: {path}")
        self._remove(self.draining, "take new requests again")

    def _stop_others(self) -> None:
        for name in self.others:
            other = self.other(name, self.check)
            other.fall_asleep()
            self.outcome.changed |= other.outcome.changed
            self.outcome.steps += other.outcome.steps

    def fall_asleep(self, whatever: bool = False) -> None:
        """The requests of a group on demand end, and its engine; ``whatever`` runs, its engine does in the end."""
        if self.state().active in ("inactive", "failed"):
            return
        try:
            try:
                self._drain(GIVE_WAY)
            except ControlError:
                if not whatever:
                    raise
            if self._do(f"stop {self.unit}"):
                self._systemctl("stop")
        finally:
            self._remove(self.draining, "take new requests again")

    def give_way(self, to: str) -> None:
        """The host's own group ends for a while, with its requests; it goes on where they do not end in time."""
        self._write(self.markers[-1], f"{serving.ASLEEP}{to} serves\n", f"asleep for {to}")
        try:
            self._drain(GIVE_WAY)
        except ControlError:
            self._remove(self.draining, "take new requests again")
            self._remove(self.markers[-1], "awake")
            raise
        if self._do(f"stop {self.unit}"):
            self._systemctl("stop")
        # what has stopped takes no requests, and is as site.yml wants it
        self._remove(self.draining, "take new requests again")

    def wake(self) -> None:
        """A group on demand serves, until it falls asleep or the host reboots."""
        self._remove(self.draining, "take new requests again")
        if self._do(f"start {self.unit}"):
            self._systemctl("--no-block", "start")

    def come_back(self) -> None:
        """The host's own group serves again: the marker goes last, so that what is broken off here is done again."""
        if self._do(f"start {self.unit}"):
            self._systemctl("--no-block", "start")
        self._remove(self.draining, "take new requests again")
        self._remove(self.markers[-1], "awake")

    def _drain(self, seconds: float) -> None:
        """The front proxy refuses what is new from now on; what runs may end within the time given.

        It has ended when two rounds in a row see neither a request in the engine nor a connection to it: the front
        proxy may still be taking in a body, and the watchdog asks now and then.
        """
        self._write(self.draining, "", "take no new requests")
        if self.check:
            return
        socket = str(self.config.get("socket", ""))
        end = self.clock() + seconds
        quiet = 0
        while True:
            if not self.state().running:
                self.outcome.in_flight = 0
                return
            if not os.path.exists(self.draining):
                raise ControlError("somebody let new requests in again meanwhile; this drain ends and stops nothing")
            # before the question for the metrics, which is a connection too
            open_ones = self.connections(socket)
            page = serving.metrics(socket, engine=self.engine)
            gauges = watchdog_report.requests_in_flight(page, self.engine.metrics)
            known = [number for number in (gauges, open_ones) if number is not None]
            count = max(known) if known else None
            if count is not None:
                self.outcome.in_flight = count
            quiet = quiet + 1 if count == 0 else 0
            if quiet == _QUIET_ROUNDS:
                return
            if count != 0 and self.clock() >= end:
                left = "an unknown number of" if count is None else str(count)
                raise StillRunning(
                    f"{left} requests are still running after {seconds:.0f} s. No new ones are taken until "
                    "playbooks/start.yml runs; give a longer drain_timeout, or stop without waiting"
                )
            self.sleep(1.0)
