# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables: who is at the other end of each, and which one to move."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t
from collections.abc import Collection, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import ERROR, UNKNOWN, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import (
    SPARK_NETDEVS,
    THOR_NETDEVS,
    cage_name,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import CHAINS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import Plan

#: what a probed port has at its other end: host, its planned link, the (host, NIC) that were seen there
Seen = tuple[str, t.Any, list[tuple[str, str]]]


def cabling_problems(plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> list[Finding]:
    """Links whose other end is somebody else than planned, with the cable to move."""
    wrong: list[Seen] = []
    silent: list[tuple[str, t.Any]] = []
    for host, entry in plan.items():
        probe = probes.get(host) or {}
        for link in entry["links"]:
            port = (probe.get("ports") or {}).get(link["netdev"])
            if not link["peer"] or port is None or not port["carrier"]:
                continue  # unknown or already reported
            seen = [(item["host"], item["netdev"]) for item in (probe.get("neighbours") or {}).get(link["netdev"], ())]
            if neighbors.is_neighbour(seen, link["peer"], link["peer_netdev"]):
                continue
            if seen:
                wrong.append((host, link, seen))
            else:
                silent.append((host, link))
    ends = _ends(plan, probes)
    order = _another_order(plan, ends) if wrong else ""
    # hosts that only stand in another order have no cable in a wrong cage
    swapped, left = ([], wrong) if order else _swapped(wrong)
    left = [end for end in left if not _in_other_cage(end, probes)]
    return swapped + _wrong_ends(left, order) + [_silent_end(*end, probes) for end in silent]


def with_drawing(problems: Sequence[Finding], plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> list[Finding]:
    """The findings, the last one about a cable with a drawing of what is cabled, where hosts are cabled to hosts."""
    found = list(problems)
    about = ("cabling", "carrier", "half", "speed")
    last = max((index for index, one in enumerate(found) if one.id in about), default=None)
    rows = [] if last is None or not probes else _drawing(plan, probes)
    if last is not None and rows:
        found[last] = dataclasses.replace(found[last], fix=f"{found[last].fix}; cabled now: {'; '.join(rows)}")
    return found


def _drawing(plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> list[str]:
    """What frames showed of a ring, a line, a pair by both cages or the lanes of Thors; empty of anything else."""
    topology, links = next(((entry["topology"], entry["links"]) for entry in plan.values()), ("", []))
    if topology in CHAINS or (topology == "direct" and len({neighbors.port_of(link["netdev"]) for link in links}) > 1):
        by_lane = {
            (host, THOR_NETDEVS[netdev]): {
                (item["host"], THOR_NETDEVS[item["netdev"]]) for item in found if item["netdev"] in THOR_NETDEVS
            }
            for host in plan
            for netdev, found in ((probes.get(host) or {}).get("neighbours") or {}).items()
            if netdev in THOR_NETDEVS
        }
        return cabling.sketch_lanes(by_lane) or cabling.sketch(list(plan), _ends(plan, probes))
    return []


def switch_problems(plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> list[Finding]:
    """Hosts that one switch should join and that frames show otherwise: cabled to each other, or in parts.

    Frames that nobody received at all say nothing: a switch may drop what it does not know.
    """
    rails: dict[str, dict[str, str]] = {}
    for host, entry in plan.items():
        for link in entry["links"] if entry["topology"] == "switch" and probes.get(host) else ():
            port = neighbors.port_of(link["netdev"])
            # both halves of a cage share the cable, each lane of a Thor has wires of its own
            if (link["half"] == 0 or link["netdev"] in THOR_NETDEVS) and not _unheard(probes[host], port):
                rails.setdefault(link["subnet"], {})[host] = port
    hosts = list(dict.fromkeys(host for ports in rails.values() for host in ports))
    found = _apart(plan, probes, hosts) or _in_other_network(probes, list(rails.values()))
    # with two cages to switches, each is one network of its own; what is dark has a finding of its own
    lit = [{host: port for host, port in ports.items() if not _dark(probes[host], port)} for ports in rails.values()]
    return found or [
        dataclasses.replace(one, what=f"by {_wires(ports[hosts[0]])} of {hosts[0]} and those with it, {one.what}")
        for ports in lit
        for one in _apart(plan, probes, list(ports), ports)
    ]


def _in_other_network(probes: Mapping[str, Mapping[str, t.Any]], rails: Sequence[Mapping[str, str]]) -> list[Finding]:
    """Hosts that have another cage or lane than planned where the others have the planned one: by name they all hear
    each other, and no address would reach its subnet."""
    hosts = dict.fromkeys(host for ports in rails for host in ports)
    heard: dict[cabling.Port, set[str]] = {}
    for host in hosts:
        for netdev, found in (probes[host].get("neighbours") or {}).items():
            others = {f"{item['host']} {neighbors.port_of(item['netdev'])}" for item in found if item["host"] in hosts}
            heard.setdefault((f"{host} {neighbors.port_of(netdev)}", ""), set()).update(others)
    names = dict.fromkeys([*(name for name, _port in heard), *itertools.chain.from_iterable(heard.values())])
    networks = cabling.islands(list(names), heard)
    misplaced: dict[str, dict[str, tuple[str, str]]] = {}
    for ports in rails:
        planned = [f"{host} {port}" for host, port in ports.items()]
        right = max(networks, key=lambda one: (sum(name in one for name in planned), planned[0] in one), default=[])
        there = next((name for name in planned if name in right), "").partition(" ")
        for host, port in ports.items():
            own = [name.partition(" ")[2] for name in right if name.startswith(f"{host} ")]
            if own and port not in own and not _dark(probes[host], port):
                misplaced.setdefault(host, {})[own[0]] = (port, f"{_wires(there[2])} of {there[0]}")
    return [_misplaced(host, moves) for host, moves in misplaced.items()]


def _unheard(probe: Mapping[str, t.Any], port: str) -> bool:
    """Whether nobody knows what a port would hear: in check mode one that is set down stays so."""
    states = [state for netdev, state in (probe.get("ports") or {}).items() if neighbors.port_of(netdev) == port]
    return bool(states) and all(state["carrier"] is None for state in states)


def _dark(probe: Mapping[str, t.Any], port: str) -> bool:
    """Whether a port has no carrier, which is a finding of its own."""
    states = [state for netdev, state in (probe.get("ports") or {}).items() if neighbors.port_of(netdev) == port]
    return any(state["carrier"] is False for state in states)


def _misplaced(host: str, moves: Mapping[str, tuple[str, str]]) -> Finding:
    """``moves``: by the port that is there, the planned one, and a port of another host in that network."""
    what = "; ".join(
        f"{_wires(port)} is in one network with {other}, where the plan wants {_wires(wanted)}"
        for port, (wanted, other) in moves.items()
    )
    (port, (wanted, _other)), *more = moves.items()
    if more:
        fix = (
            f"swap the two cables at {host}" if len(more) == 1 else f"sort the lanes at {host} as the others have them"
        )
    else:
        fix = f"move the cable in {_wires(port)} of {host} to {_wires(wanted)}"
        fix += "" if port in THOR_NETDEVS else f", or set fabric_cage: {port[-1]} for it"
    return Finding("cabling", what, fix, host)


def _wires(port: str) -> str:
    return f"lane {THOR_NETDEVS[port]}" if port in THOR_NETDEVS else f"cage {port[-1]}"


def _apart(
    plan: Plan,
    probes: Mapping[str, Mapping[str, t.Any]],
    hosts: Sequence[str],
    ports: Mapping[str, str] | None = None,
) -> list[Finding]:
    """The same of all ports, or of one port of each host alone."""
    sees = {
        (host, netdev): {
            item["host"]
            for item in found
            if item["host"] in plan
            and (ports is None or neighbors.port_of(item["netdev"]) == ports.get(item["host"], ""))
        }
        for host in hosts
        for netdev, found in (probes[host].get("neighbours") or {}).items()
        if ports is None or neighbors.port_of(netdev) == ports[host]
    }
    # both halves of a cage share the cable
    by_cage: dict[cabling.Port, set[str]] = {}
    for (host, netdev), others in sees.items():
        by_cage.setdefault((host, neighbors.port_of(netdev)), set()).update(others)
    if len(hosts) < 2 or not any(by_cage.values()):
        return []
    parts = cabling.islands(hosts, by_cage)
    # two hosts on a switch hear each other alone as well, but none of the frames that only a cable passes on
    passed = len(parts) > 1 and all("cabled" in probes[host] for host in hosts)
    passed = passed and not any(cabled for host in hosts for cabled in probes[host]["cabled"].values())
    if all(len(part) > 1 for part in parts) and cabling.host_to_host(hosts, by_cage) and not passed:
        order, closed = cabling.walk(hosts, by_cage)
        shape = f"a {'ring' if closed else 'line'} ({cabling.drawn(order, closed)})" if order else "pairs"
        what = f"fabric_topology is switch, but the hosts are cabled as {shape}: each port hears one other host at most"
        fix = "join all hosts by one switch, or declare what is cabled (fabric_topology: ring, line or direct)"
        return [Finding("cabling", what, fix, ", ".join(hosts))]
    return [_parts(parts, probes, ports)] if len(parts) > 1 else []


def _parts(
    parts: Sequence[Sequence[str]], probes: Mapping[str, Mapping[str, t.Any]], ports: Mapping[str, str] | None
) -> Finding:
    """Hosts on switches that hear each other in parts: by what LLDP calls the switches, which of the causes it is."""
    names = [
        sorted(
            {
                name
                for host in part
                for netdev, name in (probes[host].get("switches") or {}).items()
                if ports is None or neighbors.port_of(netdev) == ports[host]
            }
        )
        for part in parts
    ]
    told = "; ".join(
        ", ".join(part) + (f" (switch {', '.join(own)})" if own else "") for part, own in zip(parts, names, strict=True)
    )
    moved = ", ".join(host for part in parts[1:] for host in part)
    known = {name for own in names for name in own}
    if all(names) and len(known) == sum(map(len, names)):
        fix = (
            f"nothing passes between the switches {', '.join(sorted(known))}: see that the link between them is up, "
            "carries the VLAN of these ports and is not blocked by RSTP, which a second way between them makes it do"
        )
    elif all(names) and len(known) == 1:
        fix = f"all are on {known.pop()}: put the ports of {moved} into the VLAN of the others there"
    elif all(len(part) == 1 for part in parts[1:]):
        fix = (
            f"see that the port of {moved} is in one VLAN with those of the others; its cable may also be in another "
            "switch, whose link to the first is down or blocked by RSTP"
        )
    else:
        fix = (
            "see that the switch has their ports in one VLAN and, with two switches, that the link between them is up "
            "and not blocked by RSTP; lldpd on the hosts tells which of the two it is"
        )
    return Finding("cabling", f"these hosts hear each other on the fabric and not the others: {told}", fix, moved)


def _in_other_cage(end: Seen, probes: Mapping[str, Mapping[str, t.Any]]) -> bool:
    """Whether the right host has the cable in its other cage, which its own ports already tell."""
    _host, link, seen = end
    peer_port = ((probes.get(link["peer"]) or {}).get("ports") or {}).get(link["peer_netdev"]) or {}
    return seen[0][0] == link["peer"] and peer_port.get("carrier") is False


def _wrong_ends(wrong: Sequence[Seen], order: str) -> list[Finding]:
    """Cables that end at somebody else; ``order`` says which order of hosts would make them right."""
    problems = []
    told: set[tuple[str, str]] = set()
    for host, link, seen in wrong:
        cage = (host, neighbors.port_of(link["netdev"]))
        if cage in told:  # both halves of a cable say the same
            continue
        told.add(cage)
        other_host, other_netdev = seen[0]
        fix = order or (
            f"move the end that is in {cage_name(other_netdev)} of {other_host} to "
            f"{cage_name(link['peer_netdev'])} of {link['peer']}"
        )
        problems.append(
            Finding(
                "cabling",
                f"NIC {link['netdev']} is cabled to {other_host} {other_netdev}, the plan wants {link['peer']} "
                f"{link['peer_netdev']} there",
                fix,
                host,
                link["netdev"],
            )
        )
    return problems


def _silent_end(host: str, link: t.Any, probes: Mapping[str, Mapping[str, t.Any]]) -> Finding:
    """A port with a carrier on which nobody of the cluster answered."""
    peer_port = ((probes.get(link["peer"]) or {}).get("ports") or {}).get(link["peer_netdev"]) or {}
    if not probes.get(link["peer"]) or peer_port.get("carrier") is None:
        severity, why = UNKNOWN, f"{link['peer']} was not probed there"
    else:
        severity, why = ERROR, f"nobody of this cluster answers on it, the plan wants {link['peer']} there"
    return Finding(
        "cabling",
        f"NIC {link['netdev']} has a carrier, but {why}",
        f"follow the cable from {cage_name(link['netdev'])}: its other end belongs in "
        f"{cage_name(link['peer_netdev'])} of {link['peer']}",
        host,
        link["netdev"],
        severity=severity,
    )


def _swapped(
    wrong: Sequence[Seen],
) -> tuple[list[Finding], list[Seen]]:
    """Hosts whose two cables changed places, as one problem each, and the wrong links that this does not explain."""
    ports: dict[str, dict[str, tuple[t.Any, list[tuple[str, str]]]]] = {}
    for host, link, seen in wrong:
        ports.setdefault(host, {}).setdefault(neighbors.port_of(link["netdev"]), (link, seen))
    problems = []
    swapped: set[str] = set()
    for host, found in ports.items():
        if len(found) != 2:
            continue
        (this, sees_one), (that, sees_two) = found.values()
        if neighbors.is_neighbour(sees_one, that["peer"], that["peer_netdev"]) and neighbors.is_neighbour(
            sees_two, this["peer"], this["peer_netdev"]
        ):
            swapped.add(host)
            fix = (
                f"swap the two cables at {host}: the one from {that['peer']} belongs in "
                f"{cage_name(that['netdev'])}, the one from {this['peer']} in {cage_name(this['netdev'])}"
            )
            if this["peer"] == that["peer"]:
                if this["peer"] in swapped:
                    continue  # both cables go to one host: swapped at both, they would be as wrong as before
                fix = f"swap the two cables at {host} alone, and leave {this['peer']} as it is"
            problems.append(
                Finding(
                    "cabling",
                    f"its two cables are swapped: NIC {this['netdev']} is cabled to {sees_one[0][0]} {sees_one[0][1]}, "
                    f"NIC {that['netdev']} to {sees_two[0][0]} {sees_two[0][1]}, the plan wants it the other way",
                    fix,
                    host,
                    this["netdev"],
                )
            )
    left = [
        (host, link, seen)
        for host, link, seen in wrong
        if host not in swapped and not (link["peer"] in swapped and any(name == link["peer"] for name, _netdev in seen))
    ]
    return problems, left


def _ends(plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> dict[cabling.End, set[cabling.End]]:
    """By host and cage, which hosts and cages of the cluster frames came from."""
    ends: dict[cabling.End, set[cabling.End]] = {}
    for host in plan:
        for netdev, found in ((probes.get(host) or {}).get("neighbours") or {}).items():
            if netdev in SPARK_NETDEVS:
                ends.setdefault((host, SPARK_NETDEVS[netdev][0]), set()).update(
                    (item["host"], SPARK_NETDEVS[item["netdev"]][0])
                    for item in found
                    if item["host"] in plan and item["netdev"] in SPARK_NETDEVS
                )
    return ends


def _another_order(plan: Plan, ends: Mapping[cabling.End, set[cabling.End]]) -> str:
    """What to do about a ring or a line that is cabled consistently, but in another order of the hosts; else empty."""
    hosts = list(plan)
    topology = plan[hosts[0]]["topology"]
    if topology not in CHAINS:
        return ""
    sees = {(host, f"p{cage}"): {name for name, _cage in others} for (host, cage), others in ends.items()}
    order, closed = cabling.walk(hosts, sees)
    if not order or closed != (topology == "ring"):
        return ""
    order, wrong = cabling.misplaced(order, closed, ends)
    if wrong or order == hosts:
        return ""
    if order == [hosts[0], *reversed(hosts[1:])]:
        return (
            f"the ring runs the other way round: list the hosts as {', '.join(order)}, or swap both cables on every "
            "host"
        )
    return f"the cables join the hosts in another order: list them as {', '.join(order)} (the first is the head)"


def with_peers(
    links: Sequence[Mapping[str, t.Any]],
    hostvars: Mapping[str, t.Any],
    host: str = "",
    fabric: Mapping[str, t.Any] | None = None,
    together: Collection[str] = (),
) -> list[dict[str, t.Any]]:
    """The links, each with ``peer_up``: whether the NIC at its other end was up before anything was probed.

    A link whose both ends were up and that has no carrier will not get one by waiting, and no host knows both. A link
    to a switch has ``hosts`` instead: those that probe ``together`` with this one and should be heard there.
    """
    up = {peer: _up(hostvars, peer) for peer in {link.get("peer") for link in links} if peer}
    found = []
    for link in links:
        half = {**link, "peer_up": link.get("peer_netdev") in up.get(link.get("peer"), ())}
        if not link.get("peer") and together:
            half["hosts"] = [
                other
                for other in together
                if other != host
                and any(
                    there["subnet"] == link.get("subnet")
                    for there in ((fabric or {}).get(other) or {}).get("links", ())
                )
            ]
        found.append(half)
    return found


def _up(hostvars: Mapping[str, t.Any], peer: str) -> set[str]:
    facts = (hostvars[peer].get("ansible_facts") or {}) if peer in hostvars else {}
    interfaces = (facts.get("sparkthor_node") or {}).get("interfaces") or []
    return {item["name"] for item in interfaces if item.get("up")}
