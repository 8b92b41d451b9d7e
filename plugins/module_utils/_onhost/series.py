# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What a start does after others shortly before it: it waits, and makes compiled code anew."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence

from .._lib import files

#: starts within this many seconds of one another count as one series of failures
SERIES_SECONDS = 120
FIRST_DELAY = 2.0
MAXIMUM_DELAY = 30.0


def series_delay(starts: Sequence[float], now: float) -> float:
    """Seconds to wait before this start.

    systemd's own back-off counts restarts since the last start by hand, so a host that lost its link five times in a
    year would wait the longest delay each time.  Here only starts shortly after one another count.
    """
    count, newer = 0, now
    for moment in sorted(starts, reverse=True):
        if newer - moment > SERIES_SECONDS:
            break
        count += 1
        newer = moment
    return 0.0 if count < 4 else min(MAXIMUM_DELAY, FIRST_DELAY * 2 ** (count - 4))


def note_series_start(run_dir: str, now: float) -> float:
    """Remember this start; how long to wait before it."""
    path = os.path.join(run_dir, "starts")
    starts: list[float] = []
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
        starts = [float(line) for line in stream if line.strip()]
    starts = [moment for moment in starts if moment <= now][-12:]
    delay = series_delay(starts, now)
    with contextlib.suppress(OSError):
        # a new file: of a container's unit the last one may be root's
        files.write_atomic(path, "".join(f"{moment:.1f}\n" for moment in [*starts, now + delay]))
    return delay


def remove_bytecode(folder: str, tell: Callable[[str], None]) -> None:
    """Remove the engine's compiled modules, or what stands in their place; Python makes them anew.

    A power loss, a full disk or a planted link may have spoiled them, and Python takes what it finds for good: every
    start would end the same way.
    """
    if os.path.lexists(folder):
        tell(f"{folder} is removed, in case compiled code in it is torn")
        with contextlib.suppress(OSError):
            files.remove(folder)
