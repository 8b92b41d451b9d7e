# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a serving group that sleeps takes the place of the one that serves, and when that one comes back.  Pure.

The host's own group has no name here, as in :mod:`places`.  Seconds are of one clock that never goes back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

DAY = 24 * 60
#: seconds for which a request that was refused counts as a wish: its client asks again, or wants it no more
WISH = 60.0
#: seconds until a client asks again where nothing says how long it takes
SOON = 30.0
#: starts that ended by themselves before the first completion, after which a start has failed
RESTARTS = 2
_HOURS = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")


def hours(text: str) -> tuple[int, int] | None:
    """Minutes of the day of ``08:00-18:00``; the end may be of the next day.  Raises ValueError."""
    if not text:
        return None
    match = _HOURS.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is no range of hours; write it as 08:00-18:00")
    numbers = [int(word) for word in match.groups()]
    begin, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if begin == end:
        raise ValueError(f"{text!r} begins when it ends; name two times")
    return begin, end


@dataclass(frozen=True)
class Policy:
    """Of one group that is started on demand."""

    #: seconds without a request after which the group that serves gives way
    idle: float = 1800.0
    #: seconds between two switches
    every: float = 600.0
    #: minutes of the day, of the host's own time, in which it does not serve
    closed: tuple[int, int] | None = None
    #: seconds that its start may take
    patience: float = float("inf")

    def closed_for(self, minute: float) -> float:
        """Seconds until it may serve; 0 where it may now."""
        if self.closed is None:
            return 0.0
        begin, end = self.closed
        inside = begin <= minute < end if begin < end else minute >= begin or minute < end
        return (end - minute) % DAY * 60 if inside else 0.0


@dataclass(frozen=True)
class DemandSeen:
    """What is known of the groups of one host at one time."""

    now: float
    #: of the day, with its fraction
    minute: float
    #: the group that serves
    serves: str = ""
    #: whether its engine runs, answers, and how often it was started again before it ever did
    running: bool = True
    ready: bool = True
    restarts: int = 0
    #: its newest request, the ones that run, and when it took the place of another
    used: float = 0.0
    in_flight: int = 0
    since: float = float("-inf")
    #: by group when it was last asked for while it slept
    wishes: Mapping[str, float] = field(default_factory=dict)
    #: by group why a person keeps it as it is
    held: Mapping[str, str] = field(default_factory=dict)
    #: until when nothing is tried, because a switch failed
    paused: float = float("-inf")
    #: whether the group that serves has answered since it was started
    served: bool = True


@dataclass(frozen=True)
class Obstacle:
    why: str
    #: until it may be another
    seconds: float


@dataclass(frozen=True)
class Switch:
    to: str
    why: str
    failed: bool = False


def obstacle(policies: Mapping[str, Policy], seen: DemandSeen, group: str) -> Obstacle | None:
    """Why this group does not take the place of the one that serves now, of all reasons the one that lasts longest."""
    held = seen.held.get(group) or seen.held.get(seen.serves)
    if held:
        return Obstacle(held, SOON)
    # the host's own group goes before others: it waits neither for their idle time nor for any hour
    policy = policies[group or seen.serves]
    reasons = [
        Obstacle("the last switch failed", seen.paused - seen.now),
        Obstacle("the last switch was a short time ago", seen.since + policy.every - seen.now),
    ]
    if group:
        reasons.append(Obstacle("it does not serve at this hour", policy.closed_for(seen.minute)))
        reasons.append(Obstacle("the model that serves is in use", seen.used + policy.idle - seen.now))
        reasons.append(Obstacle("the model that serves answers requests", SOON if seen.in_flight else 0.0))
        reasons.append(Obstacle("the model that should serve is not ready", 0.0 if seen.ready else SOON))
    longest = max(reasons, key=lambda one: one.seconds)
    return longest if longest.seconds > 0 else None


def decide(policies: Mapping[str, Policy], seen: DemandSeen) -> Switch | None:
    """What is to be switched now, if anything."""
    if seen.serves:
        back = _back(policies, seen)
        if back or seen.held.get("") or seen.held.get(seen.serves):
            return back
    asked = [one for one, when in seen.wishes.items() if one != seen.serves and 0 <= seen.now - when <= WISH]
    # the host's own one first, then who asked first
    for group in sorted(asked, key=lambda one: (one != "", seen.wishes[one])):
        if obstacle(policies, seen, group) is None:
            return Switch(group, "it was asked for")
    return None


def _back(policies: Mapping[str, Policy], seen: DemandSeen) -> Switch | None:
    """Whether the host's own group comes back without being asked for."""
    if seen.held.get(""):
        return None
    if not seen.running:
        return Switch("", "its engine has ended", failed=not seen.served)
    policy = policies[seen.serves]
    if not seen.served and (seen.restarts >= RESTARTS or seen.now - seen.since > policy.patience):
        return Switch("", "its engine does not start", failed=True)
    if seen.held.get(seen.serves):
        return None
    if policy.closed_for(seen.minute):
        return Switch("", "it does not serve at this hour")
    idle = seen.now - max(seen.used, seen.since) >= policy.idle and not seen.in_flight
    return Switch("", "nobody asked for it") if idle and obstacle(policies, seen, "") is None else None
