# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What frames tell of the cables between hosts: a switch, cables from host to host, or parts without a way between."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._network.neighbors import port_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS

#: a port of a host: its name, and a port's name
Port = tuple[str, str]
#: an end of a cable: a host and its cage
End = tuple[str, int]


def islands(hosts: Sequence[str], sees: Mapping[Port, Set[str]]) -> list[list[str]]:
    """The hosts in groups that hear each other, directly or by others; in the order of ``hosts``.

    ``sees`` has, by port, the hosts whose frames came in there. A frame that came one way is enough.
    """
    heard: dict[str, set[str]] = {host: set() for host in hosts}
    for (host, _port), others in sees.items():
        for other in others:
            if host in heard and other in heard and other != host:
                heard[host].add(other)
                heard[other].add(host)
    groups: list[list[str]] = []
    left = list(hosts)
    while left:
        group, border = set(), {left[0]}
        while border:
            group |= border
            border = {other for host in border for other in heard[host]} - group
        groups.append([host for host in left if host in group])
        left = [host for host in left if host not in group]
    return groups


def what_is_left(links: Sequence[Mapping[str, Any]], lit: Collection[str]) -> str:
    """Of a host with a cable in each cage to the same place, one of them lost: which it serves on with, in words.

    ``lit`` are the NICs with a carrier. Empty where no cable or all are lost, and where each leads to another host.
    """
    by_place: dict[str, dict[str, list[str]]] = {}
    for link in links:
        if (netdev := str(link["netdev"])) in SPARK_NETDEVS:
            by_place.setdefault(str(link.get("peer") or ""), {}).setdefault(port_of(netdev), []).append(netdev)
    for ports in by_place.values():
        lost = [netdevs for netdevs in ports.values() if not set(netdevs) & set(lit)]
        left = [netdevs for netdevs in ports.values() if set(netdevs) & set(lit)]
        if lost and left:
            one, other = SPARK_NETDEVS[lost[0][0]][0], SPARK_NETDEVS[left[0][0]][0]
            return (
                f"one of two cables is lost: of cage {one}; the one of cage {other} is left, and NCCL uses it alone "
                "when the serving group starts again"
            )
    return ""


def host_to_host(hosts: Sequence[str], sees: Mapping[Port, Set[str]]) -> bool:
    """Whether cables go from host to host: no port of three or more hosts hears more than one other."""
    counts = [len(others) for others in sees.values()]
    return len(hosts) > 2 and any(counts) and max(counts) == 1


def walk(hosts: Sequence[str], sees: Mapping[Port, Set[str]]) -> tuple[list[str], bool]:
    """Hosts that are cabled in a line or a ring, one to the next, and whether it closes; empty where it is neither.

    It begins at the first host, or at an end of the line.
    """
    heard: dict[str, set[str]] = {host: set() for host in hosts}
    for (host, _port), others in sees.items():
        for other in others:
            heard[host].add(other)
            heard.setdefault(other, set()).add(host)
    ends = [host for host in hosts if len(heard[host]) == 1]
    if any(len(others) not in (1, 2) for others in heard.values()) or len(ends) not in (0, 2):
        return [], False
    order = [(ends or list(hosts))[0]]
    while following := [other for other in sorted(heard[order[-1]], key=list(heard).index) if other not in order]:
        order.append(following[0])
    return (order, not ends) if len(order) == len(hosts) else ([], False)


def drawn(order: Sequence[str], closed: bool) -> str:
    """A line or a ring in one line of text."""
    return " - ".join([*order, *([order[0]] if closed else [])])


def sketch(hosts: Sequence[str], ends: Mapping[End, Set[End]]) -> list[str]:
    """What is cabled, one line of text for each row of hosts: ``a p0=p1 b p0=p1 c``.

    ``ends`` has, by host and cage, what frames showed at the other end of the cable there.
    """
    left = list(hosts)
    lines: list[str] = []
    while left:
        alone = [(host, cage) for host in left for cage in (0, 1) if not ends.get((host, 1 - cage))]
        host, cage = next((end for end in alone if ends.get(end)), alone[0] if alone else (left[0], 0))
        line = host
        while host in left:
            left.remove(host)
            others = sorted(ends.get((host, cage)) or ())
            if not others:
                break
            if len({other for other, _cage in others}) > 1:
                line += f" p{cage}=switch"
                break
            other, far = others[0]
            line += f" p{cage}=p{far} {other}"
            host, cage = other, 1 - far
        lines.append(line)
    return lines


def sketch_lanes(ends: Mapping[End, Set[End]]) -> list[str]:
    """What is cabled, a line of text for each lane of Thors' cages that heard somebody."""
    lines = []
    said: set[frozenset[End]] = set()
    for (name, lane), others in sorted(ends.items()):
        if len({other for other, _far in others}) > 1:
            lines.append(f"{name} lane {lane} = switch")
            continue
        for other, far in sorted(others):
            pair = frozenset(((name, lane), (other, far)))
            if pair not in said:
                said.add(pair)
                lines.append(f"{name} lane {lane} = lane {far} {other}")
    return lines


def misplaced(order: Sequence[str], closed: bool, ends: Mapping[End, Set[End]]) -> tuple[list[str], list[str]]:
    """For hosts in a line or a ring: the order in which most cables go from cage 0 to cage 1 of the next host, and
    the hosts whose cables are in the wrong cages for it. On a ring the first host stays the first."""

    def wrong(row: Sequence[str]) -> list[str]:
        findings = []
        for index, host in enumerate(row):
            after = row[(index + 1) % len(row)] if closed or index + 1 < len(row) else ""
            before = row[index - 1] if closed or index else ""
            right = [(0, after), (1, before)]
            if any(name and name not in {other for other, _cage in ends.get((host, cage), ())} for cage, name in right):
                findings.append(host)
        return findings

    back = [order[0], *reversed(order[1:])] if closed else list(reversed(order))
    return min(((list(row), wrong(row)) for row in (order, back)), key=lambda findings: len(findings[1]))
