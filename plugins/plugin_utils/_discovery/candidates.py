# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses of the LAN may be a machine of ours: given ones, else what mDNS and the neighbour table know."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    address_of,
    ipv4_interface_of,
    netaddr,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

Runner = Callable[[list[str]], tuple[int, str, str]]

#: addresses that one search asks at most: a LAN, not a campus
LIMIT = 1024
#: what NVIDIA's own discovery asks for, too; -k would leave out the services' names
AVAHI = ["avahi-browse", "--parsable", "--resolve", "--terminate", "_ssh._tcp"]
NEIGHBOURS = ["ip", "-j", "-4", "neigh", "show"]
_RANGE = re.compile(r"(?P<first>\d+\.\d+\.\d+\.\d+)-(?P<last>\d+(?:\.\d+\.\d+\.\d+)?)")
_ADDRESS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_FIX = "give addresses, names, ranges such as 192.168.1.10-40, or networks such as 192.168.1.0/24"


@dataclass(frozen=True)
class Candidate:
    """An address that answered on the ssh port."""

    address: str
    #: what mDNS calls it
    name: str = ""
    #: asked for by name, not as one of many: whatever is wrong with it is worth a message
    given: bool = False


def _refused(value: object, problem: str, fix: str = _FIX) -> FabricError:
    return FabricError("discover_addresses", value, problem, fix)


def expand(given: Sequence[object]) -> dict[str, bool]:
    """Addresses and names to ask, in the order given, and whether each was given alone."""
    addresses: dict[str, bool] = {}
    for item in given:
        text = str(item).strip()
        span = _RANGE.fullmatch(text)
        try:
            if span:
                last = span["last"]
                first = address_of(span["first"])
                end = address_of(last if "." in last else f"{span['first'].rpartition('.')[0]}.{last}")
                if end < first:
                    raise _refused(text, "the range ends before it begins")
                block: Iterable[Any] = netaddr().iter_iprange(first, end)
                size = int(end) - int(first) + 1
            elif "/" in text:
                network = ipv4_interface_of(text).cidr
                block, size = network.iter_hosts(), network.size
            elif re.fullmatch(r"[\d.]+", text):
                block, size = [address_of(text)], 1
            elif _NAME.fullmatch(text):
                block, size = [text], 1
            else:
                raise _refused(text, "neither an address nor a name")
        except FabricError:
            raise
        except ValueError:
            raise _refused(text, "not an IPv4 address, range or network") from None
        if size > LIMIT or len(addresses) + size > LIMIT:
            raise _refused(text, f"more than {LIMIT} addresses to ask", "give a smaller range or network")
        for address in block:
            addresses[str(address)] = addresses.get(str(address), False) or size == 1
    return addresses


def _unescaped(text: str) -> str:
    r"""avahi-browse writes what is no letter or digit as a backslash and three decimal digits."""
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1])), text)


def parse_avahi(text: str) -> dict[str, str]:
    """``avahi-browse --parsable --resolve``: IPv4 address → host name without ``.local``."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        fields = line.split(";")
        if len(fields) >= 9 and fields[0] == "=" and fields[2] == "IPv4" and _ADDRESS.fullmatch(fields[7]):
            # anybody on the LAN gives himself a name there
            names.setdefault(fields[7], printable(_unescaped(fields[6])).removesuffix(".local")[:253])
    return names


def parse_neighbour_table(text: str) -> list[str]:
    """``ip -j -4 neigh show``: addresses whose hardware address is known."""
    try:
        entries = json.loads(text or "[]")
    except ValueError:
        return []
    known = [item for item in entries if isinstance(item, dict) and item.get("lladdr") and item.get("dst")]
    return [str(item["dst"]) for item in known if "FAILED" not in (item.get("state") or [])]


def answers(address: str, port: int, seconds: float = 1.5) -> bool:
    """Whether an ssh server greets there."""
    try:
        with socket.create_connection((address, port), seconds) as connection:
            connection.settimeout(seconds)
            return connection.recv(255).startswith(b"SSH-")
    except OSError:
        return False


def find(
    given: Sequence[object],
    port: int,
    run: Runner,
    answers: Callable[[str, int], bool] = answers,
) -> tuple[list[Candidate], list[str]]:
    """Whoever answers on the ssh port, and notes on how complete that is."""
    notes = []
    rc, out, _err = run(AVAHI)
    names = parse_avahi(out) if rc == 0 else {}
    wanted = expand(given)
    if not wanted:
        if rc == 127:
            notes.append(
                "avahi-browse is not installed here (package avahi-utils), so nobody was asked for by mDNS; machines "
                "that this one has talked to lately are found all the same"
            )
        seen = parse_neighbour_table(run(NEIGHBOURS)[1])
        wanted = dict.fromkeys([*names, *seen], False)
    with ThreadPoolExecutor(max_workers=64) as pool:
        reached = list(pool.map(lambda address: answers(address, port), wanted))
    candidates = [
        Candidate(address, names.get(address, ""), alone)
        for (address, alone), here in zip(wanted.items(), reached, strict=True)
        if here or alone
    ]
    if not candidates:
        raise FabricError(
            "discover_addresses",
            ", ".join(map(str, given)) or "not set",
            "no machine answers on the ssh port there"
            if given
            else "nobody was found by mDNS or in the neighbour table",
            "give the LAN, such as -e discover_addresses=192.168.1.0/24, and see that the machines are on and finished "
            "their first boot",
        )
    return candidates, notes
