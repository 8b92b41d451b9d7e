# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that acts as long as a run of Ansible lives, and once more when it has ended, even if it was killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

#: seconds between two questions whether the run goes on
ASK_EVERY = 0.5


def keep(run: int, every: float, beat: Callable[[], object], end: Callable[[], object]) -> int:
    """Start the process; it calls ``beat`` every so many seconds, and ``end`` after the process ``run``. Its id."""
    child = os.fork()
    if child:
        return child
    try:
        # Ctrl-C and the end of the task's own process are nothing to it
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for handle in (0, 1, 2):
            # whoever waits for the end of the run's output does not wait for this
            os.dup2(nowhere, handle)
        due = time.monotonic() + every
        while alive(run):
            if time.monotonic() >= due:
                due = time.monotonic() + every
                # a host that is away for a moment, in a reboot for instance, is asked again
                with contextlib.suppress(Exception):
                    beat()
            time.sleep(ASK_EVERY)
        end()
    finally:
        # nothing of the task's process is this one's to end
        os._exit(0)


def alive(process: int) -> bool:
    """Whether a process runs; another user's does as well, one that has ended and that nobody waited for does not."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        # no Linux, or gone just now: the next question tells
        return True
