# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""How long an engine may go without a token while it has requests: by what its hosts show meanwhile.

One step of a large model takes a minute, and a compilation at the first long prompt takes several. The engine's
counters stand still in both, as they do in an engine that is wedged, and a restart costs a load of ten minutes. So the
hosts are looked at, and what they show decides between two limits, both planned from the model and its split:

* ``step_patience``: several times the longest step;
* ``wedge_bound``: what an engine gets of which nothing moves at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

#: a host's rank has ended, and the engine goes on: no step will end
ENDED = "ended"
#: a process of a rank is stopped: no step will end
STOPPED = "stopped"
#: something works that a wedged engine does not do: a compiler, a GPU at working power, a new line in the log
WORKING = "working"
#: CPUs or GPUs are busy, which is what a rank that waits in vain looks like too
BUSY = "busy"
#: no host could be asked
UNKNOWN = "unknown"
#: GPUs at full utilization and at the power of idling: kernels that wait for each other
WEDGED = "wedged"
#: nothing moves
STILL = "still"

#: cores below which a rank only has threads that wake up now and then; one that waits for a GPU turns in circles, if
#: only for a small share of a machine that others keep busy
_BUSY_CORES = 0.01
#: cores that even such threads use; less is a rank that the kernel does not run at all
_STILL_CORES = 0.0002
_BUSY_GPU = 50.0
#: times ``step_patience`` for an engine that surely works
WORKING_FACTOR = 5.0
#: seconds in the kernel after which a process is said to hang there
HANGS = 15.0
_FULL_GPU = 90.0


@dataclasses.dataclass(frozen=True)
class Signs:
    """What one host shows of its rank; None where it cannot be told there."""

    #: CPU time by second of the rank's processes since the sample before
    cores: float | None = None
    #: a process that SIGSTOP or a debugger holds
    stopped: bool | None = False
    #: percent and watts of the GPUs, of the busiest one
    utilization: float | None = None
    power: float | None = None
    #: nvcc, ptxas, cc1plus and the like that the rank started
    compilers: int = 0
    #: a new line in the rank's log
    spoke: bool = False
    #: all ranks of the host have ended
    ended: bool = False

    @classmethod
    def from_dict(cls, data: Any) -> Signs:
        """Of what another host sent: a value of a wrong type counts as one that cannot be told."""
        if not isinstance(data, Mapping):
            return cls()

        def number(key: str) -> float | None:
            value = data.get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e6:
                return float(value)
            return None

        return cls(
            number("cores"),
            data.get("stopped") is True,
            number("utilization"),
            number("power"),
            int(number("compilers") or 0),
            data.get("spoke") is True,
        )

    @property
    def known(self) -> bool:
        told = bool(self.stopped) or self.spoke or self.compilers > 0 or self.ended
        return told or self.cores is not None or self.utilization is not None


@dataclasses.dataclass(frozen=True)
class Verdict:
    kind: str
    #: for people: which host shows what
    text: str


def judge(signs: Mapping[str, Signs], working_power: float = 0.0) -> Verdict:
    """What the hosts show together. ``signs`` by host name.

    ``working_power``: watts below which a GPU at full utilization only waits; 0 where the platform's are not known, and
    then a busy GPU proves nothing.
    """
    known = {host: sign for host, sign in signs.items() if sign.known}
    for host, sign in known.items():
        if sign.ended:
            return Verdict(ENDED, f"the rank on {host} has ended")
    for host, sign in known.items():
        if sign.stopped:
            return Verdict(STOPPED, f"a process of the rank on {host} is stopped")
    for host, sign in known.items():
        works = _works(sign, working_power)
        if works:
            return Verdict(WORKING, f"{host} {works}")
    if not known:
        return Verdict(UNKNOWN, "no host can tell whether its rank works")
    waiting = [host for host, sign in known.items() if working_power and _waits(sign, working_power)]
    if len(waiting) == len(signs):
        return Verdict(WEDGED, "every GPU is busy at the power of waiting")
    # A pipeline's other stages turn in circles while they wait for one that is gone. So does that one's own GPU, if it
    # was waiting for another stage; one that may be stopped and gets no CPU time is not spared for it.
    circles = any((sign.cores or 0.0) >= _BUSY_CORES for sign in known.values())
    for host, sign in known.items():
        spared = (sign.utilization or 0.0) >= _BUSY_GPU and not (circles and sign.stopped is None)
        if sign.cores is not None and sign.cores < _STILL_CORES and not spared:
            return Verdict(STILL, f"the rank on {host} does nothing")
    busy = [
        host
        for host, sign in known.items()
        if (sign.cores or 0.0) >= _BUSY_CORES or (sign.utilization or 0.0) >= _BUSY_GPU
    ]
    if busy:
        return Verdict(BUSY, f"{busy[0]} is busy, with what cannot be told")
    return Verdict(STILL, "no rank does anything") if len(known) == len(signs) else Verdict(UNKNOWN, "too few can tell")


def _works(one: Signs, working_power: float) -> str:
    if one.compilers:
        return "compiles"
    if working_power and one.power is not None and (one.utilization or 0.0) >= _BUSY_GPU and one.power >= working_power:
        return f"computes ({one.utilization:.0f} % of the GPU at {one.power:.0f} W)"
    return "writes to its log" if one.spoke else ""


def _waits(one: Signs, working_power: float) -> bool:
    return (one.utilization or 0.0) >= _FULL_GPU and one.power is not None and one.power < working_power


def allowed(kind: str, step_patience: float, wedge_bound: float) -> float:
    """Seconds without a token after which an engine with requests is restarted."""
    if kind == WORKING:
        # not for ever: a compiler may hang, and a GPU may compute in a circle
        return step_patience * WORKING_FACTOR
    return wedge_bound if kind in (ENDED, STOPPED, STILL, WEDGED) else step_patience


@dataclasses.dataclass
class Stall:
    """Since when the engine has requests and counts nothing."""

    #: since when requests other than the watchdog's own are in flight; None = there are none
    work_since: float | None = None
    #: when the first of the looks in a row met such requests
    _first_look: float | None = None

    def note(self, now: float, in_flight: int | None, advanced: bool) -> None:
        """``in_flight`` is without the watchdog's own probe.

        A request whose client gave up is still in the engine, so the work stays until the counters move.
        """
        if advanced:
            self.work_since = self._first_look = None
        if not in_flight:
            self._first_look = None
        elif self._first_look is None:
            # a single look may have met somebody who only asked for the metrics
            self._first_look = now
        elif self.work_since is None:
            self.work_since = self._first_look

    def seconds(self, now: float, *since: float) -> float:
        """Without a token, after the newest of ``since``; 0 without work."""
        return 0.0 if self.work_since is None else max(0.0, now - max(self.work_since, *since))

    def covers(self, probe_started: float, slack: float) -> bool:
        """Whether a probe had to queue behind work. One that came first would have been answered at once."""
        return self.work_since is not None and self.work_since <= probe_started + slack


@dataclasses.dataclass
class Hanging:
    """Processes that no restart can end, because they wait in the kernel."""

    #: process id -> since when it has been there each time that it was looked at
    since: dict[int, float] = dataclasses.field(default_factory=dict)

    def note(self, now: float, in_the_kernel: Mapping[int, str]) -> str:
        """The one that hangs for the longest, in words; empty where each has been there for a moment only."""
        self.since = {pid: self.since.get(pid, now) for pid in in_the_kernel}
        if not self.since:
            return ""
        pid, since = min(self.since.items(), key=lambda item: item[1])
        if now - since < HANGS:
            return ""
        what = f"{in_the_kernel[pid]} (process {pid}) hangs in the kernel for {now - since:.0f} s"
        return f"{what}: a disk or device is silent"
