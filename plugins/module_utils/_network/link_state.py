# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric links as they are: address, MTU, route and a ping that just fits, compared with the plan."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import select
import socket
import struct
import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import ask_until
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job


def connected_routes() -> set[tuple[str, str]]:
    """(subnet, NIC) of the kernel's connected routes."""
    rc, out, _err = job.run(["ip", "-4", "route", "show", "table", "main", "proto", "kernel"])
    found = set()
    for line in out.splitlines() if rc == 0 else []:
        words = line.split()
        if len(words) > 2 and words[1] == "dev":
            found.add((words[0], words[2]))
    return found


def link_problems(
    links: list[dict[str, Any]], live: dict[str, dict[str, Any]], routes: set[tuple[str, str]]
) -> dict[str, list[str]]:
    """By NIC: where address, MTU, state or connected route differ from the plan."""
    problems: dict[str, list[str]] = {}
    for link in links:
        problems_seen = job.expectation_problems([link], live)
        if not problems_seen:
            subnet = str(ipaddress.ip_interface(link["address"]).network)
            if (subnet, link["netdev"]) not in routes:
                problems_seen.append(f"{link['netdev']} has no connected route to {subnet}")
            problems_seen += [
                f"{name} has a connected route to {subnet} as well as {link['netdev']}: one NIC per subnet"
                for network, name in sorted(routes)
                if network == subnet and name != link["netdev"] and not link.get("shared")
            ]
        problems[link["netdev"]] = problems_seen
    return problems


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def payload_size(link: dict[str, Any], peer: dict[str, Any], live_mtu: int) -> int:
    """Bytes of ping payload that just fill the smaller MTU of both ends (20 IP + 8 ICMP go off).

    Without a planned MTU (an ordinary LAN, left as it is) no more than Ethernet's 1500 is asked for.
    """
    own: int = link.get("mtu") or min(live_mtu or 1500, 1500)
    far: int = peer.get("mtu") or own
    return min(own, far) - 28


_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _SO_BINDTODEVICE = 10, 2, 25


def ping_links(
    links: list[dict[str, Any]], live: dict[str, dict[str, Any]], timeout: float = 0.7
) -> list[dict[str, Any]]:
    """One do-not-fragment echo to every peer of every link, bound to its NIC, on a LAN to its address, all at once.

    Raw sockets instead of the ping program: one process less per peer, and the program may be absent.  A second echo
    goes out after a third of the time, since the first packet to a cold neighbour may be lost.
    """
    sockets: dict[int, tuple[socket.socket, dict[str, Any]]] = {}
    results: list[dict[str, Any]] = []
    waiting: dict[tuple[int, str], dict[str, Any]] = {}
    identity = os.getpid() & 0xFFFF
    try:
        for link in links:
            sock = None
            for peer in link.get("peers") or []:
                size = payload_size(link, peer, live.get(link["netdev"], {}).get("mtu", 0))
                entry = {
                    "netdev": link["netdev"],
                    "host": peer.get("host", ""),
                    "address": peer["address"],
                    "payload": size,
                    "reachable": False,
                    "rtt_ms": None,
                    "error": "no answer",
                }
                results.append(entry)
                try:
                    if sock is None:
                        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
                        sock.setblocking(False)
                        sock.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
                        if link.get("shared"):
                            # the answer may come in by any NIC of this network
                            sock.bind((link["address"].partition("/")[0], 0))
                        else:
                            sock.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, link["netdev"].encode() + b"\0")
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                        sockets[sock.fileno()] = (sock, link)
                    _send_echo(sock, entry, identity, 1)
                    waiting[(sock.fileno(), peer["address"])] = entry
                except OSError as error:
                    entry["error"] = _ping_error(error, size)
        start = time.monotonic()
        again = start + timeout / 3
        while waiting and (left := start + timeout - time.monotonic()) > 0:
            pause = min(left, max(again - time.monotonic(), 0)) if again else left
            ready, _w, _x = select.select(list(sockets), [], [], pause)
            for descriptor in ready:
                _receive(sockets[descriptor][0], descriptor, identity, waiting)
            if again and time.monotonic() >= again:
                again = 0.0
                for (descriptor, _address), entry in waiting.items():
                    with contextlib.suppress(OSError):
                        _send_echo(sockets[descriptor][0], entry, identity, 2)
    finally:
        for sock, _link in sockets.values():
            sock.close()
    return results


def _ping_error(error: OSError, size: int) -> str:
    if error.errno == errno.EMSGSIZE:
        return f"{size} bytes do not fit through this link unfragmented"
    return error.strerror or str(error)


def _send_echo(sock: socket.socket, entry: dict[str, Any], identity: int, sequence: int) -> None:
    body = b"\0" * entry["payload"]
    header = struct.pack("!BBHHH", 8, 0, 0, identity, sequence)
    header = struct.pack("!BBHHH", 8, 0, checksum(header), identity, sequence)  # a body of zeros adds nothing
    entry["_sent"] = time.monotonic()
    sock.sendto(header + body, (entry["address"], 0))


def _receive(
    sock: socket.socket, descriptor: int, identity: int, waiting: dict[tuple[int, str], dict[str, Any]]
) -> None:
    while True:
        try:
            packet, (source, _port) = sock.recvfrom(65535)
        except BlockingIOError:
            return
        except OSError:
            return  # an ICMP error for an earlier echo; the entry stays unanswered
        offset = (packet[0] & 0x0F) * 4
        if len(packet) < offset + 8:
            continue
        kind, _code, _sum, answered, _sequence = struct.unpack("!BBHHH", packet[offset : offset + 8])
        entry = waiting.get((descriptor, source))
        if kind == 0 and answered == identity and entry and len(packet) - offset - 8 == entry["payload"]:
            entry.update(reachable=True, error="", rtt_ms=round((time.monotonic() - entry["_sent"]) * 1000, 3))
            del waiting[(descriptor, source)]


def verify(links: list[dict[str, Any]], wait: float = 0.0) -> list[dict[str, Any]]:
    """Each link as it is: ``netdev, address, mtu, carrier, ok, problems, peers``; asks again for up to ``wait`` s."""
    return ask_until(lambda: _report(links), lambda report: all(item["ok"] for item in report), wait)


def _report(links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    live = job.live_links()
    problems = link_problems(links, live, connected_routes())
    sound = [link for link in links if not problems[link["netdev"]]]
    answers = ping_links(sound, live)
    report = []
    for link in links:
        state = live.get(link["netdev"], {})
        of_link = list(problems[link["netdev"]])
        mine = [
            {key: value for key, value in item.items() if not key.startswith("_")}
            for item in answers
            if item["netdev"] == link["netdev"]
        ]
        dead = [item for item in mine if not item["reachable"]]
        for item in dead:
            carrier = "" if state.get("carrier") else ", no carrier: cable or other end"
            of_link.append(
                f"{link['netdev']} does not reach {item['host'] or 'its peer'} {item['address']} with"
                f" {item['payload']} bytes unfragmented ({item['error']}{carrier})"
            )
        report.append(
            {
                "netdev": link["netdev"],
                "address": link["address"],
                "mtu": state.get("mtu", 0),
                "carrier": bool(state.get("carrier")),
                "ok": not of_link,
                "problems": of_link,
                "peers": mine,
            }
        )
    return report
