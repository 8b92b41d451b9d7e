# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible as well:
# pylint: disable=ansible-bad-function
"""How long to wait: the one place that asks again until its time is over. Needs nothing but the standard library."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable
from typing import IO, Any, TypeVar

_Answer = TypeVar("_Answer")


class Deadline:
    """The end of everything that belongs together."""

    def __init__(self, seconds: float, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or time.monotonic
        self._end = self._clock() + seconds

    def left(self) -> float:
        """Seconds that are left. Raises TimeoutError when none are."""
        left = self._end - self._clock()
        if left <= 0:
            raise TimeoutError("no answer in time")
        return left


def ask_until(
    ask: Callable[[], _Answer], good: Callable[[_Answer], object], seconds: float, interval: float = 0.5
) -> _Answer:
    """The first good answer, else the last one: asks at least once, and once more when the seconds are over."""
    end = time.monotonic() + seconds
    while True:
        answer = ask()
        left = end - time.monotonic()
        if good(answer) or left <= 0:
            return answer
        time.sleep(min(interval, left))


def wait_until(good: Callable[[], object], seconds: float, interval: float = 0.5) -> bool:
    """Whether it became so in time."""
    return bool(ask_until(good, bool, seconds, interval))


def lock(file: IO[Any] | int, seconds: float) -> bool:
    """Whether nobody else has the kernel's lock of an open file any more; it ends with the process that holds it."""

    def taken() -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    return wait_until(taken, seconds, 0.2)
