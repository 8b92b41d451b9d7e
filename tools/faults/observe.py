# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients and observers: requests that are in flight all the time, and the watchdog's state as it changes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OFF = "off"
#: seconds between two rounds of the watchdog that are still no gap
FRESH = 10.0


@dataclass
class Request:
    """One completion as its client saw it."""

    begun: float
    ended: float | None = None
    ok: bool = False
    error: str = ""


@dataclass
class Endpoint:
    """The front proxy, and what to send it."""

    address: str
    port: int
    key: str
    model: str

    def complete(
        self,
        tokens: int,
        *,
        stream: bool,
        timeout: float,
        prompt: str = "hello",
        connected: Callable[[socket.socket], None] = lambda _socket: None,
    ) -> str:
        """Empty when the answer came whole, else what became of it. ``connected`` is given the connection's socket."""
        body = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "stream": stream,
            "ignore_eos": True,
        }
        text, error = self.exchange("/v1/completions", body, timeout, connected)
        return error or (stream_problem(text) if stream else answer_problem(text))

    def exchange(
        self, path: str, body: dict[str, Any], timeout: float, connected: Callable[[socket.socket], None]
    ) -> tuple[str, str]:
        """(what came with status 200, else what became of it)."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=timeout)
        try:
            connection.connect()
            assert connection.sock is not None
            connected(connection.sock)
            # a peer that lost its power says nothing; a client that wants to hear of it has to ask the line
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
                connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
            # keepalive is silent while something sent is unanswered
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 20_000)
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"}
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            return "", f"{type(error).__name__}: {error}"
        finally:
            connection.close()
        if answer.status != 200:
            return "", f"{answer.status}: {text.strip()[:120]}"
        return text, ""


def answer_problem(text: str) -> str:
    try:
        choices = json.loads(text).get("choices")
    except (ValueError, AttributeError):
        return f"no JSON: {text[:80]}"
    return "" if choices else f"no choice: {text[:80]}"


def stream_problem(text: str) -> str:
    """A stream is whole when it says so; one that broke off must not pass for a short answer."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    for item in data:
        if item.startswith('{"error"'):
            return item[:120]
    return "" if data and data[-1] == "[DONE]" else "the stream broke off"


class Clients:
    """Threads that keep requests in flight: long ones, plain and streamed, and a short one again and again."""

    def __init__(
        self,
        endpoint: Endpoint,
        long: int = 2,
        tokens: int = 300,
        pulse_timeout: float = 600.0,
        pulse_pause: float = 0.3,
    ) -> None:
        self.endpoint = endpoint
        self.pulse_pause = pulse_pause
        self.tokens = tokens
        self.pulse_timeout = pulse_timeout
        self.requests: list[Request] = []
        self.pulses: list[Request] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        #: the newest connection of each thread
        self._sockets: dict[int, socket.socket] = {}
        self._threads = [
            threading.Thread(target=self._long, args=(number % 2 == 1,), daemon=True) for number in range(long)
        ]
        self._threads.append(threading.Thread(target=self._pulse, daemon=True))

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        """End every request that is still open, and wait for the threads."""
        self._stop.set()
        end = time.monotonic() + 30
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < end:
            with self._lock:
                open_sockets = list(self._sockets.values())
            for one in open_sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            time.sleep(0.05)

    def _connected(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets[threading.get_ident()] = one

    def _one(self, kept: list[Request], tokens: int, stream: bool, timeout: float) -> Request:
        request = Request(time.monotonic())
        with self._lock:
            kept.append(request)
        error = self.endpoint.complete(tokens, stream=stream, timeout=timeout, connected=self._connected)
        request.error, request.ok = error, not error
        request.ended = time.monotonic()
        return request

    def _long(self, stream: bool) -> None:
        while not self._stop.is_set():
            # far longer than anything here may take: a client that gave up by itself would hide a hang
            if not self._one(self.requests, self.tokens, stream, 1800.0).ok:
                self._stop.wait(1.0)

    def _pulse(self) -> None:
        while not self._stop.is_set():
            self._stop.wait(self.pulse_pause if self._one(self.pulses, 1, False, self.pulse_timeout).ok else 0.5)

    def in_flight(self, moment: float) -> list[Request]:
        """Requests that were open at that moment."""
        with self._lock:
            known = [*self.requests, *self.pulses]
        return [one for one in known if one.begun <= moment and (one.ended is None or one.ended > moment)]

    def caught(self, since: float, until: float) -> list[Request]:
        """Requests that were open at ``since`` or begun until ``until``, without those that were answered in full."""
        with self._lock:
            known = [*self.requests, *self.pulses]
        return [one for one in known if one.begun <= until and (one.ended is None or one.ended > since) and not one.ok]

    def first_success(self, since: float) -> float | None:
        """When the first request that was begun after ``since`` and succeeded had ended."""
        with self._lock:
            known = [*self.requests, *self.pulses]
        ends = [one.ended for one in known if one.ok and one.begun >= since and one.ended is not None]
        return min(ends) if ends else None

    def failures(self, since: float, until: float) -> list[Request]:
        with self._lock:
            known = [*self.requests, *self.pulses]
        return [one for one in known if one.ended is not None and since <= one.ended <= until and not one.ok]


@dataclass
class Watch:
    """Reads the watchdog's state file on the head, through the host's root as this machine sees it."""

    leader: Callable[[], int | None]
    every: float = 0.2
    changes: list[tuple[float, str, str]] = field(default_factory=list)
    newest: dict[str, Any] = field(default_factory=dict)
    #: (moment, age in seconds) of every reading that was older than FRESH
    stale: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Watch:
        self.read()
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._stop.set()
        self._thread.join(5)

    def read(self) -> None:
        leader = self.leader()
        data: dict[str, Any] = {}
        if leader is not None:
            with contextlib.suppress(OSError, ValueError):
                data = json.loads(Path(f"/proc/{leader}/root/run/sparkthor/state.json").read_text(encoding="utf-8"))
        state, line = (str(data.get("state")), str(data.get("line"))) if data else (OFF, OFF)
        age = time.time() - float(data.get("updated") or 0.0) if data else 0.0
        if age > FRESH:
            self.stale.append((time.monotonic(), age))
        self.newest = data
        if not self.changes or self.changes[-1][1:] != (state, line):
            self.changes.append((time.monotonic(), state, line))

    def _follow(self) -> None:
        while not self._stop.wait(self.every):
            self.read()

    @property
    def state(self) -> str:
        return self.changes[-1][1] if self.changes else OFF

    def left(self, since: float, state: str = "serving") -> float | None:
        """Seconds after ``since`` until it was in another state."""
        for moment, name, _line in self.changes:
            if moment >= since and name != state:
                return moment - since
        return None

    def story(self, since: float) -> list[str]:
        """What happened, a line for each change, for whoever reads why."""
        return [f"{moment - since:7.1f} s  {line}" for moment, _state, line in self.changes if moment >= since]
