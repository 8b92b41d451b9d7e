# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the watchdog sees: of the serving unit, of its engine, and of everything in one round."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from . import patience


@dataclasses.dataclass(frozen=True)
class Unit:
    """What systemd says of the serving unit."""

    active: str = "inactive"
    sub: str = "dead"
    invocation: str = ""
    main_pid: int = 0
    result: str = "success"
    restarts: int = 0
    #: second of the clock at which its process began; 0 = not known
    started: float = 0.0

    @property
    def running(self) -> bool:
        return self.active in ("active", "reloading") and self.main_pid > 0


@dataclasses.dataclass(frozen=True)
class Probe:
    """One finished one-token completion.

    ``kind`` is ok, timeout, refused, unready (503), http (another 5xx) or rejected (4xx).
    """

    started: float
    finished: float
    kind: str
    text: str = ""

    @property
    def ok(self) -> bool:
        return self.kind == "ok"

    @property
    def seconds(self) -> float:
        return max(0.0, self.finished - self.started)


@dataclasses.dataclass(frozen=True)
class Observation:
    """Everything seen in one round."""

    now: float
    unit: Unit
    #: address -> id of the raylet that is alive there; None = nobody could be asked
    ranks: Mapping[str, str] | None = None
    listening: bool = False
    probing: bool = False
    probe: Probe | None = None
    #: numbers that only the engine moves; None = not readable now
    counters: tuple[float, ...] | None = None
    #: requests of others, the watchdog's own probe left out; None = not known
    in_flight: int | None = None
    #: host -> what its rank shows; asked only while a token is overdue
    signs: Mapping[str, patience.Signs] | None = None
    progress: str = ""
    fraction: float | None = None
    #: changes whenever the log shows anything new
    mark: str = ""
    maintenance: str | None = None
    #: why a unit that is stopped is right so; empty where it is not
    asleep: str = ""
    #: where a load is, as ``loads.Watched.told`` says it; None while nothing loads
    load: Mapping[str, Any] | None = None
    draining: bool = False
    #: why this host is not to be the head any more
    superseded: str = ""
    #: whether what is served knows the answers to simple tasks, whether it is being asked, and what came of it
    answerable: bool = False
    asking: bool = False
    answers: Mapping[str, Any] | None = None
    #: processes that wait in the kernel now, by id; looked for while nothing is served or a token is overdue
    in_the_kernel: Mapping[int, str] = dataclasses.field(default_factory=dict)
