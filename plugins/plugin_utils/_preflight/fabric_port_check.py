# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabric ports: there, cabled, in the right cage, both halves, and what MTU they can do."""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import ERROR, UNKNOWN, Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import nic_names
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import (
    SPARK_NETDEVS,
    THOR_NETDEVS,
    cage_name,
    spark_netdev,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import (
    Node,
    interfaces_of,
)


def port_problems(
    host: str, entry: t.Any, nodes: Mapping[str, Node], probes: Mapping[str, Mapping[str, t.Any]]
) -> list[Finding]:
    """Carrier, cage, both halves, what MTU the NIC can do."""
    probe = probes.get(host) or {}
    interfaces = interfaces_of(nodes[host])
    probed = probe.get("ports") or {}
    states = {
        netdev: _port_state(interfaces.get(netdev), probed.get(netdev))
        for netdev in {*SPARK_NETDEVS, *(link["netdev"] for link in entry["links"])}
    }
    problems = _carrier_problems(host, entry, states, nodes, probes)
    for link in entry["links"]:
        netdev = link["netdev"]
        if states[netdev] == "down":
            problems.append(_port_is_down(host, netdev, (probe.get("errors") or {}).get(netdev)))
        limit = int(interfaces.get(netdev, {}).get("max_mtu") or 0)
        if link["mtu"] and limit and link["mtu"] > limit:
            problems.append(
                Finding(
                    "mtu",
                    f"NIC {netdev} can do an MTU of {limit} at most, fabric_mtu asks for {link['mtu']}",
                    f"set fabric_mtu: {limit} or less",
                    host,
                    netdev,
                )
            )
    return problems


def _carrier_problems(
    host: str,
    entry: t.Any,
    states: Mapping[str, str],
    nodes: Mapping[str, Node],
    probes: Mapping[str, Mapping[str, t.Any]],
) -> list[Finding]:
    """Planned ports without a carrier: one problem where the cable is in the other cage, else one for each port."""
    planned = [link["netdev"] for link in entry["links"]]
    dead = [link for link in entry["links"] if states[link["netdev"]] in ("absent", "dark")]
    now = {link["netdev"]: nic_names.now_called(link["netdev"], nodes[host].get("interfaces", ())) for link in dead}
    problems = [
        Finding("renamed", *nic_names.renamed(netdev, name), host, netdev) for netdev, name in now.items() if name
    ]
    dead = [link for link in dead if not now[link["netdev"]]]
    other_cage = [name for name in SPARK_NETDEVS if name not in planned and states[name] == "carrier"]
    if dead and len(dead) == len(planned) and other_cage:
        number = SPARK_NETDEVS[other_cage[0]][0]
        return [
            Finding(
                "cage",
                f"NIC {planned[0]} has no carrier, but {other_cage[0]} has: the cable is in "
                f"{cage_name(other_cage[0])}, the plan uses {cage_name(planned[0])}",
                f"set fabric_cage: {number} for this host (hosts may differ), or move the cable",
                host,
                planned[0],
            )
        ]
    for link in dead:
        problem = _dead_port(host, link, states)
        if states[link["netdev"]] == "dark" and _peer_is_down(link, nodes, probes):
            why = f"{link['peer']} {link['peer_netdev']} at its other end is administratively down"
            problem = dataclasses.replace(
                problem, what=f"NIC {link['netdev']} has no carrier, but {why}", severity=UNKNOWN
            )
        problems.append(problem)
    return problems


def _port_is_down(host: str, netdev: str, error: str | None) -> Finding:
    """``error``: why it could not be set up for the probe."""
    return Finding(
        "carrier",
        f"NIC {netdev} is administratively down, so its carrier and neighbour are unknown"
        + (f" ({error})" if error else ""),
        f"a run without check mode sets it up to probe it; by hand: sudo ip link set {netdev} up",
        host,
        netdev,
        severity=ERROR if error else UNKNOWN,
    )


def _port_state(interface: Mapping[str, t.Any] | None, probed: Mapping[str, t.Any] | None) -> str:
    """``absent``, ``down`` (administratively, carrier unknown), ``dark`` (no carrier) or ``carrier``."""
    if probed is not None:
        if not probed["present"]:
            return "absent"
        return "down" if probed["carrier"] is None else ("carrier" if probed["carrier"] else "dark")
    if interface is None:
        return "absent"
    if not interface["up"]:
        return "down"
    return "carrier" if interface["carrier"] else "dark"


def _peer_is_down(
    link: Mapping[str, t.Any], nodes: Mapping[str, Node], probes: Mapping[str, Mapping[str, t.Any]]
) -> bool:
    """Whether nobody set the other end up, so that the lack of a carrier here says nothing about the cable."""
    if not link["peer"]:
        return False
    probed = ((probes.get(link["peer"]) or {}).get("ports") or {}).get(link["peer_netdev"])
    interface = interfaces_of(nodes[link["peer"]]).get(link["peer_netdev"])
    return _port_state(interface, probed) == "down"


def _dead_port(host: str, link: Mapping[str, t.Any], states: Mapping[str, str]) -> Finding:
    netdev = link["netdev"]
    gone = "is not there" if states[netdev] == "absent" else "has no carrier"
    place = SPARK_NETDEVS.get(netdev)
    twin = spark_netdev(place[0], 1 - place[1]) if place else ""
    if twin and states.get(twin) == "carrier":
        return Finding(
            "half",
            f"NIC {netdev} {gone} though {twin}, the other half of the same cage, has a carrier: the link would run at "
            "half its speed",
            "reseat the cable at both ends; if that does not help, power the host off and on (a reboot is not enough)",
            host,
            netdev,
        )
    end = f" to {link['peer']} {link['peer_netdev']}" if link["peer"] else " to the switch"
    lanes = (
        "; both ends of a lane need one fixed rate, and where the cable has fewer lanes, name those in fabric_lanes"
        if netdev in THOR_NETDEVS
        else ""
    )
    hint = "; an uncabled ConnectX-7 leaves the PCI bus" if states[netdev] == "absent" else ""
    return Finding(
        "carrier",
        f"NIC {netdev} {gone}{hint}",
        f"plug the cable{end} into {cage_name(netdev)}, and see that the other end is plugged and powered{lanes}",
        host,
        netdev,
    )
