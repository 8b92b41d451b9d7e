# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed that the fabric's links are planned for, and which of them negotiated less: one judge for all who ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Gb/s of a Spark's cage with a cable of its full speed
FULL: Final = 200


def planned(variables: Mapping[str, Any]) -> int:
    """Gb/s that ``fabric_speed`` plans a host's links for; :data:`FULL` where it is not set."""
    given = variables.get("fabric_speed")
    return FULL if given in (None, "") else int(given)


def of(entry: Mapping[str, Any] | None) -> int:
    """The same out of a host's entry in the fabric's plan."""
    return int((entry or {}).get("speed") or FULL)


def slow(fabric: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Mapping[str, float]]) -> list[tuple[str, str]]:
    """``(hosts, what)`` of links that negotiated less than planned; hosts that say the same are told once, by commas.

    ``rates`` has, by host and NIC, the Gb/s of each link that is up; links of an unknown rate are left out.
    """
    said: dict[str, list[str]] = {}
    for host, by_netdev in rates.items():
        most = of(fabric.get(host))
        links = {link["netdev"] for link in (fabric.get(host) or {}).get("links") or ()}
        by_rate: dict[float, list[str]] = {}
        for netdev, rate in by_netdev.items():
            if netdev in links and rate and rate < most:
                by_rate.setdefault(rate, []).append(netdev)
        for rate, netdevs in by_rate.items():
            said.setdefault(f"{', '.join(netdevs)} negotiated {rate:g} Gb/s, planned are {most}", []).append(host)
    return [(", ".join(hosts), what) for what, hosts in said.items()]


#: what to do about it
FIX: Final = (
    "use a 200 Gb/s cable, and on a switch set the port to 200 Gb/s without negotiation; where 100 is meant (a "
    "breakout, QSFP28), set fabric_speed: 100 for the hosts or the cluster"
)
