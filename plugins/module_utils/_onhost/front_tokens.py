# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in its own unit:
# pylint: disable=ansible-bad-function
"""Which API keys used up their tokens of a minute or a month, counted from the lines of the front proxy.

nginx reads the answer in a file and refuses new requests.  It counts what answers say, and an estimate of nginx where
they do not, such as where the client broke off.  Where nothing can be counted, no key with a limit may go on: nginx
refuses it without that file, and without a new one of late.  The last seconds before a power loss are not counted.

What the absence of each file means:

- ``limits.json``: nobody's limits are known.  Nothing is said to nginx until they were read once; after that they hold.
- ``over.json`` (for nginx): nobody counts, and keys with a limit are refused.
- ``months.json``: nothing was ever counted here.  A file that cannot be read is no such one: it is put aside as
  ``months.json.bad``, and while that is there nobody knows what was used, so keys with a limit by month are refused.
  Who removes it says that counting may begin anew.
- ``usage.json`` (for those who show it): nothing is known.
"""

from __future__ import annotations

import argparse
import calendar
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from .._lib import files, foreign
from . import front_counts
from .notify import ALIVE, READY, notify

RUN = "/run/sparkthor-tokens"
LASTING = "/var/lib/sparkthor-tokens"
LIMITS = "/etc/sparkthor/front.good/limits.json"
MINUTE = 60.0
#: seconds between two writes of what a power loss must not take
SAVE = 5.0
#: seconds between two words to nginx, which counts one for 20 seconds (FRESH in roles/vllm_serve/files/tokens.js)
SAY = 5.0
MONTHS_KEPT = 13
#: bytes of all months, at most
MOST = 16 << 20

Limits = Mapping[str, Mapping[str, int]]


def month_of(now: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(now))


def end_of_month(now: float) -> float:
    year, month = time.gmtime(now)[:2]
    # timegm takes a thirteenth month for January
    return float(calendar.timegm((year + month // 12, month % 12 + 1, 1, 0, 0, 0)))


class Ledger:
    def __init__(self, months: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None) -> None:
        #: by month and key; by its name, so that a clock that was wrong for a while spoils no other month
        self.months: dict[str, dict[str, dict[str, int]]] = {}
        for month, used in ({} if months is None else months).items():
            self.months[month] = {key: dict(own) for key, own in used.items()}
        self._recent: dict[str, deque[tuple[float, int]]] = {}

    def take(self, datagram: bytes, now: float) -> bool:
        """Count a line of nginx; whether it was one that counts."""
        match = front_counts.parsed(datagram)
        # 499 is nginx's word for a client that went away
        if not match or match[3] not in ("200", "499"):
            return False
        key, tokens = match[1], int(match[5] or 0) + int(match[6] or 0)
        own = self.months.setdefault(month_of(now), {}).setdefault(key, {"tokens": 0, "unseen": 0})
        own["tokens"] += tokens
        own["unseen"] += match[5] is None or match[7] is not None
        self._recent.setdefault(key, deque()).append((now, tokens))
        return True

    def recent(self, key: str, now: float) -> list[tuple[float, int]]:
        """When and how many, in the last minute; what lies ahead is of a clock that was set back."""
        own = self._recent.get(key, deque())
        while own and not 0 <= now - own[0][0] < MINUTE:
            own.popleft()
        return [(when, tokens) for when, tokens in own if when <= now]

    def over(self, limits: Limits, now: float) -> dict[str, dict[str, Any]]:
        """By key the limit that it reached, and until when it may not go on."""
        used_up: dict[str, dict[str, Any]] = {}
        for key, allowance in limits.items():
            month, recent = self._of_month(key, now), self.recent(key, now)
            used = left = sum(tokens for _when, tokens in recent)
            if allowance.get("month") and month["tokens"] >= allowance["month"]:
                limit = {
                    "period": "month",
                    "limit": allowance["month"],
                    "used": month["tokens"],
                    "until": end_of_month(now),
                }
                used_up[key] = limit
            elif allowance.get("minute") and used >= allowance["minute"]:
                until = now
                for when, tokens in recent:
                    until, left = when + MINUTE, left - tokens
                    if left < allowance["minute"]:
                        break
                used_up[key] = {"period": "minute", "limit": allowance["minute"], "used": used, "until": until}
        return used_up

    def usage(self, limits: Limits, now: float) -> dict[str, dict[str, Any]]:
        """By key what it used and may use, for those who show it."""
        return {
            key: {
                "minute": sum(tokens for _when, tokens in self.recent(key, now)),
                "month": self._of_month(key, now)["tokens"],
                "unseen": self._of_month(key, now)["unseen"],
                "limits": dict(limits.get(key, {})),
            }
            for key in sorted({*limits, *self.months.get(month_of(now), {})})
        }

    def kept(self) -> dict[str, Any]:
        return {month: self.months[month] for month in sorted(self.months)[-MONTHS_KEPT:]}

    def _of_month(self, key: str, now: float) -> Mapping[str, int]:
        return self.months.get(month_of(now), {}).get(key, {"tokens": 0, "unseen": 0})


def aside(path: str) -> str:
    """Where counts that cannot be read wait for their owner."""
    return f"{path}.bad"


def loaded(path: str) -> Ledger:
    """The counts of an earlier run; what cannot be read is put aside."""
    try:
        found = foreign.parse_object(files.read_plain(path, MOST), MOST)
        return Ledger({month: {key: _counted(own) for key, own in used.items()} for month, used in found.items()})
    except FileNotFoundError:
        return Ledger()
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        print(f"{path} cannot be read and is put aside: {error}", file=sys.stderr, flush=True)
        os.replace(path, aside(path))
        return Ledger()


def _counted(own: Mapping[str, Any]) -> dict[str, int]:
    return {name: foreign.whole(own[name]) for name in ("tokens", "unseen")}


class Keeper:
    """The ledger and its files."""

    def __init__(self, run: str, lasting: str, limits: str) -> None:
        self._run, self._months, self._limits_file = run, os.path.join(lasting, "months.json"), limits
        self.ledger = loaded(self._months)
        self.limits: Limits = {}
        self._read: tuple[int, int] | None = None
        self._written: dict[str, str] = {}
        # whether they can be kept shows before the first answer
        self._unsaved, self._saved, self._said = True, 0.0, 0.0
        #: why the months cannot be kept: a start anew would count them from an earlier time
        self._problem = ""

    def read_limits(self) -> None:
        """Those in use; a reload of the front proxy brings others."""
        try:
            state = os.stat(self._limits_file)
            if self._read == (state.st_mtime_ns, state.st_ino):
                return
            with open(self._limits_file, encoding="utf-8") as stream:
                self.limits = json.load(stream)
            self._read = (state.st_mtime_ns, state.st_ino)
        except FileNotFoundError:
            # between the two renames of a reload, those that were read hold
            return
        except (OSError, ValueError) as error:
            print(f"{self._limits_file}: {error}", file=sys.stderr, flush=True)

    def take(self, datagram: bytes, now: float) -> None:
        self._unsaved |= self.ledger.take(datagram, now)

    def write(self, now: float, last: bool = False) -> None:
        if (self._unsaved or self._problem) and (last or not 0 <= now - self._saved < SAVE):
            self._save(now)
        if self._read is None:
            return
        over = self.ledger.over(self.limits, now)
        uncounted = [key for key, own in self.limits.items() if self._problem and own.get("month")]
        said = json.dumps({"over": over, "uncounted": uncounted})
        if self._written.get("over.json") != said or not 0 <= now - self._said < SAY:
            files.write_atomic(
                os.path.join(self._run, "over.json"), json.dumps({"at": now, "over": over, "uncounted": uncounted})
            )
            self._written["over.json"], self._said = said, now
        self._write("usage.json", self.ledger.usage(self.limits, now))

    def _save(self, now: float) -> None:
        """On a disk that takes nothing it goes on to count, and tries again; keys with a limit by month wait."""
        self._saved = now
        try:
            files.write_atomic(self._months, json.dumps(self.ledger.kept()), mode=0o600)
        except OSError as error:
            if self._problem != str(error):
                print(f"{self._months}: {error}; keys with tokens_per_month are refused", file=sys.stderr, flush=True)
            self._problem = str(error)
            return
        self._unsaved = False
        problem = ""
        if os.path.lexists(put_aside := aside(self._months)):
            problem = (
                f"{put_aside} is what was counted before, and cannot be read: keys with tokens_per_month are refused "
                f"until somebody says that their months begin anew: rm {put_aside}"
            )
            if self._problem != problem:
                print(problem, file=sys.stderr, flush=True)
        self._problem = problem

    def _write(self, name: str, content: Any) -> None:
        text = json.dumps(content)
        if self._written.get(name) != text:
            files.write_atomic(os.path.join(self._run, name), text)
            self._written[name] = text


def follow(keeper: Keeper, made: socket.socket, ended: threading.Event) -> None:
    """Count what comes, and a second after ``ended`` no more."""
    made.settimeout(1.0)
    told = 0.0
    with made:
        while not ended.is_set():
            with contextlib.suppress(socket.timeout):
                keeper.take(made.recv(4096), time.time())
            keeper.read_limits()
            keeper.write(time.time())
            if time.monotonic() - told > 10:
                notify(ALIVE)
                told = time.monotonic()
    keeper.write(time.time(), last=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host front-tokens", description="Limits of tokens by API key.")
    parser.add_argument("--run", default=RUN, help="default: %(default)s")
    parser.add_argument("--lasting", default=LASTING, help="default: %(default)s")
    parser.add_argument("--limits", default=LIMITS, help="default: %(default)s")
    given = parser.parse_args(argv)
    keeper = Keeper(given.run, given.lasting, given.limits)
    keeper.read_limits()
    keeper.write(time.time())
    made = front_counts.listen(os.path.join(given.run, "front.sock"))
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: ended.set())
    notify(READY)
    follow(keeper, made, ended)
    return 0
