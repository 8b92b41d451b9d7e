# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Peers on the loopback that say something strange, or everything a byte at a time."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import Deadline

from tests.unit import trickle

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: "


@contextlib.contextmanager
def says(answer: bytes) -> Iterator[peer.Connect]:
    with trickle.server(lambda sock: sock.sendall(answer)) as port:
        yield peer.tcp("127.0.0.1", port)


def test_an_answer(tmp_path: Path) -> None:
    with says(HEAD + b"2\r\n\r\nhi") as connect:
        assert peer.ask(connect, "GET", "/", 20) == (200, b"hi")
    # one that ends with its connection, as HTTP 1.0 has it
    with says(b"HTTP/1.0 503 Away\r\n\r\nlater") as connect:
        assert peer.ask(connect, "POST", "/x", 20, "{}", {"A": "b"}) == (503, b"later")
    with says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n") as connect:
        assert peer.ask(connect, "GET", "/", 20).body == b"abc"
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        thread = threading.Thread(target=trickle.once, args=(listener, lambda sock: sock.sendall(HEAD + b"1\r\n\r\nu")))
        thread.start()
        assert peer.ask(peer.unix(path), "GET", "/", 20).body == b"u"
        thread.join()
    with pytest.raises(FileNotFoundError):
        peer.ask(peer.unix(path + "?"), "GET", "/", 20)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"9\r\n\r\nshort",
        HEAD + b"2000\r\n\r\n" + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200,
    ],
)
def test_an_answer_that_is_none(answer: bytes) -> None:
    with says(answer) as connect, pytest.raises((OSError, http.client.HTTPException)):
        peer.ask(connect, "GET", "/", 20, most=1000)


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        HEAD + b"1000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n",
    ],
)
def test_a_byte_now_and_then_does_not_hold_who_asks(before: bytes) -> None:
    with trickle.server(trickle.slowly(before)) as port:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            peer.ask(peer.tcp("127.0.0.1", port), "GET", "/", 0.5)
        assert time.monotonic() - began < 20


def test_nor_does_a_handshake_of_tls() -> None:
    # a record of TLS that is announced, and comes a byte at a time
    with trickle.server(trickle.slowly(b"\x16\x03\x03\x40\x00")) as port, pytest.raises(TimeoutError):
        peer.ask(peer.tcp("127.0.0.1", port, tls=True), "GET", "/", 0.5)


def test_nor_does_a_line() -> None:
    with trickle.server(trickle.slowly(b"")) as port:
        sock = peer.tcp("127.0.0.1", port)(Deadline(20))
        with sock, pytest.raises(TimeoutError):
            peer.read_line(sock, Deadline(0.5))


def test_a_line_is_read_to_its_end_and_no_further() -> None:
    def talk(sock: socket.socket) -> None:
        sock.sendall(b"one\ntwo")

    with trickle.server(talk) as port, peer.tcp("127.0.0.1", port)(Deadline(20)) as sock:
        assert peer.read_line(sock, Deadline(20)) == b"one\n"
        with pytest.raises(ConnectionError, match="no line came"):
            peer.read_line(sock, Deadline(20))
    with trickle.server(lambda sock: sock.sendall(b"x" * 20)) as port:
        sock = peer.tcp("127.0.0.1", port)(Deadline(20))
        with sock, pytest.raises(ConnectionError, match="no line came"):
            peer.read_line(sock, Deadline(20), 10)
