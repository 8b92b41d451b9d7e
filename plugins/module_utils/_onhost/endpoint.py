# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the serving units:
# pylint: disable=ansible-bad-function
"""Where an engine listens on its host: a UNIX socket, or a port of the loopback address.

serving.json has it as one text: a path, or ``ADDRESS:PORT``.
"""

from __future__ import annotations

import dataclasses
import socket
import struct

from .._lib import peer

UNIX_TABLE = "/proc/net/unix"
TCP_TABLE = "/proc/net/tcp"
#: states in /proc/net/tcp
_ESTABLISHED, _LISTENS = "01", "0A"


def _rows(table: str, fields: int) -> list[list[str]] | None:
    """The table's rows by column; None where it cannot be read."""
    try:
        with open(table, encoding="utf-8", errors="replace") as stream:
            return [line.rstrip("\n").split(None, fields - 1) for line in stream]
    except OSError:
        return None


def _accepts(family: int, address: str | tuple[str, int], seconds: float) -> bool:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(seconds)
        try:
            probe.connect(address)
        except OSError:
            return False
    return True


@dataclasses.dataclass(frozen=True)
class UnixEndpoint:
    """A socket's path; its mode says who may ask."""

    path: str

    def connect(self) -> peer.Connect:
        return peer.unix(self.path)

    def listening(self, seconds: float = 2.0) -> bool:
        return _accepts(socket.AF_UNIX, self.path, seconds)

    def connections(self, table: str = UNIX_TABLE) -> int | None:
        """Column 6 is the state: 02 waits to be accepted, 03 is connected, 01 listens.  None if unknown."""
        rows = _rows(table, 8)
        if rows is None:
            return None
        return sum(1 for row in rows if len(row) == 8 and row[5] in ("02", "03") and row[7] == self.path)


@dataclasses.dataclass(frozen=True)
class TcpEndpoint:
    """A port of this host. A firewall rule of the unit's says which users may reach it."""

    address: str
    port: int

    def connect(self) -> peer.Connect:
        return peer.tcp(self.address, self.port)

    def listening(self, seconds: float = 2.0) -> bool:
        return _accepts(socket.AF_INET, (self.address, self.port), seconds)

    @property
    def _local(self) -> str:
        """As the kernel writes it: the address as one number of this machine, and the port, in hexadecimal."""
        (number,) = struct.unpack("=I", socket.inet_aton(self.address))
        return f"{number:08X}:{self.port:04X}"

    def connections(self, table: str = TCP_TABLE) -> int | None:
        """The engine's ends of them. Column 2 is the own address, column 4 the state.  None if unknown."""
        rows = _rows(table, 5)
        if rows is None:
            return None
        return sum(1 for row in rows if len(row) == 5 and row[1] == self._local and row[3] == _ESTABLISHED)

    def is_open(self, table: str = TCP_TABLE) -> bool:
        """Whether somebody listens there, without a connection: some servers have one client at a time."""
        return any(len(row) == 5 and row[1] == self._local and row[3] == _LISTENS for row in _rows(table, 5) or [])


def endpoint_of(text: str) -> UnixEndpoint | TcpEndpoint:
    """Of the text in serving.json."""
    address, _colon, port = text.rpartition(":")
    if not text.startswith("/") and address and port.isdigit():
        return TcpEndpoint(address, int(port))
    return UnixEndpoint(text)
