# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host layer's tests share: the wiring as the lab laid it, which is where expectations come from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

#: where a lab has a switch that an owner would configure, once is enough
collect_ignore = [] if os.environ.get("SPARKLAB_NAME") == "mol-switch4" else ["test_switch.py"]


@dataclass(frozen=True)
class Way:
    """From one NIC to the address of another on the same cable or switch, with the ping payload that must pass."""

    host: str
    netdev: str
    peer: str
    peer_netdev: str
    payload: int


def ways(plan: Any) -> list[Way]:
    """Every ordered pair of NICs that the lab joined; on a lab without a fabric, the management NICs."""
    joined = [segment.ends for segment in plan.segments]
    payload = 8972
    if not joined:
        joined, payload = [tuple((host.name, host.management) for host in plan.hosts)], 1472
    return [Way(*here, *there, payload) for ends in joined for here in ends for there in ends if here != there]


def addresses(cluster: Any, host: str) -> dict[str, list[str]]:
    """Addresses with prefix length by NIC, without those of IPv6 that the kernel makes by itself."""
    links = json.loads(cluster.run(host, "ip -json address show"))
    return {
        link["ifname"]: [
            f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"] if item["scope"] == "global"
        ]
        for link in links
    }


def mtus(cluster: Any, host: str) -> dict[str, int]:
    return {link["ifname"]: link["mtu"] for link in json.loads(cluster.run(host, "ip -json link show"))}


def unreachable(cluster: Any) -> list[str]:
    """Ways on which a do-not-fragment ping of full size, bound to its NIC, does not come back."""
    where = {host: addresses(cluster, host) for host in cluster.hosts}
    lost = []
    for host in cluster.hosts:
        lines = []
        for way in ways(cluster.lab.plan):
            if way.host != host:
                continue
            there = where[way.peer].get(way.peer_netdev) or []
            label = f"{host} {way.netdev} - {way.peer} {way.peer_netdev}"
            if not there:
                lost.append(f"{label}: the peer has no address")
                continue
            address = there[0].partition("/")[0]
            lines.append(
                f"ping -q -n -c 1 -W 2 -M do -s {way.payload} -I {way.netdev} {address} >/dev/null 2>&1"
                f" || echo '{label}: {address} with {way.payload} bytes'"
            )
        if lines:
            lost += cluster.run(host, "\n".join(lines), timeout=120).splitlines()
    return lost


def eventually(check: Callable[[], list[str]], seconds: float) -> list[str]:
    """What is still wrong after at most this long."""
    end = time.monotonic() + seconds
    while True:
        wrong = check()
        if not wrong or time.monotonic() > end:
            return wrong
        time.sleep(0.5)


@pytest.fixture(scope="session")
def records(cluster: Any) -> list[dict[str, Any]]:
    """What each run of the playbook changed, in order (written by the callback record_changes)."""
    found = [json.loads(path.read_text()) for path in sorted((cluster.lab.folder / "records").glob("*.json"))]
    return [record for record in found if record["playbook"] == "host_layer.yml"]
