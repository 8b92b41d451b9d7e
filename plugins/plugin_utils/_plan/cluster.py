# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From groups, variables and facts of all hosts to the one plan that every role reads.

Pure: no connection, no files.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import generation
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_speed, fabric_values, host_gpu, ring
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import address_of, ipv4_interface_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import most_gpus, one_lan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

if TYPE_CHECKING:
    from netaddr import IPAddress, IPNetwork


class ClusterError(ValueError):
    """The facts contradict the inventory; ``findings`` holds every problem with its fix."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = findings
        super().__init__("\n".join(str(finding) for finding in self.findings))


def stand_in(kind: str, netdev: str, address: str, cidr: str) -> dict[str, Any]:
    """What the plan reads of a host's facts, for a host that did not give any."""
    return {
        "kind": kind,
        "product": "",
        "gpu_names": [],
        "gpus": 1,
        "management": {"netdev": netdev, "address": address, "cidr": cidr},
    }


def _interfaces(cidrs: Iterable[str]) -> list[IPNetwork]:
    """Those of IPv4."""
    found = []
    for cidr in cidrs:
        with contextlib.suppress(ValueError):
            found.append(ipv4_interface_of(cidr))
    return found


def _ipv4_address(text: str) -> IPAddress:
    address = address_of(text)
    if address.version != 4:
        raise ValueError(text)
    return address


def stand_in_cidrs(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], known: Mapping[str, str]
) -> dict[str, str]:
    """A management network for every host: the one it told, else what ``ansible_host`` says, else one made up.

    ``ansible_host`` may be a name, which is not looked up here: since nothing is written, any free address beside those
    of the others will do, so that the plan of the hosts that answered can be made. With ``fabric_lan_nic`` it may be an
    address of another NIC, which says nothing about the network that peers use.
    """
    cidrs = {host: cidr for host, cidr in known.items() if "/" in cidr}
    prefix = next(iter(cidrs.values()), "/24").rpartition("/")[2]
    shared = [interface.cidr for interface in _interfaces(cidrs.values())]
    for host in hosts:
        with contextlib.suppress(ValueError):
            address = _ipv4_address(str(hostvars[host].get("ansible_host", host)))
            if hostvars[host].get("fabric_lan_nic") and shared and not any(address in network for network in shared):
                continue
            cidrs.setdefault(host, f"{address}/{prefix}")
    interfaces = _interfaces(cidrs.values())
    networks = [interface.cidr for interface in interfaces]
    taken = {interface.ip for interface in interfaces}
    # networks kept for documents and measurements where the others' has no room, as one of a single address
    spare = (
        f"{address}/{network.prefixlen}"
        for network in [*networks[:1], *map(ipv4_interface_of, ("192.0.2.0/24", "198.18.0.0/15"))]
        for address in (network[-2 - number] for number in range(network.size - 2))
        if address not in taken
    )
    return {host: cidrs.get(host) or next(spare) for host in hosts}


def kind_problems(asserted: Mapping[str, str], nodes: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Hosts whose detected kind is not the one their group asserts."""
    return [
        Finding(
            "kind",
            f"group {kind}s says it is a {kind}, but it is a {nodes[host]['kind']} "
            f"(product {nodes[host]['product'] or 'unknown'}, GPUs {nodes[host]['gpu_names'] or 'none'})",
            "correct the group or the host's address",
            host,
        )
        for host, kind in asserted.items()
        if host in nodes and nodes[host]["kind"] != kind
    ]


def shared_nic(host: str, variables: Mapping[str, Any], node: Mapping[str, Any]) -> tuple[str, str]:
    """NIC and address (with its length) by which peers reach a host beside its fabric: those of ssh, unless told."""
    management, wanted = node["management"], str(variables.get("fabric_lan_nic") or "")
    if not wanted:
        return management["netdev"], management["cidr"]
    interfaces = node.get("interfaces") or []
    if not interfaces or (wanted == management["netdev"] and ":" not in management["cidr"]):
        # nobody could read the addresses of a host that is only assumed or did not answer
        return wanted, management["cidr"]
    addresses = [
        str(item["address"])
        for interface in interfaces
        if interface["name"] == wanted
        for item in interface["addresses"]
        if item.get("family") == "inet"
        and item.get("scope") == "global"
        # which may be another host's the next moment
        and str(item["address"]).partition("/")[0] != (node.get("declared") or {}).get("virtual")
    ]
    if not addresses:
        what = f"fabric_lan_nic of host {host} is {wanted}, which has no IPv4 address there"
        raise ClusterError(Finding("lan_nic", what, "name the NIC that has the host's address in the LAN"))
    return wanted, addresses[0]


def told_cidrs(
    hostvars: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, str], dict[str, Finding]]:
    """By which address peers reach the hosts that answered, and why it cannot be told of the others among them."""
    known: dict[str, str] = {}
    lost: dict[str, Finding] = {}
    for host, node in nodes.items():
        variables = hostvars[host]
        try:
            known[host] = shared_nic(host, variables, node)[1]
        except ClusterError as error:
            lost[host] = error.findings[0]
    return known, lost


def with_cidr(node: Mapping[str, Any], cidr: str) -> dict[str, Any]:
    """Facts of a host that answered but lacks the address that peers use: with a made-up one, so that others plan."""
    return {**node, "interfaces": [], "management": {**node["management"], "cidr": cidr}}


def management_problems(nodes: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    return [
        Finding(
            "management",
            "the interface the controller came in by could not be found among its addresses",
            "set ansible_host to an address that the host itself carries",
            host,
        )
        for host, node in nodes.items()
        if not node["management"]["netdev"]
    ]


def gpu_count(variables: Mapping[str, Any], node: Mapping[str, Any]) -> int:
    """GPUs that Ray may book on a host: ``ray_node_num_gpus`` where set, else what was detected."""
    given = variables.get("ray_node_num_gpus")
    return int(given) if given not in (None, "", "auto") else int(node["gpus"])


def gpu_problems(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], nodes: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    """Hosts of which Ray would book more GPUs than they have."""
    found: dict[Finding, list[str]] = {}
    for host in hosts:
        given = hostvars[host].get("ray_node_num_gpus")
        most, words = most_gpus(nodes[host])
        if most is not None and given not in (None, "", "auto") and int(given) > most:
            fix = f"give {most}, or remove the line" if most else "install the driver, or remove the line"
            one = Finding("gpus", words, fix, where="ray_node_num_gpus", value=int(given))
            found.setdefault(one, []).append(host)
        elif given in (None, "", "auto"):
            what, fix = host_gpu.missing(nodes[host])
            if what:
                found[Finding("gpus", what, fix, host)] = [host]
    return [replace(finding, host=", ".join(named)) for finding, named in found.items()]


def stated_gpu_problems(
    groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    """The same of hosts whose kind the inventory's groups state, before any of them is asked."""
    stated = {
        host: {"kind": kind}
        for host, kind in inventory.asserted_kinds(groups).items()
        # what is no number is told by the check of the roles' arguments
        if str(hostvars.get(host, {}).get("ray_node_num_gpus")).strip().isdecimal()
    }
    return gpu_problems(list(stated), hostvars, stated)


def head_generation(head: str, nodes: Mapping[str, Mapping[str, Any]]) -> int:
    """A number that grows whenever another host is declared head; the same head keeps it.

    Hosts are told apart by name: addresses are counted in the inventory's order, and the new head may get the former
    one's. A former head that was away meanwhile comes back with a lower one, and stays down. What any host has heard
    of counts as well as what it was declared: a head that stays down for a number would do so for ever below it.
    """
    known = [node["declared"] for node in nodes.values() if node.get("declared")]
    # no host is believed further than another one confirms: it could take all the others' numbers from them
    declared = generation.believed(one.get("generation") for one in known)
    newest = generation.believed(one.get("seen") for one in known)
    another = any(one["head"] != head for one in known) or newest > declared
    return max(declared, newest) + 1 if another else max(declared, 1)


def cluster_id(head: str, hosts: Sequence[str], nodes: Mapping[str, Mapping[str, Any]]) -> str:
    """A name that a cluster keeps while its hosts and its head change: only a head of the same one can be superseded.

    It is the head's own, else that of most of the other hosts, else made from what the first run finds.
    """
    known = [str((nodes[host].get("declared") or {}).get("cluster") or "") for host in (head, *hosts)]
    if known[0]:
        return known[0]
    others = Counter(one for one in known if one)
    if others:
        return others.most_common(1)[0][0]
    words = [f"{host} {nodes[host]['management']['address']}" for host in sorted(hosts)]
    return hashlib.sha256("\n".join([head, *words]).encode()).hexdigest()[:16]


def plan_cluster(
    groups: Mapping[str, Sequence[str]],
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """``(sparkthor_cluster, sparkthor_fabric, warnings)`` for hosts in plan order (the head first).

    Raises :class:`ClusterError` with every problem that the facts show.
    """
    head, first = hosts[0], hostvars[hosts[0]]
    topology = first["fabric_topology"]
    if topology == "lan":
        nodes = one_lan({host: nodes[host] for host in hosts})
    findings = kind_problems(inventory.asserted_kinds(groups), nodes) + management_problems(nodes)
    findings += gpu_problems(hosts, hostvars, nodes)
    if findings:
        raise ClusterError(*findings)
    kinds = {host: nodes[host]["kind"] for host in hosts}
    shared = {host: shared_nic(host, hostvars[host], nodes[host]) for host in hosts}
    try:
        fabric = fabric_plan(
            list(hosts),
            topology=topology,
            cidr=first.get("fabric_cidr"),
            cage=inventory.cages(hostvars),
            mtu=first.get("fabric_mtu"),
            reserved=first.get("fabric_reserved"),
            nccl_patch=first.get("fabric_nccl_patch"),
            control_nics=[host for host in hosts if hostvars[host].get("fabric_lan_nic")],
            management={host: shared[host][1] for host in hosts},
            kinds=kinds,
            nics={host: shared[host][0] for host in hosts},
            overrides=inventory.overrides(hostvars),
            ray_head=head,
            ray_ports=first.get("ray_node_ports"),
            lanes=first.get("fabric_lanes"),
        )
    except FabricError as error:
        raise ClusterError(error.finding) from error
    for host in hosts:
        fabric[host]["management_address"] = nodes[host]["management"]["address"]
        fabric[host]["management_netdev"] = nodes[host]["management"]["netdev"]
        fabric[host]["speed"] = fabric_speed.planned(hostvars[host])
        link = fabric[host]["links"][0] if topology == "lan" else None
        if link and link["mtu"] is None and (mtu := _lan_mtu(nodes[host], link["netdev"])):
            fabric[host]["lan_mtu"] = mtu
    for host in hosts:
        fabric[host]["speeds"] = fabric_speed.by_netdev(fabric, host)
    warnings = fabric_values.unused(topology, hosts, hostvars)
    return _serving_together(hosts, hostvars, nodes, fabric), fabric, warnings


def _lan_mtu(node: Mapping[str, Any], netdev: str) -> int:
    """What the NIC has; 0 where the host could not be asked. IPv4 knows none below 68."""
    mtus = [int(one["mtu"]) for one in node.get("interfaces") or () if one["name"] == netdev and one.get("mtu")]
    return max(mtus[0], 68) if mtus else 0


def plan_parts(
    parts: Sequence[inventory.Part],
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    fabric: dict[str, Any],
) -> dict[str, dict[str, Any]]:
    """By the name of each serving group what ``sparkthor_cluster`` is to its hosts: a cluster of its own.

    In ``fabric``, which all of them share, each host gets the Ray of its own group.
    """
    plans = {}
    for part in parts:
        ring.adapt(fabric, part.hosts)
        own = _serving_together(part.hosts, hostvars, nodes, fabric)
        own.update(group=part.name, summary=f"{part.name}: {own['summary']}")
        plans[part.name] = own
        for host in part.hosts:
            env = fabric[host]["env"]
            env["RAY_ADDRESS"] = f"{own['head_address']}:{env['RAY_ADDRESS'].rpartition(':')[2]}"
    return plans


def plan_cluster_beside(
    name: str,
    host: str,
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Any],
) -> dict[str, Any]:
    """The plan of a group on a host that has one of its own: a cluster of that host, without a Ray."""
    own = _serving_together([host], hostvars, nodes, fabric)
    return {**own, "group": name, "summary": f"{name}: beside another group on {host}"}


def _serving_together(
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Any],
) -> dict[str, Any]:
    """``sparkthor_cluster`` for hosts that serve one model, the head first."""
    head = hosts[0]
    topology, profile = fabric[head]["topology"], fabric[head]["profile"]
    kinds = {host: fabric[host]["kind"] for host in hosts}
    gpus = {host: gpu_count(hostvars[host], nodes[host]) for host in hosts}
    cluster = {
        "topology": topology,
        "profile": profile,
        "hosts": list(hosts),
        "head": head,
        "workers": list(hosts[1:]),
        "head_address": fabric[head]["control_address"],
        "control": _control_of(fabric[head]),
        # heads of other serving groups are nobody's former heads
        "generation": head_generation(head, {host: nodes[host] for host in hosts}),
        "id": cluster_id(head, hosts, nodes),
        "machines": {host: str(nodes[host].get("machine") or "") for host in hosts},
        "kinds": kinds,
        "gpus": gpus,
        "world": sum(gpus.values()),
    }
    shown = ", ".join(f"{host} {kinds[host]}" for host in hosts)
    cluster["summary"] = (
        f"{topology}, {_count(len(hosts), 'host')} ({shown}), head {head} on {cluster['head_address']}, "
        f"{_count(cluster['world'], 'GPU')}, {_transport(hosts, topology, profile, kinds)}"
    )
    return cluster


def _control_of(entry: Mapping[str, Any]) -> str:
    """Whether peers reach a host over its fabric or over the LAN that it shares with others."""
    own = {link["netdev"] for link in entry["links"]} if entry["addressing"] == "managed" else set()
    return "fabric" if entry["control_netdev"] in own else "management"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _transport(hosts: Sequence[str], topology: str, profile: str, kinds: Mapping[str, str]) -> str:
    """What carries the traffic of the ranks, and why."""
    if len(hosts) == 1:
        return "no network between ranks"
    if profile == "roce":
        return "RoCE"
    without = [host for host in hosts if kinds[host] == "thor"]
    if without and len(without) < len(hosts):
        return f"TCP on every rank: one transport for all, because {', '.join(without)} has no RDMA"
    if without and topology != "lan":
        return "TCP on every rank: over the lanes of the QSFP cages, for a Thor has no RDMA"
    if topology in ring.CHAINS:
        return "TCP on every rank: their cables make no closed ring, which NCCL needs"
    return "TCP on every rank: the topology lan has no fabric"
