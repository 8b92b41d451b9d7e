# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's fabric variables, each read and checked on its own."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import DEFAULT_PORTS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    interface_of,
    ipv4_interface_of,
    overlap,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import CHAINS, OPEN, PATCHES

if t.TYPE_CHECKING:
    from netaddr import IPNetwork


TOPOLOGIES: t.Final = ("direct", "ring", "line", "switch", "lan")
#: on which hosts reach each other by their management addresses
BY_MANAGEMENT: t.Final = ("lan", *CHAINS)
#: in which Thors alone can be joined by the lanes of their QSFP cages
OF_LANES: t.Final = ("direct", "switch")
#: in which each host has a place in the range
OF_PLACES: t.Final = ("direct", "switch")
#: lanes of a Thor's QSFP cage
LANES: t.Final = (0, 1, 2, 3)
KINDS: t.Final = ("spark", "thor", "generic")
CAGE: t.Final = 1
MTU_MIN: t.Final = 1280
MTU_MAX: t.Final = 9216
MTU_ROCE: t.Final = 9000
_NETDEV_RE: t.Final = re.compile(r"[^\s/:]{1,15}")


def _integer(value: object) -> int | None:
    """An int, or text that says one (inventories in INI format and --extra-vars give text)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return int(value.strip())
    return None


def check_topology(topology: object) -> str:
    if not isinstance(topology, str) or topology not in TOPOLOGIES:
        raise FabricError("fabric_topology", topology, "not a topology", f"use one of {', '.join(TOPOLOGIES)}")
    return str(topology)


def check_cages(
    cage: object, hosts: Sequence[str], topology: str = "", thors: bool = False
) -> dict[str, tuple[int, ...]]:
    """The cages of every host, given for all alike or by host: one, or two in the order of the rails.

    ``thors``: all hosts are Thors, which have one cage: on what has lanes any choice of it is refused.
    """
    given = cage if isinstance(cage, Mapping) else {} if cage == CAGE else dict.fromkeys(hosts, cage)
    if thors and topology in OF_LANES and (chosen := next((host for host in hosts if host in given), "")):
        value = given[chosen]
        variable = "fabric_cages" if isinstance(value, (list, tuple)) else "fabric_cage"
        fix = "remove it, and name the lanes that are cabled in fabric_lanes"
        raise FabricError(variable, value, "a Jetson Thor has one QSFP cage", fix, chosen)
    if isinstance(cage, Mapping):
        by_host = {host: _own_cages(cage.get(host, CAGE), host) for host in hosts}
    else:
        by_host = dict.fromkeys(hosts, _own_cages(cage, ""))
    two = [host for host, cages in by_host.items() if len(cages) == 2]
    if two and topology in (*CHAINS, "lan"):
        fix = "remove it: a ring and a line use both cages already" if topology in CHAINS else "remove it"
        what = f"a {topology} takes no choice of cages"
        raise FabricError("fabric_cages", list(by_host[two[0]]), what, fix, two[0])
    if two and len(two) < len(by_host):
        one = next(host for host in by_host if host not in two)
        what = f"all hosts use as many cages, and there are two on {first_names(two)}"
        raise FabricError("fabric_cages", list(by_host[one]), what, "set it for the group cluster", one)
    return by_host


def _own_cages(value: object, host: str) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        return (check_cage(value, host),)
    numbers = tuple(_integer(number) for number in value)
    if numbers not in ((0,), (1,), (0, 1), (1, 0)):
        raise FabricError(
            "fabric_cages",
            list(value),
            "it lists the cages of a Spark that are cabled, each once",
            "give [0, 1], or [1, 0] where cage 1 was cabled first and its addresses are to stay",
            host,
        )
    return tuple(number for number in numbers if number is not None)


def check_cage(cage: object, host: str = "") -> int:
    number = _integer(cage)
    if number not in (0, 1):
        raise FabricError(
            "fabric_cage",
            cage,
            "a Spark has the cages 0 and 1",
            "use 0 for the cage next to the RJ45 port (enp1s0f0np0) or 1 for the other (enp1s0f1np1)",
            host,
        )
    return number


def check_mtu(mtu: object) -> int | None:
    if mtu is None:
        return None
    number = _integer(mtu)
    if number is None or not MTU_MIN <= number <= MTU_MAX:
        raise FabricError(
            "fabric_mtu",
            mtu,
            f"an MTU here is a whole number from {MTU_MIN} to {MTU_MAX}",
            f"use {MTU_ROCE} for jumbo frames, 1500 where the switch has none, or leave it undefined",
        )
    return number


def check_patch(patch: object, topology: str = "ring") -> str:
    """The variable of the patch that the engine's NCCL has; empty for NCCL as it is."""
    if patch in (None, ""):
        return ""
    if patch not in PATCHES:
        raise FabricError(
            "fabric_nccl_patch",
            patch,
            "not a patch that is known",
            f"name its variable, {' or '.join(PATCHES)}, or leave it out for NCCL as it is",
        )
    if topology != "ring":
        raise FabricError("fabric_nccl_patch", patch, f"a {topology} takes no patch of NCCL, a ring does", "remove it")
    return str(patch)


def check_reserved(reserved: object, topology: str = "switch") -> frozenset[int]:
    """Numbers of places in the range that no host gets, from a list or a text such as ``2,3``."""
    given = reserved.split(",") if isinstance(reserved, str) else reserved
    words = given if isinstance(given, (list, tuple)) else [] if given is None else [given]
    numbers = [_integer(word) for word in words if word != ""]
    if any(number is None or number < 1 for number in numbers):
        raise FabricError(
            "fabric_reserved",
            reserved,
            "it takes the numbers of places, from 1 on",
            "give a list such as [2]: host number 2 of the inventory is gone, and its addresses stay free",
        )
    if numbers and topology not in OF_PLACES:
        what = (
            "a lan allots no addresses" if topology == "lan" else f"addresses of a {topology} are those of its cables"
        )
        raise FabricError("fabric_reserved", reserved, f"{what}, and no place of a host can be kept free", "remove it")
    return frozenset(number for number in numbers if number is not None)


def unused(topology: str, hosts: Sequence[str], variables: Mapping[str, Mapping[str, t.Any]]) -> list[str]:
    """Variables that are sound and change nothing here, each in one line; ``variables`` are those of the hosts."""
    lines = []
    patch = variables[hosts[0]].get("fabric_nccl_patch")
    if patch and topology == "ring" and len(hosts) < OPEN:
        lines.append(
            f"fabric_nccl_patch is {patch}: a ring of {len(hosts)} needs no patch of NCCL, and none is switched on; "
            f"remove it, or keep it for {OPEN} hosts or more"
        )
    both = [host for host in hosts if variables[host].get("fabric_cages") and "fabric_cage" in variables[host]]
    if both:
        one = variables[both[0]]
        lines.append(
            f"fabric_cage of host {first_names(both)} is {one['fabric_cage']}: fabric_cages is {one['fabric_cages']} "
            "and says it already; remove fabric_cage"
        )
    return lines


def check_cidr(cidr: object) -> IPNetwork:
    text = str(cidr).strip() if isinstance(cidr, str) else ""
    fix = "set an unused private IPv4 range such as 10.100.0.0/24"
    if not text:
        raise FabricError("fabric_cidr", cidr, "a range to take the fabric's addresses from is needed", fix)
    if ":" in text:
        raise FabricError("fabric_cidr", cidr, "IPv6 is not supported on the fabric (RoCE v2 here runs over IPv4)", fix)
    address, slash, prefix = text.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,2}", prefix):
        raise FabricError("fabric_cidr", cidr, "not an IPv4 range in the form a.b.c.d/length", fix)
    try:
        interface = ipv4_interface_of(f"{address}/{prefix}")
    except ValueError:
        raise FabricError("fabric_cidr", cidr, "not an IPv4 range in the form a.b.c.d/length", fix) from None
    if interface.ip != interface.network:
        raise FabricError(
            "fabric_cidr", cidr, "host bits are set", f"did you mean {interface.cidr}? give the range's first address"
        )
    problem = _unusable(interface)
    if not problem and not any(interface in ipv4_interface_of(block) for block in _PRIVATE):
        problem = "it is public: its addresses are other people's, and hosts would reach none of them any more"
    if problem:
        raise FabricError("fabric_cidr", cidr, problem, fix)
    return interface.cidr


#: the ranges that everybody may use, last those of providers' networks and of measurements
_PRIVATE: t.Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15")
_UNUSABLE: t.Final = {
    "0.0.0.0/8": "which means 'this network'",
    "127.0.0.0/8": "loopback",
    "169.254.0.0/16": "link-local, where hosts pick addresses by themselves",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
}


def _unusable(network: IPNetwork) -> str:
    """Why no host's address can lie in this network; empty if it can."""
    for block, name in _UNUSABLE.items():
        if overlap(network, ipv4_interface_of(block)):
            return f"it lies in {block}, {name}"
    return ""


def check_hosts(hosts: object, topology: str) -> list[str]:
    if isinstance(hosts, (str, bytes, Mapping)) or not isinstance(hosts, Iterable):
        raise FabricError("hosts", hosts, "not a list of host names", "pass the ordered list groups['cluster']")
    names = list(hosts)
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise FabricError("hosts", name, "not a host name", "pass the ordered list groups['cluster']")
        if name in seen:
            raise FabricError("hosts", name, "this host is listed twice", "list each host once")
        seen.add(name)
    count = len(names)
    shown = f"{topology} with {count} host{'' if count == 1 else 's'}"
    if topology == "direct" and count != 2:
        more = "for three or more use ring, line or switch" if count > 2 else "add the second host"
        raise FabricError("fabric_topology", shown, "a direct cable joins exactly 2 hosts", more)
    if topology in CHAINS and count < 3:
        more = "for two hosts use direct" if count == 2 else "add hosts to the group cluster"
        raise FabricError("fabric_topology", shown, f"a {topology} joins at least 3 hosts", more)
    if topology == "switch" and count < 2:
        raise FabricError("fabric_topology", shown, "a switch joins at least 2 hosts", "add hosts to the group cluster")
    if count < 1:
        raise FabricError("fabric_topology", shown, "there are no hosts", "add hosts to the group cluster")
    return [str(name) for name in names]


def check_ray_port(ports: object) -> int:
    """The port of Ray's GCS, by which every host reaches the head."""
    default = DEFAULT_PORTS["gcs"]
    number = checked_mapping("ray_node_ports", ports).get("gcs", default)
    if isinstance(number, bool) or not isinstance(number, int) or not 1024 <= number <= 65535:
        raise FabricError("ray_node_ports.gcs", number, "not a port from 1024 to 65535", f"use {default}, or leave it")
    return int(number)


def checked_mapping(variable: str, value: object) -> dict[str, t.Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FabricError(variable, value, "not a mapping by host name", "write host: value lines")
    return dict(value)


def check_lanes(lanes: object, topology: str, kinds: Iterable[str | None]) -> tuple[int, ...]:
    """Lanes of the Thors' QSFP cages that are cabled, in order; all where none are named. A kind may be unknown yet."""
    if lanes in (None, ""):
        return LANES
    if topology not in OF_LANES or not set(kinds) <= {"thor", None}:
        what = "only a direct or switch of Thors alone has lanes"
        raise FabricError("fabric_lanes", lanes, what, "remove it")
    given = lanes if isinstance(lanes, (list, tuple)) else [lanes]
    numbers = [_integer(number) for number in given]
    if not numbers or any(number not in LANES for number in numbers) or len(set(numbers)) < len(numbers):
        raise FabricError(
            "fabric_lanes",
            lanes,
            "it lists the lanes of the Thors' QSFP cages that are cabled, 0 to 3, each once",
            "give a list such as [0, 1], or leave it out for all four",
        )
    return tuple(sorted(number for number in numbers if number is not None))


def check_kind(host: str, value: object, topology: str, lanes: bool = False) -> str:
    """``lanes``: all hosts are Thors, whose QSFP cages can be cabled directly or to a switch."""
    kind = "spark" if value is None and topology != "lan" else ("generic" if value is None else value)
    if not isinstance(kind, str) or kind not in KINDS:
        raise FabricError("kind", value, "not a kind of host", f"use one of {', '.join(KINDS)}", host)
    if kind == "thor" and topology != "lan" and not (lanes and topology in OF_LANES):
        raise FabricError(
            "kind",
            kind,
            f"a Jetson Thor has no RDMA NIC and cannot be part of a {topology} fabric"
            + (" with other hosts" if topology in OF_LANES else ""),
            "set fabric_topology: lan for clusters with a Thor, or take the host out of the group cluster",
            host,
        )
    return str(kind)


def check_management(host: str, value: object, strict: bool) -> IPNetwork | None:
    """The management address; None where there is none, or an IPv6 one that no rule here needs."""
    fix = "give it as IPv4 address and prefix length, such as 192.168.1.11/24"
    if value is None or value == "":
        if strict:
            raise FabricError("management address", value, "this topology runs its control traffic over it", fix, host)
        return None
    try:
        interface = interface_of(str(value))
    except ValueError:
        raise FabricError("management address", value, "not an address", fix, host) from None
    if interface.version != 4:
        if strict:
            raise FabricError("management address", value, "IPv6 cannot carry this control traffic", fix, host)
        return None
    return interface


def check_netdev(host: str, value: object) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not _NETDEV_RE.fullmatch(value) or value in (".", ".."):
        raise FabricError(
            "management NIC", value, "not a network interface name", "give one name of at most 15 characters", host
        )
    return str(value)


def check_override(host: str, netdev: str, value: object, planned: IPNetwork) -> IPNetwork:
    variable = f"fabric_overrides[{netdev}]"
    text = str(value).strip() if isinstance(value, str) else ""
    fix = f"give an IPv4 address of {planned.cidr}, such as {planned}"
    try:
        interface = ipv4_interface_of(text if "/" in text else f"{text}/{planned.prefixlen}")
    except ValueError:
        raise FabricError(variable, value, "not an IPv4 address", fix, host) from None
    if interface.prefixlen > 30:
        raise FabricError(variable, value, "a subnet this small has no room for a peer", fix, host)
    if interface.ip in (interface.network, interface.broadcast):
        raise FabricError(variable, value, f"no host can have the first or last address of {interface.cidr}", fix, host)
    problem = _unusable(interface)
    if problem:
        raise FabricError(variable, value, problem, fix, host)
    return interface


def first_names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
