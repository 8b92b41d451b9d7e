# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is at the other ends of the lanes of Thors' QSFP cages, and which fabric they make.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import ipv4_network_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import THOR_NETDEVS

if TYPE_CHECKING:
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Machine

#: by machine and lane, the machines and lanes whose frames came in there
Ends = Mapping[tuple[str, int], Set[tuple[str, int]]]


def ends(thors: Sequence[Machine]) -> Ends:
    """What frames told of each lane."""
    names = {machine.boot: machine.name for machine in thors}
    return {
        (machine.name, THOR_NETDEVS[netdev]): {
            (names[item["host"]], THOR_NETDEVS[item["netdev"]])
            for item in seen
            if names.get(item["host"], machine.name) != machine.name and item["netdev"] in THOR_NETDEVS
        }
        for machine in thors
        for netdev, seen in (machine.seen.get("neighbours") or {}).items()
        if netdev in THOR_NETDEVS
    }


def joined(thors: Sequence[Machine], found: Ends) -> list[int]:
    """Lanes by which each machine hears every other, on the same lane there."""
    names = {machine.name for machine in thors}
    return [
        lane
        for lane in THOR_NETDEVS.values()
        if len(names) > 1
        and all({(other, lane) for other in names - {name}} <= found.get((name, lane), set()) for name in names)
    ]


def topology(thors: Sequence[Machine], found: Ends) -> str:
    """What the lanes make of the machines; ``lan`` where none has heard of another."""
    if not any(found.values()):
        return "lan"
    return "direct" if len(thors) == 2 else "switch"


def problems(thors: Sequence[Machine], found: Ends) -> list[Finding]:
    """Why no lane joins all machines: cables that end at another lane, or machines that nobody hears."""
    wrong = []
    for (name, lane), others in sorted(found.items()):
        for other, far in sorted(others):
            if far != lane:
                hint = f"move its end at {other} to lane {lane}: lanes are numbered alike at both ends"
                wrong.append(Finding("cable", f"lane {lane} is cabled to lane {far} of {other}", hint, name))
    if wrong:
        return wrong
    silent = [machine.name for machine in thors if not any(found.get((machine.name, lane)) for lane in range(4))]
    told = "; ".join(cabling.sketch_lanes(found)) or "no frame came in"
    what = f"no lane of their QSFP cages joins all of the Thors: {told}"
    hint = (
        "both ends of a lane need one fixed rate, without negotiation; join all by one switch, or take the LAN "
        "as fabric (-e discover_topology=lan)"
    )
    return [Finding("cable", what, hint, ", ".join(silent))]


def words(machine: Machine, found: Ends) -> str:
    """The lanes of a machine for the table."""
    ports = machine.seen.get("ports") or {}
    lit = [lane for netdev, lane in THOR_NETDEVS.items() if (ports.get(netdev) or {}).get("plugged")]
    if not lit:
        return "-"
    others = sorted({other for lane in lit for other, _far in found.get((machine.name, lane), ())})
    return f"lanes {', '.join(map(str, lit))}: " + (f"to {', '.join(others)}" if others else "nobody answers")


def cabled(machine: Machine) -> list[tuple[str, str]]:
    """NICs of a Thor's QSFP cage with a carrier, each with a network that it has an address in, or none.

    Its speed says nothing: it is shown without a cable as well.
    """
    own = []
    for link in machine.node.get("interfaces") or ():
        if link["name"] not in THOR_NETDEVS or not link.get("carrier"):
            continue
        networks = [
            str(ipv4_network_of(item["address"]))
            for item in link["addresses"]
            if item.get("family", "inet") == "inet" and item.get("scope", "global") == "global"
        ]
        own += [(link["name"], network) for network in networks or [""]]
    return [] if machine.node["management"]["netdev"] in {nic for nic, _network in own} else own


def network_of_all(own: Mapping[str, Sequence[tuple[str, str]]]) -> str:
    """The first network in which a lane of every machine has an address already; empty without one."""
    networks = [{network for _nic, network in found if network} for found in own.values()]
    return next(iter(sorted(set.intersection(*networks))), "") if networks else ""
