# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts that are assumed for a host of a kind, to plan and to render files without any host.

The values are those of the machines as sold; every fact that decides what is written on a real host is read there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    address_of,
    common_network,
    interface_of,
    ipv4_interface_of,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

GIB = 2**30
#: management NIC, kernel's MemTotal, GPU and how many of it a machine has, by kind (NVIDIA's DGX Spark and Jetson Thor
#: documentation; forum reports of /proc/meminfo).  64 GB machines exist: sizing for a real host reads its own.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "spark": {
        "netdev": "enP7s7",
        "memory": int(121.69 * GIB),
        "gpus": 1,
        "gpu": "NVIDIA GB10",
        "arch": "aarch64",
        "product": "NVIDIA DGX Spark",
    },
    "thor": {
        "netdev": "enP2p1s0",
        "memory": int(122.8 * GIB),
        "gpus": 1,
        "gpu": "NVIDIA Thor",
        "arch": "aarch64",
        "product": "NVIDIA Jetson AGX Thor",
    },
    "generic": {"netdev": "eth0", "memory": 64 * GIB, "gpu": "GPU", "arch": "x86_64", "product": ""},
}
#: set aside for benchmarks (RFC 2544): never somebody's LAN
SPARE = "198.18.0.0/15"
PREFIX = 24
#: no network of private addresses is larger
SHORTEST = 8


def assumed_node(kind: str, number: int, address: str = "") -> dict[str, Any]:
    """The fact ``sparkthor_node`` as a host of this kind would give it.

    ``number`` is the host's place in the inventory, from 0; ``address`` its management address, if the inventory gives
    one that is an address and no name.  Raises ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is not one of {', '.join(KINDS)}")
    known = KINDS[kind]
    try:
        management = interface_of(f"{address}/{PREFIX}")
    except FabricError:
        raise
    except ValueError:
        # one subnet for all, so that nobody takes them for several LANs
        spare = ipv4_interface_of(SPARE)
        management = interface_of(f"{spare[number + 10]}/{spare.prefixlen}")
    return {
        "assumed": True,
        "kind": kind,
        "product": known["product"],
        "arch": known["arch"],
        "gpus": 1,
        "gpu_names": [known["gpu"]],
        "cpus": 20,
        "mem_total_bytes": known["memory"],
        "mem_available_bytes": int(known["memory"] * 0.95),
        "swap_total_bytes": 0,
        "disk_free_bytes": 1000 * GIB,
        "interfaces": [],
        "routes": [],
        "binaries": {},
        "secrets": [],
        "management": {
            "netdev": known["netdev"],
            "address": str(management.ip),
            "cidr": str(management),
        },
    }


def most_gpus(node: Mapping[str, Any]) -> tuple[int | None, str]:
    """GPUs that a host with these facts has at most, and why in words; None where only the host would know.

    What a driver shows of a Spark or a Thor is not asked: it may show none for now.
    """
    kind = str(node["kind"])
    if "gpus" in KINDS.get(kind, {}):
        number = int(KINDS[kind]["gpus"])
        return number, f"a {kind.capitalize()} has {'one GPU' if number == 1 else f'{number} GPUs'}"
    if node.get("assumed"):
        return None, ""
    number = int(node["gpus"])
    return number, f"the driver shows {number or 'no'} GPU{'' if number == 1 else 's'}"


def assumed_nodes(
    groups: Mapping[str, Any], hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]], topology: str
) -> dict[str, dict[str, Any]]:
    """The fact ``sparkthor_node`` of each of these hosts, as machines of the kind that its groups say are sold."""
    order = list(groups.get("cluster") or ())
    return {
        host: assumed_node(
            asserted_kind(host, groups, topology),
            order.index(host) if host in order else 0,
            str(hostvars[host].get("ansible_host") or host),
        )
        for host in hosts
    }


def one_lan(nodes: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
    """The same hosts in one network, as a lan's are: an inventory states addresses, and never how long a network is.

    The longest that holds all of them; where some hosts are stated by name, none of the addresses counts.  Hosts that
    were read know better, and addresses with next to nothing in common are left for the plan to refuse.
    """
    if not all(node.get("assumed") for node in nodes.values()):
        return nodes
    addresses = {host: address_of(node["management"]["address"]) for host, node in nodes.items()}
    if any(address.version != 4 for address in addresses.values()):
        return nodes
    spare = ipv4_interface_of(SPARE)
    named = [address in spare for address in addresses.values()]
    if any(named):
        prefix = spare.prefixlen
        if not all(named):
            addresses = {host: spare[number + 10] for number, host in enumerate(nodes)}
    else:
        prefix = min(PREFIX, common_network(addresses.values()).prefixlen)
        if prefix < SHORTEST:
            return nodes
    return {
        host: {
            **node,
            "management": {
                **node["management"],
                "address": str(addresses[host]),
                "cidr": f"{addresses[host]}/{prefix}",
            },
        }
        for host, node in nodes.items()
    }


def asserted_kind(host: str, groups: Mapping[str, Any], topology: str) -> str:
    """The kind that the inventory's groups say; without one, what such a topology is made of."""
    for kind in ("spark", "thor"):
        if host in (groups.get(f"{kind}s") or ()):
            return kind
    return "generic" if topology == "lan" else "spark"
