# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which address, peer and environment each host's fabric ports get: a pure function of the inventory.

How addresses are allotted from ``fabric_cidr``. Nothing below depends on how many hosts there are, so a host added
at the end of the list moves nobody:

* ``direct`` and ``switch``: the range is cut in two equal parts, the lower for the first half of the cage (PCI domain
  0), the upper for the second half (PCI domain 2). Host number i, counted from 0, gets address i + 1 of each part.
  A pair that later moves behind a switch keeps its addresses.
* ``ring``: six point-to-point subnets, the first six of the range cut into eight equal parts, or into /24s where the
  parts would be larger than that. Cable c runs from p0 of host c to p1 of the next host (the last one back to the
  first) and owns subnets 2c (first half) and 2c + 1 (second half): .1 at its p0 end, .2 at its p1 end.
* ``lan``: nothing is allotted, the management addresses are adopted.

An override replaces the address of one NIC of one host. It may move a whole subnet, if every NIC of that subnet is
moved with it.

Addresses are computed with ``netaddr``, which the controller has and hosts need not have: nothing that runs on a host
may import this file, and what here needs no addresses works without that package.
"""

from __future__ import annotations

import importlib
import re
import sys
import typing as t
from collections.abc import Iterable, Iterator, Mapping, Sequence

if t.TYPE_CHECKING:
    from netaddr import IPAddress, IPNetwork

TOPOLOGIES: t.Final = ("direct", "ring", "switch", "lan")
KINDS: t.Final = ("spark", "thor", "generic")
HALVES: t.Final = (0, 1)

MTU_MIN: t.Final = 1280
MTU_MAX: t.Final = 9216
MTU_ROCE: t.Final = 9000
MTU_THOR: t.Final = 8966

RAY_PORT: t.Final = 6379
# The one on-board copper port of a Spark; used where a ring's inventory does not name the management NIC.
SPARK_MANAGEMENT_NETDEV: t.Final = "enP7s7"

_RING_PARTS: t.Final = 8  # six are used; a power of two keeps the cut exact
_RING_SUBNET_PREFIX: t.Final = 24  # wider point-to-point subnets would only raise the risk of an overlap
_NETDEV_RE: t.Final = re.compile(r"[^\s/:]{1,15}")
# An address, for IPv6 with or without a zone, and a length or mask; what stands in them is netaddr's to judge.
_INTERFACE_RE: t.Final = re.compile(r"([0-9A-Fa-f:.]+)(%[^\s/%]+)?(/[0-9.]+)?")


class Link(t.TypedDict):
    """One fabric port of one host."""

    netdev: str
    device: str
    half: int
    address: str
    subnet: str
    peer: str
    peer_netdev: str
    mtu: int | None


class HostPlan(t.TypedDict):
    """Everything the roles need to know about one host's network."""

    topology: str
    profile: str
    profile_reason: str
    addressing: str
    kind: str
    control_address: str
    control_netdev: str
    management_address: str
    management_netdev: str
    links: list[Link]
    trusted_netdevs: list[str]
    env: dict[str, str]


class FabricError(ValueError):
    """A fault in the inventory: which variable, on which host, with which value, and what mends it."""

    def __init__(self, variable: str, value: object, problem: str, mend: str, host: str = "") -> None:
        self.variable = variable
        self.host = host
        self.value = value
        self.problem = problem
        self.mend = mend
        where = f" of host {host}" if host else ""
        shown = "undefined" if value is None else f"{value!s}"
        super().__init__(f"{variable}{where} is {shown}: {problem}. {mend}.")


def _netaddr() -> t.Any:
    """The package that computes with addresses. Its import takes a while, so it waits until there is a plan to make."""
    try:
        return importlib.import_module("netaddr")
    except ImportError:
        raise FabricError(
            "Python package netaddr",
            "not installed",
            "the controller plans the fabric with it",
            f"Install it there: {sys.executable} -m pip install netaddr",
        ) from None


def _interface(text: str) -> IPNetwork:
    """An address in its network; without a length it stands for itself alone. Anything else is a ValueError."""
    netaddr = _netaddr()
    match = _INTERFACE_RE.fullmatch(text)
    if match is None or (match[2] and ":" not in match[1]):
        raise ValueError(text)
    try:
        return netaddr.IPNetwork(match[1] + (match[3] or ""))
    except netaddr.AddrFormatError as error:
        raise ValueError(str(error)) from None


def _ipv4_interface(text: str) -> IPNetwork:
    interface = _interface(text)
    if interface.version != 4:
        raise ValueError(text)
    return interface


def _overlap(one: IPNetwork, other: IPNetwork) -> bool:
    return bool(one.first <= other.last and other.first <= one.last)


class _Port(t.NamedTuple):
    """One port before its address is settled."""

    host: str
    netdev: str
    device: str
    half: int
    segment: int
    address: IPNetwork
    peer: str
    peer_netdev: str


def spark_netdev(cage: int, half: int) -> str:
    """Name of the network interface of one half of one QSFP cage."""
    return f"en{_pci(half)}s0f{cage}np{cage}"


def spark_device(cage: int, half: int) -> str:
    """Name of the RDMA device of one half of one QSFP cage."""
    return f"roce{_pci(half)}s0f{cage}"


def _pci(half: int) -> str:
    return "P2p1" if half else "p1"


# ---------------------------------------------------------------------------------------------------------------------
# Reading the inventory's values


def _integer(value: object) -> int | None:
    """An int, or text that says one (inventories in INI format and --extra-vars give text)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return int(value.strip())
    return None


def _check_topology(topology: object) -> str:
    if not isinstance(topology, str) or topology not in TOPOLOGIES:
        raise FabricError("fabric_topology", topology, "not a topology", f"Use one of {', '.join(TOPOLOGIES)}")
    return str(topology)


def _check_cage(cage: object) -> int:
    number = _integer(cage)
    if number not in (0, 1):
        raise FabricError(
            "fabric_cage",
            cage,
            "a Spark has the cages 0 and 1",
            "Use 0 for the cage next to the RJ45 port (enp1s0f0np0) or 1 for the other (enp1s0f1np1)",
        )
    return number


def _check_mtu(mtu: object) -> int | None:
    if mtu is None:
        return None
    number = _integer(mtu)
    if number is None or not MTU_MIN <= number <= MTU_MAX:
        raise FabricError(
            "fabric_mtu",
            mtu,
            f"an MTU here is a whole number from {MTU_MIN} to {MTU_MAX}",
            f"Use {MTU_ROCE} for jumbo frames, 1500 where the switch has none, or leave it undefined",
        )
    return number


def _check_cidr(cidr: object) -> IPNetwork:
    text = str(cidr).strip() if isinstance(cidr, str) else ""
    mend = "Set an unused private IPv4 range such as 10.100.0.0/24"
    if not text:
        raise FabricError("fabric_cidr", cidr, "a range to take the fabric's addresses from is needed", mend)
    if ":" in text:
        raise FabricError(
            "fabric_cidr", cidr, "IPv6 is not supported on the fabric (RoCE v2 here runs over IPv4)", mend
        )
    address, slash, prefix = text.partition("/")
    if not slash or not re.fullmatch(r"[0-9]{1,2}", prefix):
        raise FabricError("fabric_cidr", cidr, "not an IPv4 range in the form a.b.c.d/length", mend)
    try:
        interface = _ipv4_interface(f"{address}/{prefix}")
    except ValueError:
        raise FabricError("fabric_cidr", cidr, "not an IPv4 range in the form a.b.c.d/length", mend) from None
    if interface.ip != interface.network:
        raise FabricError(
            "fabric_cidr",
            cidr,
            "host bits are set",
            f"Did you mean {interface.cidr}? Give the range's first address",
        )
    problem = _unusable(interface)
    if problem:
        raise FabricError("fabric_cidr", cidr, problem, mend)
    return interface.cidr


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
        if _overlap(network, _ipv4_interface(block)):
            return f"it lies in {block}, {name}"
    return ""


def _check_hosts(hosts: object, topology: str) -> list[str]:
    if isinstance(hosts, (str, bytes, Mapping)) or not isinstance(hosts, Iterable):
        raise FabricError("hosts", hosts, "not a list of host names", "Pass the ordered list groups['cluster']")
    names = list(hosts)
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str) or not name:
            raise FabricError("hosts", name, "not a host name", "Pass the ordered list groups['cluster']")
        if name in seen:
            raise FabricError("hosts", name, "this host is listed twice", "List each host once")
        seen.add(name)
    count = len(names)
    shown = f"{topology} with {count} host{'' if count == 1 else 's'}"
    if topology == "direct" and count != 2:
        more = "For three Sparks use ring or switch, for more use switch" if count > 2 else "Add the second host"
        raise FabricError("fabric_topology", shown, "a direct cable joins exactly 2 hosts", more)
    if topology == "ring" and count != 3:
        more = "For two hosts use direct" if count < 3 else "For more than three hosts use switch"
        raise FabricError("fabric_topology", shown, "a ring has exactly 3 hosts (Ray needs a full mesh)", more)
    if topology == "switch" and count < 2:
        raise FabricError("fabric_topology", shown, "a switch joins at least 2 hosts", "Add hosts to the group cluster")
    if count < 1:
        raise FabricError("fabric_topology", shown, "there are no hosts", "Add hosts to the group cluster")
    return [str(name) for name in names]


def _check_ray_port(ports: object) -> int:
    """The port of Ray's GCS, by which every host reaches the head."""
    number = _mapping("ray_node_ports", ports).get("gcs", RAY_PORT)
    if isinstance(number, bool) or not isinstance(number, int) or not 1024 <= number <= 65535:
        raise FabricError("ray_node_ports.gcs", number, "not a port from 1024 to 65535", f"Use {RAY_PORT}, or leave it")
    return int(number)


def _mapping(variable: str, value: object) -> dict[str, t.Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise FabricError(variable, value, "not a mapping by host name", "Write host: value lines")
    return dict(value)


def _check_kind(host: str, value: object, topology: str) -> str:
    kind = "spark" if value is None and topology != "lan" else ("generic" if value is None else value)
    if not isinstance(kind, str) or kind not in KINDS:
        raise FabricError("kind", value, "not a kind of host", f"Use one of {', '.join(KINDS)}", host)
    if kind == "thor" and topology != "lan":
        raise FabricError(
            "kind",
            kind,
            f"a Jetson Thor has no RDMA NIC and cannot be part of a {topology} fabric",
            "Set fabric_topology: lan for clusters with a Thor, or take the host out of the group cluster",
            host,
        )
    return str(kind)


def _check_management(host: str, value: object, strict: bool) -> IPNetwork | None:
    """The management address; None where there is none, or an IPv6 one that no rule here needs."""
    mend = "Give it as IPv4 address and prefix length, such as 192.168.1.11/24"
    if value is None or value == "":
        if strict:
            raise FabricError("management address", value, "this topology runs its control traffic over it", mend, host)
        return None
    try:
        interface = _interface(str(value))
    except ValueError:
        raise FabricError("management address", value, "not an address", mend, host) from None
    if interface.version != 4:
        if strict:
            raise FabricError("management address", value, "IPv6 cannot carry this control traffic", mend, host)
        return None
    return interface


def _check_netdev(host: str, value: object) -> str:
    if value is None or value == "":
        return ""
    if not isinstance(value, str) or not _NETDEV_RE.fullmatch(value) or value in (".", ".."):
        raise FabricError(
            "management NIC", value, "not a network interface name", "Give one name of at most 15 characters", host
        )
    return str(value)


def _check_override(host: str, netdev: str, value: object, planned: IPNetwork) -> IPNetwork:
    variable = f"fabric_overrides[{netdev}]"
    text = str(value).strip() if isinstance(value, str) else ""
    mend = f"Give an IPv4 address of {planned.cidr}, such as {planned}"
    try:
        interface = _ipv4_interface(text if "/" in text else f"{text}/{planned.prefixlen}")
    except ValueError:
        raise FabricError(variable, value, "not an IPv4 address", mend, host) from None
    if interface.prefixlen > 30:
        raise FabricError(variable, value, "a subnet this small has no room for a peer", mend, host)
    if interface.ip in (interface.network, interface.broadcast):
        raise FabricError(variable, value, f"the first and last address of {interface.cidr} are no host's", mend, host)
    problem = _unusable(interface)
    if problem:
        raise FabricError(variable, value, problem, mend, host)
    return interface


# ---------------------------------------------------------------------------------------------------------------------
# Allotting


def _address(network: IPNetwork, prefix: int, index: int, number: int) -> IPNetwork:
    """The numbered address of the index-th subnet of the given length, without walking over the ones before it."""
    return _netaddr().IPNetwork((network.first + (index << (32 - prefix)) + number, prefix), version=4)


def _switch_ports(hosts: Sequence[str], cidr: IPNetwork, cage: int, topology: str) -> Iterator[_Port]:
    prefix = cidr.prefixlen + 1
    room = (1 << (32 - prefix)) - 2 if prefix <= 30 else 0
    if len(hosts) > room:
        wanted = 29
        while (1 << (31 - wanted)) - 2 < len(hosts):
            wanted -= 1
        raise FabricError(
            "fabric_cidr",
            cidr,
            f"too small: it holds {room} hosts ({topology} needs one subnet per half of the cage), the inventory has "
            f"{len(hosts)}",
            f"Use a /{wanted} or larger",
        )
    for half in HALVES:
        netdev, device = spark_netdev(cage, half), spark_device(cage, half)
        for index, host in enumerate(hosts):
            peer = hosts[1 - index] if topology == "direct" else ""
            address = _address(cidr, prefix, half, index + 1)
            yield _Port(host, netdev, device, half, half, address, peer, netdev if peer else "")


def _ring_ports(hosts: Sequence[str], cidr: IPNetwork) -> Iterator[_Port]:
    prefix = max(cidr.prefixlen + (_RING_PARTS - 1).bit_length(), _RING_SUBNET_PREFIX)
    if prefix > 30:
        raise FabricError(
            "fabric_cidr", cidr, "too small: a ring needs six subnets of two hosts each", "Use a /27 or larger"
        )
    for cable, host in enumerate(hosts):
        peer = hosts[(cable + 1) % len(hosts)]
        for half in HALVES:
            segment = 2 * cable + half
            one, two = (_address(cidr, prefix, segment, number) for number in (1, 2))
            p0, p1 = spark_netdev(0, half), spark_netdev(1, half)
            yield _Port(host, p0, spark_device(0, half), half, segment, one, peer, p1)
            yield _Port(peer, p1, spark_device(1, half), half, segment, two, host, p0)


def _apply_overrides(ports: list[_Port], overrides: Mapping[str, t.Any]) -> list[_Port]:
    if not overrides:
        return ports
    wanted: dict[str, dict[str, t.Any]] = {
        host: _mapping(f"fabric_overrides[{host}]", value) for host, value in overrides.items()
    }
    names: dict[str, list[str]] = {}
    for port in ports:
        names.setdefault(port.host, []).append(port.netdev)
    for host, by_netdev in wanted.items():
        if host not in names:
            raise FabricError(
                "fabric_overrides",
                host,
                "this host is not in the cluster",
                "Remove the entry or correct the name",
                host,
            )
        for netdev in by_netdev:
            if netdev not in names[host]:
                raise FabricError(
                    "fabric_overrides",
                    netdev,
                    "the plan gives this NIC no address",
                    f"Override one of {', '.join(names[host])}",
                    host,
                )
    result = []
    for port in ports:
        value = wanted.get(port.host, {}).get(port.netdev)
        if value is not None:
            port = port._replace(address=_check_override(port.host, port.netdev, value, port.address))
        result.append(port)
    return result


def _check_addresses(
    ports: Sequence[_Port],
    networks: Mapping[IPNetwork, str],
    cidr: IPNetwork,
    overrides: Mapping[str, t.Any],
) -> None:
    """One subnet per segment, no two segments overlapping, no address twice, none in a management network."""
    for network, host in networks.items():
        if _overlap(cidr, network):
            raise FabricError(
                "fabric_cidr",
                cidr,
                f"it overlaps the management network {network} of host {host}",
                "Choose a range that no other network of these hosts uses",
            )
    segments: dict[int, _Port] = {}
    owners: dict[IPAddress, _Port] = {}
    for port in ports:
        other = owners.setdefault(port.address.ip, port)
        if other is not port:
            raise FabricError(
                "fabric_overrides",
                port.address.ip,
                f"this address is given twice, to {other.netdev} of {other.host} and to {port.netdev} of {port.host}",
                "Override it with an unused one, or remove the override",
                port.host,
            )
        first = segments.setdefault(port.segment, port)
        if first.address.cidr != port.address.cidr:
            raise FabricError(
                f"fabric_overrides[{port.netdev}]",
                port.address,
                f"{first.netdev} of {first.host} at the other end is {first.address}, in another subnet",
                "Both ends of a link belong in one subnet: override both, or neither",
                port.host,
            )
    chosen = list(segments.values())
    for index, port in enumerate(chosen):
        for other in chosen[:index]:
            if _overlap(port.address, other.address):
                # Only an override can do this: name the NIC that has one.
                guilty, victim = (port, other) if port.netdev in overrides.get(port.host, ()) else (other, port)
                raise FabricError(
                    f"fabric_overrides[{guilty.netdev}]",
                    guilty.address,
                    f"its subnet overlaps {victim.address.cidr} of {victim.netdev} on {victim.host}; two NICs in "
                    "one subnet make routing ambiguous and NCCL hang",
                    "Use a different subnet for each half and each cable",
                    guilty.host,
                )
        for management, host in networks.items():
            if _overlap(port.address, management):
                raise FabricError(
                    f"fabric_overrides[{port.netdev}]",
                    port.address,
                    f"it overlaps the management network {management} of host {host}",
                    "Choose a range that no other network of these hosts uses",
                    port.host,
                )


def _allot(
    hosts: Sequence[str],
    topology: str,
    cidr: IPNetwork,
    cage: int,
    overrides: Mapping[str, t.Any],
    management: Mapping[str, IPNetwork | None],
) -> list[_Port]:
    """Ports with settled, checked addresses on a topology that has a fabric of its own."""
    ports = list(_ring_ports(hosts, cidr) if topology == "ring" else _switch_ports(hosts, cidr, cage, topology))
    ports = _apply_overrides(ports, overrides)
    networks: dict[IPNetwork, str] = {}
    for host, interface in management.items():
        if interface is not None:
            networks.setdefault(interface.cidr, host)
    _check_addresses(ports, networks, cidr, overrides)
    return ports


def _check_no_overrides(overrides: Mapping[str, t.Any]) -> None:
    for host, value in overrides.items():
        if _mapping(f"fabric_overrides[{host}]", value):
            raise FabricError(
                "fabric_overrides",
                value,
                "on a lan the hosts keep the addresses they have",
                "Remove fabric_overrides, or change the address on the host itself",
                str(host),
            )


# ---------------------------------------------------------------------------------------------------------------------
# The plan


def _environment(
    topology: str, control_address: str, control_netdev: str, devices: Sequence[str], ray_address: str
) -> dict[str, str]:
    env = {
        # A leading "=" makes NCCL's prefix list an exact one: enp1s0f1np1 must not also match enp1s0f1np10.
        "NCCL_SOCKET_IFNAME": f"={control_netdev}",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        "GLOO_SOCKET_IFNAME": control_netdev,
        "TP_SOCKET_IFNAME": control_netdev,
        "UCX_NET_DEVICES": control_netdev,
        "OMPI_MCA_btl_tcp_if_include": control_netdev,
        "VLLM_HOST_IP": control_address,
        "RAY_NODE_IP_ADDRESS": control_address,
        "RAY_ADDRESS": ray_address,
    }
    if topology == "lan":
        # All ranks must use one transport; said outright, a Spark beside a Thor does not try RDMA on its own.
        env["NCCL_IB_DISABLE"] = "1"
        env["NCCL_NET"] = "Socket"
        return env
    # NCCL_NET=IB: a broken RDMA path is an error, not a quiet fall back to sockets at a hundredth of the speed.
    # NCCL_IB_DISABLE=0: outranks a 1 that a host's or an image's nccl.conf may carry.
    env["NCCL_NET"] = "IB"
    env["NCCL_IB_DISABLE"] = "0"
    env["NCCL_IB_HCA"] = "=" + ",".join(devices)
    if topology == "ring":
        env["NCCL_IB_SUBNET_AWARE_ROUTING"] = "1"
        env["NCCL_IB_MERGE_NICS"] = "0"
        env["NCCL_NET_PLUGIN"] = "none"
    return env


def _profile(topology: str, kinds: Mapping[str, str]) -> tuple[str, str]:
    if topology != "lan":
        return "roce", f"fabric_topology is {topology}: every host has RDMA NICs, NCCL must use them"
    thors = [host for host, kind in kinds.items() if kind == "thor"]
    others = [host for host, kind in kinds.items() if kind != "thor"]
    if thors and others:
        shown = ", ".join(thors[:3]) + (" and more" if len(thors) > 3 else "")
        return "tcp", (
            f"{shown} has no RDMA NIC (Jetson Thor) and all ranks of a job need one transport, so RDMA is switched "
            "off on every host"
        )
    return "tcp", "fabric_topology is lan: the hosts share an ordinary Ethernet, NCCL uses TCP sockets"


def fabric_plan(
    hosts: Sequence[str],
    topology: str,
    cidr: str | None = None,
    cage: int | str = 1,
    mtu: int | str | None = None,
    management: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    nics: Mapping[str, str] | None = None,
    overrides: Mapping[str, Mapping[str, str]] | None = None,
    ray_head: str | None = None,
    ray_ports: Mapping[str, int] | None = None,
) -> dict[str, HostPlan]:
    """Plan the fabric of an ordered list of hosts, or raise FabricError with the first fault."""
    _netaddr()
    topology = _check_topology(topology)
    names = _check_hosts(hosts, topology)
    cage_number = _check_cage(cage)
    mtu_number = _check_mtu(mtu)
    ray_port = _check_ray_port(ray_ports)
    lan = topology == "lan"
    # A lan takes no address from the range, so it may be left undefined there; nonsense is still named.
    network = None if lan and cidr in (None, "") else _check_cidr(cidr)
    management_by_host = _mapping("management", management)
    kind_by_host = _mapping("kinds", kinds)
    nic_by_host = _mapping("nics", nics)
    override_by_host = _mapping("fabric_overrides", overrides)
    if ray_head is not None and ray_head not in set(names):
        raise FabricError("ray_head", ray_head, "this host is not in the cluster", f"Use one of {_some(names)}")
    head = names[0] if ray_head is None else str(ray_head)

    resolved_kinds = {host: _check_kind(host, kind_by_host.get(host), topology) for host in names}
    needs_management = topology in ("lan", "ring")
    addresses = {host: _check_management(host, management_by_host.get(host), needs_management) for host in names}
    netdevs = {host: _check_netdev(host, nic_by_host.get(host)) for host in names}
    _check_management_duplicates(addresses)

    if lan:
        _check_no_overrides(override_by_host)
        ports = list(_lan_ports(names, addresses, netdevs))
    else:
        ports = _allot(names, topology, t.cast("IPNetwork", network), cage_number, override_by_host, addresses)
    ports_by_host: dict[str, list[_Port]] = {host: [] for host in names}
    for port in ports:
        ports_by_host[port.host].append(port)

    def control(host: str) -> tuple[str, str]:
        if topology in ("direct", "switch"):
            first = ports_by_host[host][0]
            return str(first.address.ip), first.netdev
        interface = addresses[host]
        if interface is None:  # checked before; said for the type checker
            raise AssertionError(host)
        return str(interface.ip), netdevs[host] or SPARK_MANAGEMENT_NETDEV

    profile, reason = _profile(topology, resolved_kinds)
    ray_address = f"{control(head)[0]}:{ray_port}"
    plan: dict[str, HostPlan] = {}
    for host in names:
        own = sorted(ports_by_host[host], key=lambda port: (port.netdev[-1] if topology == "ring" else "", port.half))
        link_mtu = _link_mtu(mtu_number, lan, resolved_kinds[host])
        control_address, control_netdev = control(host)
        interface = addresses[host]
        trusted = [port.netdev for port in own]
        if control_netdev not in trusted:
            trusted.append(control_netdev)
        plan[host] = {
            "topology": topology,
            "profile": profile,
            "profile_reason": reason,
            "addressing": "adopted" if lan else "managed",
            "kind": resolved_kinds[host],
            "control_address": control_address,
            "control_netdev": control_netdev,
            "management_address": str(interface) if interface is not None else str(management_by_host.get(host) or ""),
            "management_netdev": netdevs[host] or (control_netdev if needs_management else ""),
            "links": [
                {
                    "netdev": port.netdev,
                    "device": port.device,
                    "half": port.half,
                    "address": str(port.address),
                    "subnet": str(port.address.cidr),
                    "peer": port.peer,
                    "peer_netdev": port.peer_netdev,
                    "mtu": link_mtu,
                }
                for port in own
            ],
            "trusted_netdevs": trusted,
            "env": _environment(topology, control_address, control_netdev, [port.device for port in own], ray_address),
        }
    return plan


def _link_mtu(mtu: int | None, lan: bool, kind: str) -> int | None:
    if mtu is None:
        return None if lan else MTU_ROCE
    return min(mtu, MTU_THOR) if kind == "thor" else mtu


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _check_management_duplicates(addresses: Mapping[str, IPNetwork | None]) -> None:
    owners: dict[IPAddress, str] = {}
    for host, interface in addresses.items():
        if interface is None:
            continue
        other = owners.setdefault(interface.ip, host)
        if other != host:
            raise FabricError(
                "management address",
                interface.ip,
                f"host {other} has the same address",
                "Give each host its own address (is one machine listed under two names?)",
                host,
            )


def _lan_ports(
    hosts: Sequence[str], addresses: Mapping[str, IPNetwork | None], netdevs: Mapping[str, str]
) -> Iterator[_Port]:
    first: IPNetwork | None = None
    for host in hosts:
        interface = addresses[host]
        if interface is None:  # checked before; said for the type checker
            raise AssertionError(host)
        if not netdevs[host]:
            raise FabricError(
                "management NIC",
                None,
                "on a lan NCCL, Gloo and Ray are bound to it by name",
                "Name the NIC that carries the management address (preflight finds it by that address)",
                host,
            )
        if interface.prefixlen > 30:
            raise FabricError(
                "management address", interface, "its prefix leaves no room for peers", "Give it as a.b.c.d/24", host
            )
        if first is None:
            first = interface
        elif interface.cidr != first.cidr:
            raise FabricError(
                "management address",
                interface,
                f"host {hosts[0]} is in {first.cidr}, and a lan is one subnet",
                "Give all hosts addresses and prefix lengths of one subnet",
                host,
            )
        yield _Port(host, netdevs[host], "", 0, 0, interface, "", "")


# ---------------------------------------------------------------------------------------------------------------------
# The inventory stage: everything that needs no facts


def fabric_problems(
    topology: t.Any,
    hosts: t.Any,
    cidr: t.Any = None,
    cage: t.Any = 1,
    mtu: t.Any = None,
    overrides: t.Any = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    management: Mapping[str, str] | None = None,
) -> list[str]:
    """Every fault of the inventory that can be seen without a host's facts, as ready messages.

    ``management`` holds each host's ``ansible_host``. One that is a name says nothing here; an overlap with its
    network is found in the facts stage.
    """
    groups = groups or {}
    problems: list[str] = _group_problems(hosts, groups)
    if problems:
        return problems

    def attempt(check: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        try:
            return check(*arguments)
        except FabricError as error:
            problems.append(str(error))
            return None

    attempt(_netaddr)
    if problems:
        return problems
    checked = attempt(_check_topology, topology)
    attempt(_check_cage, cage)
    attempt(_check_mtu, mtu)
    if checked is None:
        return problems
    names = attempt(_check_hosts, hosts, checked)
    if not (checked == "lan" and cidr in (None, "")):
        attempt(_check_cidr, cidr)
    kinds = dict.fromkeys(groups.get("thors", ()), "thor") | dict.fromkeys(groups.get("sparks", ()), "spark")
    for host in names or ():
        attempt(_check_kind, host, kinds.get(host), checked)
    if problems:
        return problems
    # An address the inventory states has no prefix length, so it stands for itself alone here (a /32); the rule that
    # a lan is one subnet needs the lengths and is left to the facts stage.
    stated = management or {}
    addresses = {host: _stated_address(stated.get(host)) for host in names}
    attempt(_check_management_duplicates, addresses)
    by_host = attempt(_mapping, "fabric_overrides", overrides)
    if problems:
        return problems
    if checked == "lan":
        attempt(_check_no_overrides, by_host)
    else:
        attempt(_allot, names, checked, _check_cidr(cidr), _check_cage(cage), by_host, addresses)
    return problems


def _stated_address(value: object) -> IPNetwork | None:
    """What ``ansible_host`` says about the management network: nothing, if it is a name or a forwarded local port."""
    try:
        interface = _ipv4_interface(str(value))
    except ValueError:
        return None
    return None if interface.ip.is_loopback() else interface


def _group_problems(hosts: t.Any, groups: Mapping[str, Sequence[str]]) -> list[str]:
    if not groups:
        return []
    errors: list[FabricError] = []
    heads, workers = list(groups.get("ray_head", ())), set(groups.get("ray_workers", ()))
    if len(heads) != 1:
        shown = ", ".join(heads) or "empty"
        errors.append(FabricError("group ray_head", shown, "a cluster has exactly one head", "List one host in it"))
    for host in heads:
        if host in workers:
            errors.append(
                FabricError(
                    "group ray_workers", host, "it is the head as well", "List it in one of the two groups", host
                )
            )
    placed = workers.union(heads)
    for host in hosts if isinstance(hosts, (list, tuple)) else ():
        if isinstance(host, str) and host not in placed:
            errors.append(
                FabricError(
                    "group cluster", host, "it is in neither ray_head nor ray_workers", "Add it to ray_workers", host
                )
            )
    thors = set(groups.get("thors", ()))
    for host in groups.get("sparks", ()):
        if host in thors:
            errors.append(FabricError("group thors", host, "it is in sparks as well", "List it in one of them", host))
    return [str(error) for error in errors]


# ---------------------------------------------------------------------------------------------------------------------
# What a plan becomes


def trusted_sources(plan: Mapping[str, HostPlan], host: str) -> dict[str, list[str]]:
    """For each NIC the firewall trusts: the peers' addresses it may trust there, in host order."""
    own = plan[host]
    own_segments = {link["netdev"]: link["subnet"] for link in own["links"]}
    result: dict[str, list[str]] = {netdev: [] for netdev in own["trusted_netdevs"]}
    by_subnet = {subnet: netdev for netdev, subnet in own_segments.items()}
    for name, other in plan.items():
        if name == host:
            continue
        for link in other["links"]:
            netdev = by_subnet.get(link["subnet"])
            if netdev is not None:
                result[netdev].append(link["address"].partition("/")[0])
        if own["control_netdev"] not in own_segments:
            result[own["control_netdev"]].append(other["control_address"])
    return result


def adopt_devices(plan: Mapping[str, HostPlan], devices: Mapping[str, Mapping[str, str]]) -> None:
    """Put the RDMA devices' real names (host → NIC → device) into a plan, in place.

    A Spark's devices are named after their NICs, but images without that udev rule call them ``mlx5_0`` and so on;
    NCCL must be told the name that exists.
    """
    for host, entry in plan.items():
        found = devices.get(host, {})
        for link in entry["links"]:
            if link["device"]:
                link["device"] = found.get(link["netdev"]) or link["device"]
        if "NCCL_IB_HCA" in entry["env"]:
            entry["env"]["NCCL_IB_HCA"] = "=" + ",".join(link["device"] for link in entry["links"])
