# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ports of a host answer a stranger: all 65,535 of TCP by half-open probes in seconds, and a list of UDP ports.

Connecting would take minutes, because a firewall that drops lets every attempt wait for its time limit.  A raw socket
sends the first segment only and listens; the kernel answers what comes back with a reset by itself.  Root is needed.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import struct
import time
from collections.abc import Iterable

ALL_TCP = range(1, 65536)
#: what hosts of this kind are known to run over UDP: names, leases, time, discovery, shares, tunnels, RoCE itself
KNOWN_UDP = (53, 67, 69, 111, 123, 137, 138, 161, 323, 500, 514, 546, 631, 1701, 1900, 3702, 4500, 4789, 4791, 5353)
SYN = 0x02
SYN_ACK = 0x12
BURST = 500
LISTEN_AFTER = 1.0


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def _resolve(target: str) -> tuple[int, tuple]:
    family, _kind, _protocol, _name, address = socket.getaddrinfo(target, 0, type=socket.SOCK_DGRAM)[0]
    return family, address


def _source(family: int, address: tuple) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address[0], 9, *address[2:]))
        return probe.getsockname()[0].partition("%")[0]


def _wake(family: int, address: tuple, seconds: float = 10.0) -> None:
    """Have the neighbour's link address before the scan: the kernel drops what it cannot send yet, all of a burst."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as knock:
                knock.settimeout(1)
                knock.connect((address[0], 22, *address[2:]))
                return
        except ConnectionRefusedError:
            return
        except OSError:
            time.sleep(0.2)


def tcp_ports(target: str, ports: Iterable[int] = ALL_TCP, rounds: int = 2) -> list[int]:
    """Ports of ``target`` (an address, ``fe80::1%nic`` too) on which a connection would be accepted."""
    family, address = _resolve(target)
    _wake(family, address)
    source = _source(family, address)
    found: set[int] = set()
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_TCP) as raw:
        raw.setsockopt(socket.SOL_SOCKET, 33, 32 * 1024 * 1024)  # SO_RCVBUFFORCE
        raw.setblocking(False)
        if family == socket.AF_INET6:
            raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_CHECKSUM, 16)
        pseudo = b""
        if family == socket.AF_INET:
            ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(address[0]).packed
            pseudo = ends + struct.pack("!BBH", 0, socket.IPPROTO_TCP, 20)
        for round_number in range(rounds):
            source_port = 40000 + round_number * 1000 + int(time.monotonic() * 1000) % 1000
            for count, port in enumerate(ports, 1):
                head = struct.pack("!HHIIBBHHH", source_port, port, 0x5A5A0000, 0, 5 << 4, SYN, 1024, 0, 0)
                if pseudo:
                    head = head[:16] + struct.pack("!H", _checksum(pseudo + head)) + head[18:]
                _send(raw, head, (address[0], 0, *address[2:]))
                if count % BURST == 0:
                    _receive(raw, family, address[0], source_port, found, 0)
            _receive(raw, family, address[0], source_port, found, LISTEN_AFTER)
    return sorted(found)


def _send(raw: socket.socket, data: bytes, where: tuple) -> None:
    while True:
        try:
            raw.sendto(data, where)
            return
        except BlockingIOError:
            select.select([], [raw], [], 1)


def _receive(raw: socket.socket, family: int, peer: str, source_port: int, found: set[int], seconds: float) -> None:
    peer = peer.partition("%")[0]
    end = time.monotonic() + seconds
    while True:
        ready, _write, _error = select.select([raw], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return
        data, sender = raw.recvfrom(256)
        if sender[0].partition("%")[0] != peer:
            continue
        if family == socket.AF_INET:
            data = data[(data[0] & 0xF) * 4 :]
        port, to = struct.unpack("!HH", data[:4])
        if to == source_port and data[13] & SYN_ACK == SYN_ACK:
            found.add(port)


def udp_ports(target: str, ports: Iterable[int] = KNOWN_UDP, seconds: float = 1.5) -> list[int]:
    """UDP ports of ``target`` from which anything came back."""
    family, address = _resolve(target)
    found: set[int] = set()
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        for _unused in range(2):
            for port in ports:
                asking.sendto(b"anybody there?", (address[0], port, *address[2:]))
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([asking], [], [], left)[0]:
                break
            found.add(asking.recvfrom(2048)[1][1])
    return sorted(found)
