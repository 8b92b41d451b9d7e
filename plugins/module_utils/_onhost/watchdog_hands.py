# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the watchdog's unit:
# pylint: disable=ansible-bad-function

"""What the watchdog needs root for, and nothing else.

The watchdog reads what others say: the engine, Ray, other hosts, clients, the engine's log.  So it is a process of a
user without rights, and its parent, which is root and reads none of that, does for it what is on a short list: ask and
restart its units, read their journal, write its files, read the cluster's token.
The two speak over a socket pair, one JSON line each way.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import json
import os
import pwd
import re
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from . import former_head, serving
from .notify import ALIVE, READY, notify

#: of one request; the state of a group is a few kilobytes
LINE_LIMIT = 4_000_000
RAY_UNIT = "sparkthor-ray.service"


class Hands:
    """Does it itself: in a test, and as root behind :class:`Guard`."""

    def run(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
        return serving.run(argv, seconds)

    def write(self, path: str, text: str) -> None:
        serving.write_file(path, text)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def token(self) -> str:
        return former_head.read_former_token()

    def notify(self, text: str) -> None:
        notify(text)


def commands(unit: str) -> set[tuple[str, ...]]:
    """All that is ever run, but for the journal."""
    return {
        tuple(serving.show_command(unit)),
        *(tuple(argv) for argv in serving.restart_commands(unit, kill=True)),
        ("systemctl", "--no-block", "try-restart", RAY_UNIT),
    }


def is_journal(argv: Sequence[str], unit: str) -> bool:
    """Whether it reads the newest lines of this unit, or of one run of it."""
    run, lines = (re.search(expression, " ".join(argv)) for expression in (r"=([0-9a-f]{32})$", r" --lines=(\d{1,4}) "))
    return lines is not None and list(argv) == serving.journal_command(unit, run[1] if run else "", int(lines[1]))


class Guard:
    """The parent: answers what is on the list, and refuses the rest."""

    def __init__(self, hands: Hands, unit: str, paths: Iterable[str]) -> None:
        self.hands = hands
        self.unit = unit
        self.commands = commands(unit)
        self.paths = frozenset(paths)

    def _refuse(self, what: object) -> OSError:
        return OSError(errno.EPERM, f"the watchdog's root part does not do that: {str(what)[:200]}")

    def answer(self, request: Mapping[str, Any]) -> Any:
        """What the request comes to.  Raises OSError."""
        what = request.get("do")
        if what == "run":
            argv = [str(word) for word in request.get("argv") or ()]
            if tuple(argv) not in self.commands and not is_journal(argv, self.unit):
                raise self._refuse(argv)
            return self.hands.run(argv, min(60.0, float(request.get("seconds") or 30.0)))
        if what in ("write", "remove"):
            path = request.get("path")
            if path not in self.paths:
                raise self._refuse(path)
            return self.hands.write(path, str(request.get("text"))) if what == "write" else self.hands.remove(path)
        if what == "notify" and request.get("text") in (READY, ALIVE):
            return self.hands.notify(request["text"])
        if what == "token":
            return self.hands.token()
        raise self._refuse(what)

    def serve(self, door: socket.socket) -> None:
        """Until the other side is gone, or says what nobody understands."""
        with door.makefile("rwb") as stream:
            while line := stream.readline(LINE_LIMIT):
                try:
                    answer: dict[str, Any] = {"value": self.answer(json.loads(line))}
                except OSError as error:
                    answer = {"error": error.strerror or str(error), "errno": error.errno or errno.EIO}
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()


class Remote(Hands):
    """The child's side of :class:`Guard`."""

    def __init__(self, door: socket.socket) -> None:
        super().__init__()
        self._stream = door.makefile("rwb")
        self._lock = threading.Lock()

    def _ask(self, what: str, **more: Any) -> Any:
        with self._lock:
            self._stream.write(json.dumps({"do": what, **more}).encode() + b"\n")
            self._stream.flush()
            line = self._stream.readline()
        answer = json.loads(line) if line else {"error": "the watchdog's root part is gone", "errno": errno.EPIPE}
        if "error" in answer:
            raise OSError(answer["errno"], answer["error"])
        return answer["value"]

    def run(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
        status, out, err = self._ask("run", argv=argv, seconds=seconds)
        return status, out, err

    def write(self, path: str, text: str) -> None:
        self._ask("write", path=path, text=text)

    def remove(self, path: str) -> None:
        self._ask("remove", path=path)

    def token(self) -> str:
        return str(self._ask("token"))

    def notify(self, text: str) -> None:
        self._ask("notify", text=text)


def become(user: str, groups: Iterable[str]) -> None:
    """Give root up for good.  Raises KeyError for a user or group that is not there."""
    account = pwd.getpwnam(user)
    os.setgroups([grp.getgrnam(name).gr_gid for name in groups])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)


_Side = TypeVar("_Side", bound=Remote)


def split(guard: Guard, user: str, groups: Iterable[str], side: type[_Side]) -> _Side | None:
    """Two processes out of one: the child without rights gets its ``side``, root gets None when that has ended."""
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        theirs.close()
        become(user, groups)
        return side(ours)
    ours.close()
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        guard.serve(theirs)
    theirs.close()
    # systemd ends what is left of the child, and starts both anew
    return None
