# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must hold whatever is laid, judged by the history of a run.  Nothing here touches a host."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tools.faults.observe import FRESH, Request

#: a request has its answer or its error by then: the watchdog's patience with this model, and one restart
DEADLINE = 300.0
#: of the watchdog with these models, and its looks
PATIENCE = 120.0
#: pauses before starts and restarts that a series of faults has made longer (10 s, 20 s, 40 s …)
BACKOFF = 120.0
#: how an answer begins that is not the reference
WRONG = "wrong answer"
#: errors that prove that nothing is served; a timeout may be the client's own link
_REFUSED = re.compile(r"50[0-9]:|ConnectionRefusedError|ConnectionResetError|RemoteDisconnected")


@dataclass
class Laid:
    """One round as it came to be, in seconds since the run began."""

    number: int
    what: list[str]
    began: float
    #: when every host, link and disk was as it should be again, and a play that had not finished was run again
    whole: float = 0.0
    #: when it served again; None = it did not
    healed: float | None = None
    #: what is left that should not be: a rank too many, a failed unit, a play that failed
    troubles: list[str] = field(default_factory=list)


@dataclass
class History:
    """What was seen.  Moments are seconds since the run began."""

    requests: list[Request] = field(default_factory=list)
    #: completions of one token, one after the other
    pulses: list[Request] = field(default_factory=list)
    #: (moment, state, line), as it changed
    states: list[tuple[float, str, str]] = field(default_factory=list)
    #: (moment, age in seconds) where the state file was older than it may be
    stale: list[tuple[float, float]] = field(default_factory=list)
    #: (from, to) in which the head or its watchdog was away, and nobody can ask the state to be true
    blind: list[tuple[float, float]] = field(default_factory=list)
    rounds: list[Laid] = field(default_factory=list)
    #: what went wrong outside of a round
    troubles: list[str] = field(default_factory=list)
    #: where a secret shows
    leaks: list[str] = field(default_factory=list)
    #: of the last of two plays at the end: its exit status, and changed tasks by host
    last_play: tuple[int, dict[str, int]] | None = None
    ended: float = 0.0
    #: it was interrupted: what had not come to its end yet is no finding
    cut: bool = False


def spells(pulses: Sequence[Request]) -> Iterator[tuple[bool, float, float, str]]:
    """(whether they were answered, since, until, the last error) of pulses that ended alike one after the other.

    Of the time that one took nothing is known but its end, so a slow one ends the spell before it.
    """
    kind: bool | None = None
    since = until = 0.0
    error = ""
    for spell in pulses:
        told = spell.ended is not None and (spell.ok or _REFUSED.match(spell.error) is not None)
        now = spell.ok if told else None
        if now is not kind or (spell.ended or 0.0) - until > FRESH:
            if kind is not None:
                yield kind, since, until, error
            kind, since = now, spell.ended or 0.0
        until, error = spell.ended or until, spell.error
    if kind is not None:
        yield kind, since, until, error


def untrue(history: History) -> list[str]:
    """Where the state said otherwise than the clients saw, and for how long."""
    lies = []
    ends = [moment for moment, _state, _line in history.states[1:]] + [history.ended]
    for answered, since, until, error in spells(history.pulses):
        for (begun, state, line), end in zip(history.states, ends, strict=True):
            low, high = max(since, begun), min(until, end)
            if (state == "serving") is answered or high - low <= FRESH or _blind(history, low, high):
                continue
            saw = "completions came through" if answered else f"clients got {error[:60]}"
            lies.append(f"at {low:.0f} s: the state said {line!r} for {high - low:.0f} s while {saw}")
    return lies


def _blind(history: History, low: float, high: float) -> bool:
    return any(since < high and low < until for since, until in history.blind)


def stale(history: History) -> list[str]:
    ages = [(moment, age) for moment, age in history.stale if not _blind(history, moment - age, moment)]
    if not ages:
        return []
    moment, age = max(ages, key=lambda one: one[1])
    return [f"at {moment:.0f} s: the state file was {age:.0f} s old"]


def wrong(history: History) -> list[str]:
    return [f"at {one.begun:.0f} s: {one.error}" for one in _all(history) if one.error.startswith(WRONG)]


def hanging(history: History, deadline: float) -> list[str]:
    requests = []
    for one in _all(history):
        end = history.ended if one.ended is None else one.ended
        if end - one.begun > deadline:
            requests.append(
                f"a request of {one.begun:.0f} s was open for {end - one.begun:.0f} s, allowed {deadline:.0f} s"
            )
    return requests


def _all(history: History) -> list[Request]:
    return sorted([*history.requests, *history.pulses], key=lambda one: one.begun)


def unhealed(history: History, limit: float) -> list[str]:
    troubles = list(history.troubles)
    for each in history.rounds:
        where = f"round {each.number}"
        troubles += [f"{where}: {trouble}" for trouble in each.troubles]
        if each.healed is None and history.cut and (not each.whole or history.ended - each.whole <= limit):
            continue
        if each.healed is None:
            troubles.append(f"{where}: did not serve again ({'; '.join(each.what)})")
        elif each.healed - each.whole > limit:
            took = each.healed - each.whole
            troubles.append(f"{where}: served again {took:.0f} s after the world was whole, allowed {limit:.0f} s")
    return troubles


def last_play(history: History) -> list[str]:
    if history.last_play is None and history.cut:
        return []
    if history.last_play is None:
        return ["the plays at the end were not run"]
    rc, changed = history.last_play
    if rc != 0 or not changed:
        return [f"the second site.yml at the end ended with {rc}"]
    return [f"the second site.yml at the end changed {count} on {host}" for host, count in changed.items() if count]


def findings(history: History, limit: float, deadline: float = DEADLINE) -> list[str]:
    """Everything that did not hold.

    ``limit`` is what serving again may take once the world is whole, ``deadline`` how long a request may be open.
    """
    found = []
    if not any(one.ok for one in history.pulses):
        found.append("no completion came through: nothing was proved")
    found += wrong(history) + hanging(history, deadline) + untrue(history) + stale(history) + unhealed(history, limit)
    found += [f"a secret shows: {place}" for place in history.leaks]
    return found + last_play(history)
