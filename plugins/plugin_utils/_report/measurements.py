# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which measurements verify takes on which hosts.  Runs on the controller; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._network.neighbors import port_of
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location


def _path(
    link: Mapping[str, Any], other: Mapping[str, Any], rdma: Mapping[str, Any], lan_mtus: Sequence[int | None]
) -> dict[str, Any]:
    mtus = [int(mtu) for mtu in (link.get("mtu"), other.get("mtu")) if mtu]
    here, theirs = rdma.get("own", {}), rdma.get("peer", {})
    return {
        "netdev": link["netdev"],
        "source": link["address"].partition("/")[0],
        "address": other["address"].partition("/")[0],
        # a LAN that is left as it is owes nobody more than Ethernet's own
        "wanted_mtu": min(mtus or [1500, *filter(None, lan_mtus)]),
        "peer_netdev": other["netdev"],
        "half": link["half"],
        "device": here.get("device") or link.get("device", ""),
        "peer_device": theirs.get("device") or other.get("device", ""),
        "gid_index": here.get("gid_index"),
        "peer_gid_index": theirs.get("gid_index"),
    }


def neighbours(fabric: Mapping[str, Mapping[str, Any]], host: str, hosts: Sequence[str]) -> list[str]:
    """To whom a host measures: over its own cables, or on a switch the next one, so that every port sends and takes."""
    peers = [link["peer"] for link in fabric[host]["links"] if link["peer"]]
    if peers:
        return list(dict.fromkeys(peers))
    if len(hosts) < 2:
        return []
    return [hosts[(list(hosts).index(host) + 1) % len(hosts)]]


def further(fabric: Mapping[str, Mapping[str, Any]], host: str, hosts: Sequence[str]) -> list[str]:
    """With four and more on switches also the host after the next one: with two switches some pairs cross the link
    between them and some do not, whichever way the hosts are listed."""
    if len(hosts) < 4 or any(link["peer"] for link in fabric[host]["links"]):
        return []
    return [hosts[(list(hosts).index(host) + 2) % len(hosts)]]


def link_tests(
    fabric: Mapping[str, Mapping[str, Any]],
    hosts: Sequence[str],
    rdma: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> dict[str, list[dict[str, Any]]]:
    """By host, its measurements: every half towards every neighbour, and both halves at once; one half further on."""
    tests: dict[str, list[dict[str, Any]]] = {host: [] for host in hosts}
    for host in hosts:
        beyond = further(fabric, host, hosts)
        for peer in [*neighbours(fabric, host, hosts), *beyond]:
            if peer not in hosts:
                continue
            paths = []
            for link in fabric[host]["links"]:
                if link["peer"] and link["peer"] != peer:
                    continue
                other = _other_end(fabric[peer]["links"], host, link)
                if other is None:
                    continue
                ports = {
                    "own": rdma.get(host, {}).get(link["netdev"], {}),
                    "peer": rdma.get(peer, {}).get(other["netdev"], {}),
                }
                paths.append(_path(link, other, ports, [fabric[end].get("lan_mtu") for end in (host, peer)]))
            how = "rdma" if all(path["device"] and path["peer_device"] for path in paths) and paths else "tcp"
            by_cage: dict[str, list[dict[str, Any]]] = {}
            for path in paths:
                by_cage.setdefault(port_of(path["netdev"]), []).append(path)
            for cage, found in by_cage.items():
                own_paths = found[:1] if peer in beyond else found
                # where two cables join the same hosts, each is measured by itself
                common = {"host": host, "peer": peer, "how": how, "cage": cage if len(by_cage) > 1 else ""}
                suffix = f"@{cage}" if common["cage"] else ""
                for path in own_paths:
                    tests[host].append({"id": f"{host}>{peer}:{path['half']}{suffix}", **common, "paths": [path]})
                if len(own_paths) > 1:
                    tests[host].append({"id": f"{host}>{peer}:both{suffix}", **common, "paths": own_paths})
    return tests


def found_by_test(
    tests: Mapping[str, Sequence[Mapping[str, Any]]], measured: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """By a test's id what the host that made it found; what a host says of others' tests does not count."""
    by_test: dict[str, dict[str, Any]] = {}
    for host, answer in measured.items():
        own = {test["id"]: test["how"] for test in tests[host]}
        by_test.update({item["id"]: item for item in answer.get("tests") or () if item["id"] in own})
        if answer.get("error"):
            by_test.update({name: {"error": answer["error"], "id": name, "how": how} for name, how in own.items()})
    return by_test


def _other_end(links: Sequence[Mapping[str, Any]], host: str, link: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for other in links:
        if link["peer"] and other["peer"] == host and other["netdev"] == link["peer_netdev"]:
            return other
        if not link["peer"] and other["subnet"] == link["subnet"]:
            return other
    return None


def collective_plan(hosts: Sequence[str], facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Which hosts can run a rank of the all-reduce, and by which Python."""
    containers = [host for host in hosts if host in facts and facts[host]["engine"]["runtime"] == "container"]
    python = {
        host: location.command("container", "rank")
        if host in containers
        else [f"{facts[host]['engine']['path']}/bin/python"]
        for host in hosts
        if host in facts and (host in containers or facts[host]["versions"].get("torch"))
    }
    return {"with_engine": list(python), "in_container": containers, "python": python}
