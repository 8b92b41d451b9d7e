# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What the watchdog on the head decides: a state machine without any input or output.

Every couple of seconds the program around it (``watchdog_service``) hands over what it sees — the unit, the ranks
that Ray holds for alive, the newest probe, the engine's counters, the newest log line — and gets back a state for
people, whether ``/health`` may say yes, whether to send a probe, and whether to restart the serving group.

The rules, in order of weight:

* Nothing is ever done in maintenance, nor to a unit that a person stopped.
* A rank that is lost, or that came back as another raylet, cannot be given back to a running engine: restart.
* A probe is a real one-token completion. Two failures in a row restart, but a probe that only waited while the
  engine's own counters advanced is no failure: a busy server is alive.
* With requests in flight, how long the counters may stand still depends on what the hosts show (``patience``).
* A load is left alone for as long as its log shows something new.
* Restarts that do not help come ever more slowly.
* After each start simple tasks are asked. Nonsense is said and no cause for a restart: the same kernels would load.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from . import answers, loads, patience
from .observation import Observation, Probe
from .state_words import (
    ASLEEP,
    DEGRADED,
    DRAINING,
    LOADING,
    MAINTENANCE,
    RESTARTING,
    SERVING,
    STARTING,
    STOPPED,
)

VERSION = 1
#: why the serving group was started anew; the labels of the restart counter
CAUSES = ("completion", "lost_rank", "load_stalled", "unit_failed", "engine_exited", "degraded", "restored")
#: latencies kept to know what a normal completion takes on this cluster
_KEPT_LATENCIES = 15
#: begins the id of a raylet whose own nobody could tell
NAMELESS = "?"
#: seconds without a token, with requests in flight, after which the hosts are asked what their ranks do
OVERDUE = 6.0
#: seconds that a new line in the head's log counts as a sign of life
_SPOKE = 30.0
#: seconds before the simple tasks are asked again that had no answer
_ASK_AGAIN = 300.0
#: share of the patience with a load that logs nothing, after which the hosts are asked as well; and how many times it
#: one gets that shows CPUs or GPUs at work
_QUIET_SHARE, _QUIET_FACTOR = 0.5, 2.5


@dataclasses.dataclass(frozen=True)
class Settings:
    """What an administrator may tune; every time is in seconds."""

    interval: float = 10.0
    deadline: float = 20.0
    first_deadline: float = 300.0
    #: of the second opinion after a failed completion; clients wait for the same engine meanwhile, and what they wait
    #: beyond the notice is this, the loop around it (2 s) and the stop
    confirm_deadline: float = 6.0
    failures: int = 2
    #: what an engine with requests gets without a token, and what it gets while nothing of it moves
    step_patience: float = 110.0
    wedge_bound: float = 60.0
    #: watts below which a GPU at full utilization only waits; 0 = not known
    working_power: float = 0.0
    #: an observation this long after the one before means that the host itself stood still
    standstill: float = 12.0
    rank_confirmations: int = 2
    load_stall: float = 1200.0
    backoff_first: float = 15.0
    backoff_max: float = 300.0
    stable_after: float = 120.0
    restart_patience: float = 90.0
    #: seconds that hosts may stay away before the smaller recipe is served without them; 0 = wait for ever
    degraded_after: float = 0.0
    #: how many hosts the smaller recipe is made for
    degraded_hosts: int = 0
    #: seconds that they have to be back before the whole group is started again
    restored_after: float = 15.0
    #: address of each rank's host -> its name; empty where no Ray tells who is there
    expected: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


@dataclasses.dataclass(frozen=True)
class Decision:
    """What follows: ``restart`` names a cause from CAUSES; ``kill`` says not to wait for an orderly stop.

    With the causes ``degraded`` and ``restored`` the group is started without the hosts in :attr:`Watchdog.without`.
    """

    state: str
    detail: str = ""
    healthy: bool = False
    probe_deadline: float | None = None
    restart: str | None = None
    kill: bool = False
    ask: bool = False

    @property
    def line(self) -> str:
        return f"{self.state}: {self.detail}" if self.detail else self.state


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    return f"{int(value // 60)} min {int(value % 60)} s"


class Watchdog:
    """What is remembered from one round to the next."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.invocation = ""
        self.served = False
        self.failures = 0
        self.failure_text = ""
        self.note = ""
        self.lost_in_a_row = 0
        self.baseline: dict[str, str] = {}
        self.counters: tuple[float, ...] | None = None
        self.advanced_at = 0.0
        self.stall = patience.Stall()
        self.stalled = 0.0
        #: seconds since a load has shown anything new
        self.quiet = 0.0
        self.verdict = patience.Verdict(patience.UNKNOWN, "")
        #: looks in a row at a rank that has ended
        self.ended_in_a_row = 0
        self.mark = ""
        self.mark_at = float("-inf")
        self.marks = 0
        self.progressed_at = 0.0
        self.probe_ended_at = float("-inf")
        self.success_at: float | None = None
        self.latencies: list[float] = []
        self.serving_since: float | None = None
        self.attempts = 0
        self.restarted_at: float | None = None
        self.restarting: str = ""
        self.restarting_text: str = ""
        self.restarts: dict[str, int] = {}
        self.observed_at: float | None = None
        self.stood_still_until = float("-inf")
        self.missing: tuple[str, ...] = ()
        #: addresses that the running configuration does without (degraded mode)
        self.without: tuple[str, ...] = ()
        #: address -> since when its host has been away, and since when it has been back
        self.away: dict[str, float] = {}
        self.back: dict[str, float] = {}
        #: whether the whole group was started again and is not stable yet, and how often in a row it never was
        self.restored = False
        self.relapses = 0
        #: what the simple tasks showed of this engine; empty until they were answered
        self.answers: dict[str, Any] = {}
        self.ask_from = float("-inf")
        self.hanging = patience.Hanging()

    # -- what survives a death of the watchdog itself ---------------------------------------------------------------

    _KEPT = (
        "invocation",
        "served",
        "baseline",
        "success_at",
        "latencies",
        "serving_since",
        "attempts",
        "restarted_at",
        "restarting",
        "restarting_text",
        "restarts",
        "progressed_at",
        "answers",
    )

    def dump(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._KEPT}

    def restore(self, data: Mapping[str, Any], now: float) -> None:
        """Take up what an earlier process of the same boot knew. Times of another boot would lie in the future."""
        times = [data.get(name) for name in ("success_at", "serving_since", "restarted_at", "progressed_at")]
        if any(isinstance(value, (int, float)) and value > now + 1 for value in times):
            return
        for name in self._KEPT:
            value = data.get(name)
            default = getattr(self, name)
            kinds = (int, float) if isinstance(default, float) else type(default)
            if value is not None and (default is None or isinstance(value, kinds)):
                setattr(self, name, value)

    # -- small questions ----------------------------------------------------------------------------------------

    @property
    def latency(self) -> float | None:
        """What a completion takes here, in the middle."""
        return statistics.median(self.latencies) if self.latencies else None

    @property
    def deadline(self) -> float:
        """The configured deadline, but never one that ordinary answers of this cluster would miss."""
        if not self.served:
            return max(self.settings.first_deadline, self.settings.deadline)
        usual = 4 * (self.latency or 0.0)
        if self.failures:
            return max(min(self.settings.confirm_deadline, self.settings.deadline), usual)
        return max(self.settings.deadline, usual)

    @property
    def overdue(self) -> bool:
        """Whether the engine owes somebody a token or a line, so that the hosts should be asked for signs of life."""
        return self.stalled >= OVERDUE if self.served else self.quiet >= _QUIET_SHARE * self.settings.load_stall

    @property
    def allowed(self) -> float:
        """Seconds without a token that the engine gets now."""
        own = self.settings
        return patience.allowed(self.verdict.kind, own.step_patience, own.wedge_bound)

    def backoff(self) -> float:
        """The pause to keep after the last restart before the next one."""
        if self.attempts <= 0:
            return 0.0
        # bounded: after some thousand attempts the power would be too large for a float
        doublings = min(self.attempts - 1, 64)
        return min(self.settings.backoff_first * 2.0**doublings, self.settings.backoff_max)

    def wait_before_restart(self, now: float) -> float:
        if self.restarted_at is None:
            return 0.0
        return max(0.0, self.restarted_at + self.backoff() - now)

    def _lost(self, ranks: Mapping[str, str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the hosts whose rank is gone, and of those where another raylet took its place."""
        if ranks is None:
            return (), ()
        wanted = {address: name for address, name in self.settings.expected.items() if address not in self.without}
        gone = tuple(name for address, name in wanted.items() if address not in ranks)
        other = tuple(
            name for address, name in wanted.items() if address in ranks and self._is_another(address, ranks[address])
        )
        return gone, other

    def _is_another(self, address: str, raylet: str) -> bool:
        """Whether the raylet is not the one that the engine began with."""
        before = self.baseline.get(address, raylet)
        if before.startswith(NAMELESS) and not raylet.startswith(NAMELESS):
            # the one that was there all the time has a name again
            self.baseline[address] = before = raylet
        return before != raylet

    # -- one round --------------------------------------------------------------------------------------------------

    def decide(self, seen: Observation) -> Decision:
        decision = self._decide(seen)
        hangs = self.hanging.note(seen.now, seen.in_the_kernel)
        if not hangs or (decision.healthy and not self.overdue):
            return decision
        return dataclasses.replace(decision, detail="; ".join(filter(None, (decision.detail, hangs))))

    def _decide(self, seen: Observation) -> Decision:
        now = seen.now
        unit = seen.unit
        late = self.observed_at is not None and now - self.observed_at > self.settings.standstill
        # once, until something moves: on a busy host every look may come late
        if late and self.stood_still_until <= max(self.advanced_at, self.success_at or 0.0):
            self.stood_still_until = now
        self.observed_at = now
        if unit.invocation != self.invocation:
            self._new_invocation(seen)
        self._note_progress(seen)
        gone, other = self._lost(seen.ranks)
        self.missing = gone
        self._note_presence(seen)
        if seen.probe is not None:
            self._judge(seen.probe)
        if seen.answers is not None:
            self.answers = dict(seen.answers)
            self.ask_from = now + _ASK_AGAIN

        if seen.superseded:
            return Decision(STOPPED, seen.superseded)
        if seen.asleep and unit.active in ("inactive", "failed"):
            self._forget_restart()
            return Decision(ASLEEP, seen.asleep)
        if seen.maintenance is not None:
            # Measured, never acted upon; one failure at most is taken along, so that its end is no ambush.
            self.lost_in_a_row = 0
            self.failures = min(self.failures, 1)
            due = unit.running and seen.listening and now - self.probe_ended_at >= self.settings.interval
            return Decision(
                MAINTENANCE,
                seen.maintenance or "the watchdog is told to keep quiet",
                healthy=unit.running and self.served and not self.failures and not seen.draining,
                probe_deadline=self.deadline if due and not seen.probing else None,
            )
        if unit.active == "inactive" and unit.result == "success":
            self._forget_restart()
            return Decision(STOPPED, "the serving unit was stopped")
        if unit.active == "failed" or (unit.active == "inactive" and unit.result != "success"):
            return self._restart(seen, "unit_failed", f"the serving unit failed ({unit.result})")
        if unit.active == "deactivating":
            return Decision(RESTARTING, self.restarting_text or "the engine is being stopped")
        smaller = self._other_size(seen)
        if smaller is not None:
            return smaller
        if not unit.running:
            return self._before_engine(seen, gone)
        if gone or other:
            return self._lost_rank(seen, gone, other)
        self.lost_in_a_row = 0
        if seen.ranks is not None and self.settings.expected and not self.baseline:
            self.baseline = {
                address: seen.ranks[address] for address in self.settings.expected if address not in self.without
            }
        if not self.served:
            return self._loading(seen)
        return self._serving(seen)

    def _note_progress(self, seen: Observation) -> None:
        now = seen.now
        advanced = False
        if seen.counters is not None:
            advanced = self.counters is not None and seen.counters != self.counters
            self.counters = seen.counters
        if advanced:
            self.advanced_at = self.progressed_at = now
        if seen.mark and seen.mark != self.mark:
            self.mark = seen.mark
            self.progressed_at = now
            self.marks += 1
            # the log was not read while tokens were counted: its first news may be old
            self.mark_at = now if self.marks > 1 else self.mark_at
        answered = seen.probe is not None and seen.probe.ok
        # an API server that does not tell its counters has not said that it has work either
        self.stall.note(now, seen.in_flight if seen.counters is not None else None, advanced or answered)
        self.stalled = self.stall.seconds(now, self.advanced_at, self.stood_still_until)
        self.quiet = now - self.progressed_at if seen.unit.running and not self.served else 0.0
        self.verdict = self._verdict(seen)
        self.ended_in_a_row = self.ended_in_a_row + 1 if self.verdict.kind == patience.ENDED else 0

    def _verdict(self, seen: Observation) -> patience.Verdict:
        """What the hosts show of an engine that owes a token."""
        if not self.overdue:
            self.marks = 0
            self.mark_at = float("-inf")
            return patience.Verdict(patience.UNKNOWN, "")
        signs = dict(seen.signs or {})
        if not self.served:
            # until an engine has its ranks, those of the one before are all that there were
            signs = {host: dataclasses.replace(one, ended=False) for host, one in signs.items()}
        found = patience.judge(signs, self.settings.working_power)
        # an engine whose rank ended says so in its log, and one whose worker is stopped logs each new request
        if found.kind not in (patience.ENDED, patience.STOPPED) and seen.now - self.mark_at < _SPOKE:
            return patience.Verdict(patience.WORKING, "the engine writes to its log")
        return found

    # -- degraded mode ------------------------------------------------------------------------------------------

    def _names(self, addresses: tuple[str, ...]) -> str:
        return ", ".join(self.settings.expected.get(address, address) for address in addresses)

    def _note_presence(self, seen: Observation) -> None:
        """Since when each host has been away or back. Nobody to ask is no news."""
        if seen.ranks is None or self.settings.degraded_after <= 0:
            return
        for address in self.settings.expected:
            here, gone = (self.back, self.away) if address in seen.ranks else (self.away, self.back)
            here.setdefault(address, seen.now)
            gone.pop(address, None)

    def _other_size(self, seen: Observation) -> Decision | None:
        """Whether the group is to be started smaller, or whole again; None = as it is."""
        if self.settings.degraded_after <= 0 or seen.ranks is None:
            return None
        now = seen.now
        # a host that does not survive the whole group has to be back for longer each time: meanwhile the smaller serves
        wait = self.settings.restored_after * 2 ** min(self.relapses, 12)
        if self.without and all(now - self.back.get(one, now) >= wait for one in self.without):
            names = self._names(self.without)
            self.without = ()
            self.restored = True
            return self._start_other_size(now, "restored", f"{names} is back: the whole group is started again", False)
        gone = tuple(one for one in self.settings.expected if one in self.away)
        long_enough = all(now - self.away[one] >= self.settings.degraded_after for one in gone)
        fits = len(self.settings.expected) - len(gone) == self.settings.degraded_hosts
        serves = self.served and set(gone) <= set(self.without)
        if not gone or set(gone) == set(self.without) or not (long_enough and fits) or serves:
            return None
        self.without = gone
        self.relapses += self.restored
        self.restored = False
        text = f"{self._names(gone)} stayed away for {_seconds(self.settings.degraded_after)}: serving without"
        return self._start_other_size(now, "degraded", text, True)

    def _start_other_size(self, now: float, cause: str, text: str, kill: bool) -> Decision:
        self.restarted_at = now
        self.restarting, self.restarting_text = cause, text
        self.serving_since = None
        self._count(cause)
        return Decision(RESTARTING, text, restart=cause, kill=kill)

    def _new_invocation(self, seen: Observation) -> None:
        """The unit was started anew, by us, by systemd or by a person: what was known of the engine is void."""
        by_systemd = seen.unit.restarts > 0 and not self.restarting and seen.maintenance is None
        if by_systemd and self.invocation and seen.unit.invocation:
            self._count("engine_exited")
        self.restarting = ""
        self.invocation = seen.unit.invocation
        self.served = False
        self.failures = self.lost_in_a_row = 0
        self.failure_text = self.note = ""
        self.baseline = {}
        self.counters = None
        self.advanced_at = 0.0
        self.stood_still_until = float("-inf")
        self.stall = patience.Stall()
        self.mark = ""
        self.mark_at = float("-inf")
        self.progressed_at = seen.now
        self.probe_ended_at = float("-inf")
        self.serving_since = None
        self.answers = {}
        self.ask_from = float("-inf")

    def _judge(self, probe: Probe) -> None:
        self.probe_ended_at = probe.finished
        if probe.ok:
            self.served = True
            self.failures = 0
            self.failure_text = self.note = ""
            self.success_at = probe.finished
            self.latencies = [*self.latencies, probe.seconds][-_KEPT_LATENCIES:]
            self.advanced_at = max(self.advanced_at, probe.finished)
            self._forget_restart()
            return
        if probe.kind == "rejected":
            # the server answered and dislikes our question: no restart would change its mind
            self.failures = 0
            self.failure_text = probe.text
            self.progressed_at = probe.finished
            return
        if probe.kind in ("refused", "unready") and not self.served:
            return  # a server on its way up (or down, which its unit tells better); some listen before they have loaded
        if probe.kind != "refused" and self.advanced_at > probe.started:
            self.failures = 0
            self.failure_text = ""
            self.note = f"busy: a completion waited {_seconds(probe.seconds)} while the engine's counters moved"
            return
        if probe.kind == "timeout" and self.stood_still_until > probe.started:
            # no memory, no CPU, a paused machine: who was not run himself cannot say that the engine hangs
            self.note = f"the host stood still while a completion waited {_seconds(probe.seconds)}"
            return
        if probe.kind == "timeout" and self._queued(probe):
            return  # judged by the whole stall, not by one probe in it
        self.failures += 1
        self.failure_text = probe.text or f"completion failed ({probe.kind})"

    def _queued(self, probe: Probe) -> bool:
        """Whether a probe waited behind others' requests in an engine that may be computing one long step.

        Not after a failure that had no such excuse, and not where a rank is known to be stopped or to have ended.
        """
        if self.failures or not self.served or self.verdict.kind in (patience.ENDED, patience.STOPPED):
            return False
        return self.stall.covers(probe.started, max(5.0, 4 * (self.latency or 0.0)))

    def _stalled_too_long(self, seen: Observation) -> Decision | None:
        """The note on a slow step, and the restart after one that nothing explains."""
        if not self.overdue:
            return None
        text = f"no token for {_seconds(self.stalled)} with requests in flight; {self.verdict.text}"
        if self.ended_in_a_row >= self.settings.rank_confirmations:
            return self._restart(seen, "lost_rank", text)
        if self.stalled > self.allowed:
            return self._restart(seen, "completion", text)
        ended = self.verdict.kind == patience.ENDED
        self.note = f"slow: {text}; restart {'if it stays so' if ended else f'after {_seconds(self.allowed)}'}"
        return None

    def _before_engine(self, seen: Observation, gone: tuple[str, ...]) -> Decision:
        """Between the start of the unit and that of the engine: the caches, the gate, or the pause after a failure."""
        self.progressed_at = seen.now
        if seen.unit.sub == "auto-restart":
            return Decision(RESTARTING, self.restarting_text or f"the engine exited ({seen.unit.result})")
        if gone:
            return Decision(DEGRADED, "waiting for " + ", ".join(gone))
        if self.restarting_text:
            return Decision(RESTARTING, self.restarting_text)
        return Decision(STARTING, "preparing the nodes")

    def _lost_rank(self, seen: Observation, gone: tuple[str, ...], other: tuple[str, ...]) -> Decision:
        text = "waiting for " + ", ".join(gone) if gone else "Ray was restarted on " + ", ".join(other)
        self.lost_in_a_row += 1
        if self.lost_in_a_row < self.settings.rank_confirmations:
            return Decision(DEGRADED, text)
        # The next start waits for the nodes before it costs anything; one that comes and goes is slowed down by the
        # starts that never served.
        return self._restart(seen, "lost_rank", f"lost rank on {', '.join(gone or other)}", pauses=False)

    def _loading(self, seen: Observation) -> Decision:
        now = seen.now
        share = "" if seen.fraction is None else f"{round(seen.fraction * 100)} %"
        parts = (share, seen.progress, loads.words(seen.load))
        text = " · ".join(part for part in parts if part) or "no line in the log yet"
        if self.failures >= self.settings.failures:
            return self._restart(seen, "completion", self.failure_text)
        works = self.verdict.kind in (patience.WORKING, patience.BUSY)
        if self.quiet > self.settings.load_stall * (_QUIET_FACTOR if works else 1.0):
            return self._restart(seen, "load_stalled", f"nothing new in the log for {_seconds(self.quiet)}")
        if self.failure_text:
            text = f"{text}; {self.failure_text}"
        probe = self.deadline if seen.listening and not seen.probing and now - self.probe_ended_at >= 2 else None
        return Decision(LOADING, text, probe_deadline=probe)

    def _serving(self, seen: Observation) -> Decision:
        now = seen.now
        if self.failures >= self.settings.failures:
            return self._restart(seen, "completion", self.failure_text)
        stalled = self._stalled_too_long(seen)
        if stalled is not None:
            return stalled
        # after a failure the second opinion is wanted at once
        pause = 0.0 if self.failures else self.settings.interval
        probe = self.deadline if not seen.probing and now - self.probe_ended_at >= pause else None
        if self.failures:
            self.serving_since = None
            text = f"{self.failure_text} ({self.failures} of {self.settings.failures})"
            return Decision(DEGRADED, text, probe_deadline=probe)
        if self.failure_text:
            self.serving_since = None
            return Decision(DEGRADED, self.failure_text, probe_deadline=probe)
        if self.serving_since is None:
            self.serving_since = now
        if now - self.serving_since >= self.settings.stable_after:
            self.attempts = 0
            if not self.without:
                self.restored, self.relapses = False, 0
        if seen.draining:
            return Decision(DRAINING, "no new requests are taken", probe_deadline=probe)
        ask = seen.answerable and not seen.asking and not self.answers and now >= self.ask_from
        smaller = f"serving the smaller recipe without {self._names(self.without)}" if self.without else ""
        text = "; ".join(filter(None, (smaller, self.note, answers.problem(self.answers))))
        return Decision(DEGRADED if smaller else SERVING, text, healthy=True, probe_deadline=probe, ask=ask)

    # -- restarts ---------------------------------------------------------------------------------------------------

    def _forget_restart(self) -> None:
        self.restarting = self.restarting_text = ""

    def _count(self, cause: str) -> None:
        self.restarts[cause] = self.restarts.get(cause, 0) + 1

    def _restart(self, seen: Observation, cause: str, text: str, pauses: bool = True) -> Decision:
        now = seen.now
        # asked for already: systemd needs this long to stop and start it; after that it is asked again
        patience = 10.0 if seen.unit.active == "failed" else self.settings.restart_patience
        if self.restarting and self.restarted_at is not None and now - self.restarted_at < patience:
            return Decision(RESTARTING, self.restarting_text)
        if pauses:
            pause = self.wait_before_restart(now)
            if pause > 0:
                return Decision(DEGRADED, f"{text}; next restart in {_seconds(pause)}")
            self.attempts += 1
        self.restarted_at = now
        self.restarting = cause
        self.restarting_text = text
        self.serving_since = None
        self._count(cause)
        # An engine that does not answer does not stop politely either, and one that lost a rank never answers again.
        return Decision(RESTARTING, text, restart=cause, kill=cause in ("completion", "lost_rank", "load_stalled"))
