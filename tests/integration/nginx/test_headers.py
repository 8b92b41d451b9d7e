# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody without a key can do to others by headers: large ones, many, slow ones, on very many connections.
And by bodies, where no key is asked for."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.nginx.test_front import KEY, Front, running
from tests.integration.nginx.test_hostile import Nginx, healthy
from tests.unit.plugins.plugin_utils._plan.test_door import of_group

#: connections of the flood, bytes of a header that nginx holds for each of them, and MiB for all other that it does
MANY, HELD, OTHER = 3000, 36 << 10, 60
#: nginx refuses more in one line, and more in all
LINE, ALL = 8 << 10, 32 << 10


def asked(found: Front, head: bytes) -> int:
    """The status by which a head is answered; 0 where nginx closes the connection without a word."""
    with socket.create_connection(("127.0.0.1", found.port), timeout=300) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(head)
        with contextlib.suppress(OSError):
            answer = connection.recv(4096)
            return int(answer.split()[1]) if answer else 0
        return 0


def key(*more: str, path: str = "/v1/models", method: str = "GET") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {KEY}", *more, "", "")).encode()


HEADS = {
    "a long header": (key(f"X: {'x' * (4 * LINE)}"), (400,)),
    "a long path": (key(path=f"/v1/{'x' * (4 * LINE)}"), (414,)),
    "a long key": (key(f"x-api-key: {'x' * (4 * LINE)}"), (400,)),
    "many headers": (key(*(f"X-{number}: {'x' * 100}" for number in range(20_000))), (400, 0)),
    "empty headers": (key(*(f"{number}:" for number in range(100_000))), (400, 0)),
    "a header without end": (key()[:-2] + b"X: " + b"x" * (64 << 20), (400, 0)),
    "two lengths": (key("Content-Length: 2", "Content-Length: 3", method="POST"), (400,)),
    "a length and chunks": (
        key("Content-Length: 2", "Transfer-Encoding: chunked", method="POST") + b"0\r\n\r\n",
        (400,),
    ),
    "two hosts": (key("Host: y"), (400,)),
    "a path with the end of a text": (key(path="/v1/%00"), (400,)),
    "no path": (key(path="*", method="OPTIONS"), (400,)),
    "a tunnel": (key(path="x:443", method="CONNECT"), (400,)),
    "another version": (key().replace(b"HTTP/1.1", b"HTTP/9.9"), (505, 400)),
}


@pytest.mark.parametrize("has_door", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_refused_or_answered_and_takes_no_memory(
    tmp_path: Path, variables: dict[str, Any], name: str, has_door: bool
) -> None:
    head, statuses = HEADS[name]
    with running(tmp_path, of_group(variables, "c") if has_door else variables) as found:
        nginx = Nginx()
        memory = nginx.memory()
        assert asked(found, head) in statuses
        assert nginx.memory() - memory < OTHER
        healthy(found)


@pytest.mark.parametrize("name", ["a path with the end of a text", "no path", "a tunnel", "two lengths"])
def test_a_head_that_nobody_can_read_is_refused_in_words(tmp_path: Path, variables: dict[str, Any], name: str) -> None:
    with running(tmp_path, variables) as found, socket.create_connection(("127.0.0.1", found.port), 60) as client:
        client.sendall(HEADS[name][0])
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"message": "Malformed request."' in answer


@pytest.mark.parametrize("has_door", [False, True])
def test_the_answer_to_what_cannot_be_read_is_nobodys_path(
    tmp_path: Path, variables: dict[str, Any], has_door: bool
) -> None:
    with running(tmp_path, of_group(variables, "c") if has_door else variables) as found:
        assert asked(found, key(path="/malformed")) == 404


@pytest.mark.parametrize("path", ["/health", f"/health?nonce={'a' * 32}", "/health/group/big"])
@pytest.mark.parametrize("head", ["Content-Length: 60000000", "Transfer-Encoding: chunked"])
def test_a_question_about_health_has_no_body(tmp_path: Path, variables: dict[str, Any], path: str, head: str) -> None:
    body = b"x" * 1000 if head.startswith("Content") else b"2\r\nxx\r\n"
    question = f"GET {path} HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode()
    with running(tmp_path, of_group(variables, "c") if "group" in path else variables) as found:
        # before the body has ended: nginx would wait for the rest
        assert asked(found, question + body) == 413


@contextlib.contextmanager
def open_files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # root, who runs these tests, may raise the upper limit as well
    most = hard if hard == resource.RLIM_INFINITY else max(hard, count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_very_many_slow_heads_end_by_themselves_and_others_are_answered(
    tmp_path: Path, variables: dict[str, Any], record_property: Any
) -> None:
    held = key(*(f"X-{number}: {'x' * (LINE - 100)}" for number in range(3)))[:-2] + b"X: "
    assert len(held) < ALL
    with (
        open_files(2 * MANY + 200),
        running(tmp_path, of_group(variables, "c")) as found,
        contextlib.ExitStack() as all_,
    ):
        nginx = Nginx()
        before = nginx.memory()
        slow = [all_.enter_context(socket.create_connection(("127.0.0.1", found.port), 60)) for _one in range(MANY)]
        for connection in slow:
            connection.sendall(held)
            connection.setblocking(False)
        seconds = [healthy(found) for _number in range(5)]
        # a completion with a key as well
        assert found.ask("/v1/whole")[0] == 200
        waiting = select.poll()
        left = {connection.fileno(): connection for connection in slow}
        for number in left:
            waiting.register(number, select.POLLIN | select.POLLHUP)
        until = time.monotonic() + 120
        while left and time.monotonic() < until:
            for number, _event in waiting.poll(1000):
                waiting.unregister(number)
                del left[number]
            # a byte now and then does not help: the time is that of the whole head
            for connection in list(left.values())[:50]:
                with contextlib.suppress(OSError):
                    connection.send(b"x")
        assert not left, "heads that never end were kept"
        took = nginx.memory() - before
        record_property("flood", f"{took} MiB for {MANY} heads; /health {max(seconds):.3f} s at most")
        assert took < MANY * HELD // (1 << 20) + OTHER
        healthy(found)
