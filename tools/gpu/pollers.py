# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Browsers that keep the page open: each asks for its state every two seconds over a connection of its own."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

COUNT, EVERY = 10, 2.0
PATH = "/console/state"


@dataclass
class Looks:
    """How many were answered, how many were not, and what became of the last of those."""

    answers: int = 0
    failed: int = 0
    error: str = ""


@contextlib.contextmanager
def looking(address: str, port: int, key: str, count: int = COUNT, every: float = EVERY) -> Iterator[Looks]:
    looks, over, lock = Looks(), threading.Event(), threading.Lock()
    begun = time.monotonic()

    def browser(number: int) -> None:
        connection = http.client.HTTPConnection(address, port, timeout=10)
        turn = number / count
        while not over.wait(max(0.0, begun + turn * every - time.monotonic())):
            try:
                connection.request("GET", PATH, headers={"Authorization": f"Bearer {key}"})
                answer = connection.getresponse()
                body = answer.read()
                error = "" if answer.status == 200 and body.startswith(b"{") else f"{answer.status}: {body[:120]!r}"
            except (OSError, http.client.HTTPException) as problem:
                error = f"{type(problem).__name__}: {problem}"
                connection.close()
            with lock:
                looks.answers += not error
                looks.failed += bool(error)
                looks.error = error or looks.error
            turn += 1
        connection.close()

    browsers = [threading.Thread(target=browser, args=(number,), daemon=True) for number in range(count)]
    for one in browsers:
        one.start()
    try:
        yield looks
    finally:
        over.set()
        for one in browsers:
            one.join()
