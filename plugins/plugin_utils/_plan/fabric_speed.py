# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The speed that the fabric's links are planned for, and which of them negotiated less: one judge for all who ask."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.neighbors import port_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import cage_name

#: Gb/s of a Spark's cage with a cable of its full speed
FULL: Final = 200
#: the lowest that may be planned
LEAST: Final = 100
SPEEDS: Final = (LEAST, FULL)
#: what to do where all links are alike
FIX: Final = (
    "use a 200 Gb/s cable, and on a switch set the port to 200 Gb/s without negotiation; where 100 is meant (a "
    "breakout, QSFP28), set fabric_speed: 100 for the hosts or the cluster"
)
#: an end of a cable: a host and a NIC
End = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Slow:
    """Links that negotiated less than they are planned for."""

    hosts: tuple[str, ...]
    what: str
    fix: str = FIX
    #: whether other links of the fabric are faster: one cable or port is wrong then, and ranks wait for each other
    mixed: bool = False


def planned(variables: Mapping[str, Any]) -> int:
    """Gb/s that ``fabric_speed`` plans a host's links for; :data:`FULL` where it is not set."""
    given = variables.get("fabric_speed")
    return FULL if given in (None, "") else int(given)


def problems(hostvars: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Values of ``fabric_speed`` that no link of a Spark has, each once with the hosts that say it."""
    said: dict[str, list[str]] = {}
    for host, variables in hostvars.items():
        given = variables.get("fabric_speed")
        if given not in (None, "") and str(given).strip() not in map(str, SPEEDS):
            said.setdefault(str(given), []).append(host)
    what = f"links of a Spark are planned for {LEAST} or {FULL} Gb/s"
    fix = f"give {LEAST} for breakouts and QSFP28 cables, or leave it out"
    return [
        Finding("fabric", what, fix, ", ".join(hosts), where="fabric_speed", value=value)
        for value, hosts in said.items()
    ]


def of(entry: Mapping[str, Any] | None) -> int:
    """The same out of a host's entry in the fabric's plan."""
    return int((entry or {}).get("speed") or FULL)


def of_link(fabric: Mapping[str, Mapping[str, Any]], host: str, link: Mapping[str, Any]) -> int:
    """Gb/s of one link: no more than the host at its other end is planned for."""
    peer = link.get("peer")
    return min(of(fabric.get(one)) for one in (host, peer or host))


def by_netdev(fabric: Mapping[str, Mapping[str, Any]], host: str) -> dict[str, int]:
    """The same of all links of a host, by NIC; none where its links have no planned speed."""
    entry = fabric[host]
    if entry["kind"] != "spark" or entry["addressing"] != "managed":
        return {}
    return {link["netdev"]: of_link(fabric, host, link) for link in entry["links"]}


def slow(fabric: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Mapping[str, float]]) -> list[Slow]:
    """What is slower than planned: where all links are alike in one word for all hosts that say the same, and where
    speeds are mixed cable by cable.

    ``rates`` has, by host and NIC, the Gb/s of each link that is up; links of an unknown rate are left out.
    """
    known = {
        (host, link["netdev"]): (link, rate)
        for host, entry in fabric.items()
        for link in entry.get("links") or ()
        if (rate := (rates.get(host) or {}).get(link["netdev"]))
    }
    short = {end: (link, rate) for end, (link, rate) in known.items() if rate < of_link(fabric, end[0], link)}
    fastest = max((rate for _link, rate in known.values()), default=0.0)
    if any(rate < fastest for _link, rate in short.values()):
        return _mixed(fabric, short, fastest)
    said: dict[str, list[str]] = {}
    for host in fabric:
        by_kind: dict[tuple[float, int], list[str]] = {}
        for (name, netdev), (link, rate) in short.items():
            if name == host:
                by_kind.setdefault((rate, of_link(fabric, host, link)), []).append(netdev)
        for (rate, most), netdevs in by_kind.items():
            said.setdefault(f"{', '.join(netdevs)} negotiated {rate:g} Gb/s, planned are {most}", []).append(host)
    return [Slow(tuple(hosts), what) for what, hosts in said.items()]


def _mixed(
    fabric: Mapping[str, Mapping[str, Any]], short: Mapping[End, tuple[Mapping[str, Any], float]], fastest: float
) -> list[Slow]:
    cables: dict[frozenset[End], list[End]] = {}
    for (host, netdev), (link, _rate) in short.items():
        ends = {(host, port_of(netdev))}
        if link.get("peer"):
            ends.add((link["peer"], port_of(link.get("peer_netdev", ""))))
        cables.setdefault(frozenset(ends), []).append((host, netdev))
    found = []
    for seen in cables.values():
        host = seen[0][0]
        link = short[seen[0]][0]
        rate, most = min(short[end][1] for end in seen), of_link(fabric, host, link)
        names = ", ".join(name for one, name in seen if one == host)
        other = f" to {link['peer']} {link['peer_netdev']}" if link.get("peer") else ""
        what = (
            f"NIC {names}{other} negotiated {rate:g} Gb/s, planned are {most}, and other links of this fabric have "
            f"{fastest:g}: all ranks wait for the slowest"
        )
        found.append(Slow(tuple(dict.fromkeys(one for one, _name in seen)), what, _way_out(host, link, rate), True))
    return found


def _way_out(host: str, link: Mapping[str, Any], rate: float) -> str:
    """The cable to change, and how to say that it is meant to be slower."""
    if link.get("peer"):
        far = f"{cage_name(link['peer_netdev'])} of {link['peer']}"
        fix = f"replace the cable from {cage_name(link['netdev'])} of {host} to {far}"
    else:
        fix = (
            f"use a 200 Gb/s cable in {cage_name(link['netdev'])} of {host}, and set its port of the switch to 200 "
            "Gb/s without negotiation"
        )
    return f"{fix}; where {LEAST} is meant, set fabric_speed: {LEAST} for {host}" if rate >= LEAST else fix
