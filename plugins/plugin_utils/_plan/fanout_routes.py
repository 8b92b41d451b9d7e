# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gets what from whom: the routes of a fan-out, worked out from the fabric plan alone.

Two hosts are neighbours where links of theirs lie in one subnet, so a ring's hosts have the two beside them and a
switch's hosts have all others. Every pair of such links is a path, and all paths of a pair of hosts carry data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import subnet_of

SHAPES = ("chain", "tree")
#: of a tree on a switch: every host sends this many copies, so the time is as many times the size over the link rate
BRANCHES = 2
#: a part is the unit of forwarding, resuming and repair: small sets need small ones to fill a long chain
PART_MIN = 512 << 10
PART_MAX = 16 << 20
PARTS_WANTED = 4096


class RouteError(Exception):
    """A sentence for the user."""


class Route(NamedTuple):
    upstreams: list[dict[str, Any]]  # {node, paths: [[own address, its address], ...]}, the best first
    behind: list[str]  # hosts that depend on this one, directly or not


def part_size(total: int) -> int:
    size = PART_MIN
    while size < PART_MAX and total > size * PARTS_WANTED:
        size *= 2
    return size


def addresses(links: Iterable[Mapping[str, Any]]) -> list[str]:
    return [str(link["address"]).partition("/")[0] for link in links]


def paths(own: Iterable[Mapping[str, Any]], other: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Pairs of addresses that reach each other directly, by half."""
    routes = []
    other = list(other)
    for link in own:
        subnet = subnet_of(str(link["address"]))
        for far in other:
            if subnet_of(str(far["address"])) == subnet:
                routes.append(addresses([link, far]))
    return routes


def routes(fabric: Mapping[str, Mapping[str, Any]], order: Sequence[str], shape: str = "chain") -> dict[str, Route]:
    """The route of every host; ``order`` begins with the host that has everything."""
    if shape not in SHAPES:
        raise RouteError(f"model_store_shape: {shape!r} is not one of {', '.join(SHAPES)}")
    links: dict[str, Sequence[Mapping[str, Any]]] = {}
    for host in order:
        links[host] = (fabric.get(host) or {}).get("links") or []
        if not links[host]:
            raise RouteError(f"{host} has no link in the fabric plan, so nothing can be brought to it over the fabric")
    between = {(a, b): paths(links[a], links[b]) for a in order for b in order if a != b}
    near = {host: [other for other in order if other != host and between[host, other]] for host in order}
    # where every pair shares a subnet of its own, each host has a cable to each: a chain would leave one unused
    subnets = [subnet_of(str(link["address"])) for host in order for link in links[host]]
    cables = len(order) > 2 and all(subnets.count(subnet) <= 2 for subnet in subnets)
    full = not cables and all(len(near[host]) == len(order) - 1 for host in order)
    first = order[0]
    if full:
        width = 1 if shape == "chain" else BRANCHES
        parent = {host: order[(place - 1) // width] for place, host in enumerate(order) if place}
        # a chain that is not the fabric's own is cheap to fix: whoever is before the one before takes over
        spare = {host: [*reversed(_ancestors(parent, host))] for place, host in enumerate(order) if place}
    else:
        parent = _nearest(near, first)
        lost = [host for host in order if host != first and host not in parent]
        if lost:
            raise RouteError(f"{', '.join(lost)}: no fabric link leads there from {first}, directly or over neighbours")
        spare = {host: [parent[host], *(other for other in near[host] if other != parent[host])] for host in parent}
    behind: dict[str, list[str]] = {host: [] for host in order}
    for host in order[1:]:
        for ancestor in _ancestors(parent, host):
            behind[ancestor].append(host)
    result = {first: Route([], behind[first])}
    for host in order[1:]:
        ups = [{"node": other, "paths": between[host, other]} for other in spare[host]]
        result[host] = Route(ups, behind[host])
    return result


def _ancestors(parent: Mapping[str, str], host: str) -> list[str]:
    """From the first host down to the one before ``host``."""
    found = []
    while host in parent:
        host = parent[host]
        found.append(host)
    return found[::-1]


def _nearest(near: Mapping[str, Sequence[str]], first: str) -> dict[str, str]:
    """Of each host the neighbour by which the first is nearest; arms of a ring get one cable each."""
    parent: dict[str, str] = {}
    reached, waiting = {first}, [first]
    while waiting:
        host = waiting.pop(0)
        for other in near[host]:
            if other not in reached:
                parent[other] = host
                reached.add(other)
                waiting.append(other)
    return parent


def choose_seed(missing: Mapping[str, int], head: str) -> str:
    """The host that lacks least; the head among equals, else the first."""
    least = min(missing.values())
    best = [host for host, count in missing.items() if count == least]
    return head if head in best else best[0]
