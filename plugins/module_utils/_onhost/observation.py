# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is seen of the serving unit and of its engine."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Unit:
    """What systemd says of the serving unit."""

    active: str = "inactive"
    sub: str = "dead"
    invocation: str = ""
    main_pid: int = 0
    result: str = "success"
    restarts: int = 0

    @property
    def running(self) -> bool:
        return self.active in ("active", "reloading") and self.main_pid > 0


@dataclasses.dataclass(frozen=True)
class Probe:
    """One finished one-token completion: ``kind`` is ok, timeout, refused, http (5xx) or rejected (4xx)."""

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
