# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run is about to do to a cluster that is there: hosts that come and go, the head, cables and addresses.

The inventory says what is wanted; what the last run declared, and what the NICs carry now, the hosts say themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

Nodes = Mapping[str, Mapping[str, Any]]
_GIB = 2**30


def announced(cluster: Mapping[str, Any], fabric: Mapping[str, Mapping[str, Any]], nodes: Nodes) -> list[str]:
    """One line for each change, and one for what it costs; empty for a first run and where nothing of this changes.

    ``cluster`` may be the plan of one serving group; ``fabric`` and ``nodes`` are of all hosts.
    """
    before = _before(cluster, nodes)
    if not before:
        return []
    now, then = list(cluster["hosts"]), [str(name) for name in before.get("hosts") or ()]
    lines = _members(now, then, fabric, nodes) if then else []
    if before["head"] != cluster["head"]:
        lines.append(
            f"the head moves from {before['head']} to {cluster['head']}: clients need its address, and Ray on a former "
            "head stays down"
        )
    topology = str(before.get("topology") or "")
    if topology and topology != cluster["topology"]:
        lines.append(f"the topology changes from {topology} to {cluster['topology']}")
    moved = {host: found for host in now if host in then and (found := _moved(fabric[host], nodes[host]))}
    lines += [f"{host}: {', '.join(found)}" for host, found in moved.items()]
    if moved and set(then) - set(fabric) and cluster["topology"] in ("direct", "switch"):
        lines.append(
            "addresses follow the order of the inventory: fabric_reserved keeps the place of a host that is gone, and "
            "with it all other addresses"
        )
    if lines and any(nodes[host].get("serving") for host in now):
        lines.append(_cost(cluster))
    return [f"{cluster['group']}: {line}" for line in lines] if cluster.get("group") else lines


def _before(cluster: Mapping[str, Any], nodes: Nodes) -> Mapping[str, Any]:
    """What the newest run declared on a host of this cluster."""
    known = [declared for host in cluster["hosts"] if (declared := nodes[host].get("declared"))]
    same = [one for one in known if one.get("cluster") == cluster["id"]]
    # serving groups that were one cluster once share its name: a host that comes from another knows that one
    own = [one for one in same if cluster["head"] in (one.get("hosts") or ())]
    return max(own or same, key=lambda one: int(one["generation"]), default={})


def _members(now: Sequence[str], then: Sequence[str], everywhere: Collection[str], nodes: Nodes) -> list[str]:
    lines = []
    for host in now:
        fresh = not nodes[host].get("declared")
        if host not in then:
            lines.append(f"{host} is added")
        elif fresh:
            lines.append(
                f"{host} is another machine than before, or was made anew: it gets engine and models from the others"
            )
    for host in then:
        if host not in now and host in everywhere:
            lines.append(f"{host} goes to another serving group")
        elif host not in now:
            lines.append(
                f"{host} leaves the cluster: nothing is changed on it. If it lives and was not torn down, do that with "
                f"the former inventory: teardown.yml --limit {host} -e teardown_parts=all; if others have it now, run "
                "rotate_ray_token.yml"
            )
    return lines


def _moved(planned: Mapping[str, Any], node: Mapping[str, Any]) -> list[str]:
    """NICs that get another address than the one they carry."""
    if planned.get("addressing") != "managed":
        return []
    carried = {
        item["name"]: [str(one["address"]) for one in item.get("addresses") or () if one.get("family") == "inet"]
        for item in node.get("interfaces") or ()
    }
    found = []
    for link in planned["links"]:
        name, address = str(link["netdev"]), str(link["address"])
        there = carried.get(name, [])
        if address not in there:
            found.append(f"{name} gets {address}" + (f" instead of {', '.join(there)}" if there else ""))
    return found


def _cost(cluster: Mapping[str, Any]) -> str:
    memory = (cluster.get("serving") or {}).get("memory") or {}
    weights = memory.get("weights_bytes_per_rank")
    load = f" ({weights / _GIB:.0f} GiB of weights for each GPU)" if weights else ""
    return f"serving stops once, until all hosts are ready and the model is loaded again{load}"
