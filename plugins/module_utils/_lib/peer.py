# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible as well:
# pylint: disable=ansible-bad-function
"""A question to somebody else that ends in time, however slowly the answer comes.

A socket's own limit begins anew with each byte, so whoever sends one a second holds the one who asked for as long as he
likes. Here one deadline holds for everything: connection, TLS, question, answer.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .deadline import Deadline

#: bytes of an answer, at most, unless its reader expects more
MOST = 1 << 20

#: what makes a connection before the deadline
Connect = Callable[[Deadline], socket.socket]


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: bytes


def tcp(address: str, port: int, tls: bool = False, verified: bool = False) -> Connect:
    """To an address. With ``tls`` any certificate will do unless it is to be ``verified``: say nothing secret then."""

    def connect(deadline: Deadline) -> socket.socket:
        plain = socket.create_connection((address, port), deadline.left())
        if not tls:
            return plain
        context = ssl.create_default_context()
        if not verified:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            # OpenSSL's handshake takes the socket's limit for all of it
            plain.settimeout(deadline.left())
            return context.wrap_socket(plain, server_hostname=address if verified else None)
        except BaseException:
            plain.close()
            raise

    return connect


def unix(path: str) -> Connect:
    """To a socket of this host."""

    def connect(deadline: Deadline) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(deadline.left())
            made.connect(path)
        except BaseException:
            made.close()
            raise
        return made

    return connect


def read_line(connection: socket.socket, deadline: Deadline, most: int = 65536) -> bytes:
    """One line with its end, byte for byte what is there: nothing behind it is taken.

    Raises OSError, and ConnectionError where the other side ends before the line does or says too much.
    """
    line = b""
    while not line.endswith(b"\n"):
        connection.settimeout(deadline.left())
        part = connection.recv(1)
        if not part or len(line) >= most:
            raise ConnectionError("no line came")
        line += part
    return line


class _Reader(io.RawIOBase):
    """What http.client reads a response from; each read may take what is left."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection, self._deadline = connection, deadline
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(self._deadline.left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Timed:
    """As much of a socket as http.client uses."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        self._connection, self._deadline = connection, deadline

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(self._deadline.left())
        self._connection.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._connection, self._deadline))

    def close(self) -> None:
        self._connection.close()


class Exchange(http.client.HTTPConnection):
    """One question over a connection that is made already; ``getresponse`` as http.client has it."""

    def __init__(self, connection: socket.socket, deadline: Deadline) -> None:
        super().__init__("localhost")
        self.sock: Any = _Timed(connection, deadline)


def opened(connect: Connect, seconds: float) -> Exchange:
    """For who reads an answer as it comes, and closes it. Raises OSError."""
    deadline = Deadline(seconds)
    return Exchange(connect(deadline), deadline)


def ask(
    connect: Connect,
    method: str,
    target: str,
    seconds: float,
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    most: int = MOST,
) -> Answer:
    """Status and body of an HTTP answer, all within ``seconds``; an answer with more than ``most`` bytes is none.

    Raises OSError (TimeoutError among them) or http.client.HTTPException.
    """
    deadline = Deadline(seconds)
    return talk(connect(deadline), deadline, method, target, body, headers, most)


def talk(
    connection: socket.socket,
    deadline: Deadline,
    method: str,
    target: str,
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    most: int = MOST,
) -> Answer:
    """The same over a connection that is made already; it is closed."""
    with contextlib.closing(Exchange(connection, deadline)) as exchange:
        exchange.request(method, target, body, dict(headers or {}))
        answer = exchange.getresponse()
        try:
            reply = answer.read(most + 1)
        except ValueError as error:
            raise http.client.HTTPException(f"a body that is none: {error}") from error
    if len(reply) > most:
        raise http.client.HTTPException(f"an answer of more than {most} bytes")
    if answer.length:
        raise http.client.IncompleteRead(reply, answer.length)
    return Answer(answer.status, reply)
