# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run is about to do to a cluster that is there: hosts that come and go, the head, cables and addresses.

The inventory says what is wanted; what the last run declared, and what the NICs carry now, the hosts say themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.machine import told_apart
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import generation
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import ipv4_network_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS, THOR_NETDEVS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import CHAINS

Nodes = Mapping[str, Mapping[str, Any]]
_GIB = 2**30


def announced(
    cluster: Mapping[str, Any], fabric: Mapping[str, Mapping[str, Any]], nodes: Nodes, cidr: Any = None
) -> list[str]:
    """One line for each change, and one for what it costs; empty for a first run and where nothing of this changes.

    ``cluster`` may be the plan of one serving group; ``fabric`` and ``nodes`` are of all hosts. ``cidr`` is the range
    of the fabric's addresses, by which those that NICs only lose are told from addresses of others.
    """
    before = _before(cluster, nodes)
    if not before:
        return []
    now, then = list(cluster["hosts"]), [str(name) for name in before.get("hosts") or ()]
    former = _former(then, before, fabric, nodes)
    lines = _members(now, then, former, nodes) if then else []
    if before["head"] != former.get(cluster["head"], cluster["head"]):
        lines.append(
            f"the head moves from {before['head']} to {cluster['head']}: clients need its address, and Ray on a former "
            "head stays down"
        )
    topology = str(before.get("topology") or "")
    if topology and topology != cluster["topology"]:
        lines.append(f"the topology changes from {topology} to {cluster['topology']}")
    executor, wanted = str(before.get("executor") or ""), str(cluster.get("executor") or "")
    if executor and wanted and executor != wanted:
        why = (cluster.get("serving") or {}).get("executor_why")
        lines.append(
            f"the executor changes from {executor} to {wanted}{f' ({why})' if why else ''}: "
            f"{'Ray stops on all hosts' if executor == 'ray' else 'the units of the workers stop, and Ray starts'}"
        )
    known = {host for host in now if host in then or host in former}
    moved = {host: found for host in now if host in known and (found := _moved(fabric[host], nodes[host], cidr))}
    lines += [f"{host}: {', '.join(found)}" for host, found in moved.items()]
    if moved and topology in CHAINS and cluster["topology"] in CHAINS and _recut(fabric, nodes, list(moved)):
        lines.append(
            "below a /16 a ring of three or four has larger subnets than a line and a longer ring have, so all "
            "addresses change"
        )
    if moved and set(then) - set(former.values()) - set(fabric) and cluster["topology"] in ("direct", "switch"):
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
    same = [declared_before for declared_before in known if declared_before.get("cluster") == cluster["id"]]
    # serving groups that were one cluster once share its name: a host that comes from another knows that one
    head = str(nodes[cluster["head"]].get("machine") or cluster["head"])
    by_head = [
        declared_before
        for declared_before in same
        if cluster["head"] in (declared_before.get("hosts") or ())
        or head in (declared_before.get("machines") or {}).values()
    ]
    return max(
        by_head or same, key=lambda declared_before: generation.known(declared_before.get("generation")), default={}
    )


def _former(
    then: Sequence[str], before: Mapping[str, Any], everywhere: Collection[str], nodes: Nodes
) -> dict[str, str]:
    """Of the hosts of now that belonged to the cluster, each with its name then: by machine, else by the name that it
    was declared under, else by the same name."""
    names = {machine: name for name, machine in told_apart(before.get("machines") or {}).items()}
    machines = told_apart({host: str(nodes[host].get("machine") or "") for host in everywhere})
    names_before = {host: names[one] for host, one in machines.items() if one in names}
    declared = {host: nodes[host].get("declared") or {} for host in everywhere}
    here = {host: one for host, one in declared.items() if one.get("cluster") == before.get("cluster")}
    own = told_apart({host: str(one.get("host") or "") for host, one in here.items()})
    for host in sorted(set(everywhere) - set(names_before)):
        name = own.get(host, host)
        # a machine that is known to be another one has the name alone
        if name in set(then) - set(names_before.values()) and (host not in machines or name not in names.values()):
            names_before[host] = name
    return names_before


def _members(now: Sequence[str], then: Sequence[str], former: Mapping[str, str], nodes: Nodes) -> list[str]:
    """``former`` has those hosts of all groups that were in the cluster, with their names then."""
    lines = []
    for host in now:
        name = former.get(host)
        if name not in (None, host):
            lines.append(f"{host} is the machine that was called {name}: it stays, and nothing is torn down")
        if host not in then and name is None:
            lines.append(f"{host} is added")
        elif name is None or not nodes[host].get("declared"):
            lines.append(
                f"{host} is another machine than before, or was made anew: it gets engine and models from the others"
            )
    called = {name: host for host, name in former.items()}
    for name in then:
        if name in called:
            lines += [f"{called[name]} goes to another serving group"] if called[name] not in now else []
        # of a name that another machine has now, the line of that one says it
        elif name not in now:
            lines.append(
                f"{name} leaves the cluster: nothing is changed on it. If it lives and was not torn down, do that with "
                f"the former inventory: teardown.yml --limit {name} -e teardown_parts=all; if others have it now, run "
                "rotate_ray_token.yml"
            )
    return lines


def _carried(node: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        item["name"]: [str(one["address"]) for one in item.get("addresses") or () if one.get("family") == "inet"]
        for item in node.get("interfaces") or ()
    }


def _moved(planned: Mapping[str, Any], node: Mapping[str, Any], cidr: Any) -> list[str]:
    """NICs that get another address than the one they carry, and NICs of the fabric that lose theirs."""
    carried, links = _carried(node), planned.get("links") or ()
    moves = []
    for link in links if planned.get("addressing") == "managed" else ():
        name, address = str(link["netdev"]), str(link["address"])
        there = carried.get(name, [])
        if address not in there:
            moves.append(f"{name} gets {address}" + (f" instead of {', '.join(there)}" if there else ""))
    used = {str(link["netdev"]) for link in links}
    network = ipv4_network_of(str(cidr)) if cidr else None
    for name, there in carried.items():
        if network is None or name in used or name not in (*SPARK_NETDEVS, *THOR_NETDEVS):
            continue
        gone = [one for one in there if (own := ipv4_network_of(one)) is not None and own in network]
        moves += [f"{name} loses {', '.join(gone)}"] if gone else []
    return moves


def _recut(fabric: Mapping[str, Mapping[str, Any]], nodes: Nodes, hosts: Sequence[str]) -> bool:
    """Whether NICs of these hosts have subnets of another length than planned."""
    return any(
        there.rpartition("/")[2] != str(link["address"]).rpartition("/")[2]
        for host in hosts
        for link in fabric[host]["links"]
        for there in _carried(nodes[host]).get(str(link["netdev"]), ())
    )


def _cost(cluster: Mapping[str, Any]) -> str:
    memory = (cluster.get("serving") or {}).get("memory") or {}
    weights = memory.get("weights_bytes_per_rank")
    load = f" ({weights / _GIB:.0f} GiB of weights for each GPU)" if weights else ""
    return f"serving stops once, until all hosts are ready and the model is loaded again{load}"
