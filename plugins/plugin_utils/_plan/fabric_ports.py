# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fabric ports of all hosts and the address of each.

How addresses are allotted from ``fabric_cidr``. Nothing below depends on how many hosts there are, so a host added
at the end of the list moves nobody:

* ``direct`` and ``switch``: the range is cut in two equal parts, the lower for the first half of the cage (PCI domain
  0), the upper for the second half (PCI domain 2). Host number i, counted from 1, gets address i of each part; numbers
  that are reserved are passed over. A pair that later moves behind a switch keeps its addresses.
  With two cages each part is cut in two, the lower for the first cage of ``fabric_cages``: the addresses of a host that
  had that one alone stay, with another length.
* ``direct`` and ``switch`` of Thors: the range is cut in four, one part for each lane of the QSFP cage, used or not.
  Host number i gets address i of each part, as above.
* ``ring``, ``line``: a point-to-point subnet for each half of each cable. Cable c runs from p0 of host c to p1 of the
  next host (on a ring the last one back to the first) and owns subnets 2c (first half) and 2c + 1 (second half): .1 at
  its p0 end, .2 at its p1 end. A ring of three or four has the range cut into eight equal parts, or into /24s where the
  parts would be larger than that. A line, and a longer ring, has /24s in a range of /16 or more, and else /30s: a host
  more moves nobody on a line, and on such a ring one end of the cable that closes it.
* ``lan``: nothing is allotted, the management addresses are adopted.

An override replaces the address of one NIC of one host. It may move a whole subnet, if every NIC of that subnet is
moved with it.
"""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count, islice, pairwise, product

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import netaddr, overlap
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import (
    LANES,
    check_override,
    checked_mapping,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import CHAINS

if t.TYPE_CHECKING:
    from netaddr import IPAddress, IPNetwork


HALVES: t.Final = (0, 1)
_RING_PARTS: t.Final = 8  # a ring of three uses six; a power of two keeps the cut exact
_RING_SUBNET_PREFIX: t.Final = 24  # wider point-to-point subnets would only raise the risk of an overlap
_WIDE: t.Final = 16  # a range with room for a hundred /24s
_SMALLEST: t.Final = 30


class Port(t.NamedTuple):
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


def lane_netdev(lane: int) -> str:
    """Name of the network interface of one lane of a Thor's QSFP cage."""
    return f"mgbe{lane}_0"


def spark_device(cage: int, half: int) -> str:
    """Name of the RDMA device of one half of one QSFP cage."""
    return f"roce{_pci(half)}s0f{cage}"


def _pci(half: int) -> str:
    return "P2p1" if half else "p1"


#: cage and half of each NIC that a Spark's ConnectX-7 can have
SPARK_NETDEVS = {spark_netdev(cage, half): (cage, half) for cage in (0, 1) for half in HALVES}


#: lane of each NIC that a Thor's QSFP cage has
THOR_NETDEVS = {lane_netdev(lane): lane for lane in LANES}


def cage_name(netdev: str) -> str:
    place = SPARK_NETDEVS.get(netdev)
    if netdev in THOR_NETDEVS:
        return f"lane {THOR_NETDEVS[netdev]} of the QSFP cage"
    return (
        f"cage {place[0]} ({'next to the RJ45 port' if place[0] == 0 else 'away from the RJ45 port'})"
        if place
        else netdev
    )


def half_or_lane(link: Mapping[str, t.Any]) -> str:
    """Which part of its cage a link is, in words."""
    lane = THOR_NETDEVS.get(link["netdev"])
    return f"half {link['half']}" if lane is None else f"lane {lane}"


def _address(network: IPNetwork, prefix: int, index: int, number: int) -> IPNetwork:
    """The numbered address of the index-th subnet of the given length, without walking over the ones before it."""
    return netaddr().IPNetwork((network.first + (index << (32 - prefix)) + number, prefix), version=4)


def _switch_ports(
    hosts: Sequence[str], cidr: IPNetwork, cages: Mapping[str, Sequence[int]], topology: str, reserved: Collection[int]
) -> Iterator[Port]:
    rails = len(cages[hosts[0]])
    prefix = cidr.prefixlen + rails
    numbers = _numbers(hosts, cidr, rails, reserved, f"{topology} needs one subnet per half of a cage")
    for rail, half in product(range(rails), HALVES):
        for index, host in enumerate(hosts):
            peer = hosts[1 - index] if topology == "direct" else ""
            peer_netdev = spark_netdev(cages[peer][rail], half) if peer else ""
            address = _address(cidr, prefix, half * rails + rail, numbers[index])
            netdev, device = spark_netdev(cages[host][rail], half), spark_device(cages[host][rail], half)
            yield Port(host, netdev, device, half, 2 * rail + half, address, peer, peer_netdev)


def _numbers(hosts: Sequence[str], cidr: IPNetwork, bits: int, reserved: Collection[int], why: str) -> list[int]:
    """The place of each host in every part of the range, which is cut by so many bits. Raises FabricError."""
    prefix = cidr.prefixlen + bits
    room = (1 << (32 - prefix)) - 2 if prefix <= 30 else 0
    numbers = list(islice((number for number in count(1) if number not in reserved), len(hosts)))
    if numbers[-1] > room:
        wanted = 30 - bits
        while (1 << (32 - bits - wanted)) - 2 < numbers[-1]:
            wanted -= 1
        raise FabricError(
            "fabric_cidr",
            cidr,
            f"too small: it holds {room} hosts ({why}), the inventory has {len(hosts)}"
            + (f" and {len(reserved)} reserved places" if reserved else ""),
            f"use a /{wanted} or larger",
        )
    return numbers


def _lane_ports(
    hosts: Sequence[str], cidr: IPNetwork, lanes: Sequence[int], topology: str, reserved: Collection[int]
) -> Iterator[Port]:
    bits = (len(LANES) - 1).bit_length()
    numbers = _numbers(hosts, cidr, bits, reserved, "Thors need one subnet per lane")
    for lane in lanes:
        for index, host in enumerate(hosts):
            address = _address(cidr, cidr.prefixlen + bits, lane, numbers[index])
            peer, netdev = hosts[1 - index] if topology == "direct" else "", lane_netdev(lane)
            yield Port(host, netdev, "", lane, lane, address, peer, netdev if peer else "")


def _chain_prefix(cables: int, cidr: IPNetwork, topology: str, hosts: int) -> int:
    """Length of a cable's subnets. Raises FabricError where the range has no room for two of each cable."""
    eighths = topology == "ring" and 2 * hosts <= _RING_PARTS
    if eighths:
        prefix = max(cidr.prefixlen + (_RING_PARTS - 1).bit_length(), _RING_SUBNET_PREFIX)
    else:
        prefix = _RING_SUBNET_PREFIX if cidr.prefixlen <= _WIDE else _SMALLEST
        if 2 * cables > 1 << max(prefix - cidr.prefixlen, 0):
            prefix = _SMALLEST
    if prefix > _SMALLEST or 2 * cables > 1 << max(prefix - cidr.prefixlen, 0):
        wanted = _SMALLEST - ((_RING_PARTS if eighths else 2 * cables) - 1).bit_length()
        raise FabricError(
            "fabric_cidr",
            cidr,
            f"too small: a {topology} of {hosts} needs {2 * cables} subnets of two hosts each",
            f"use a /{wanted} or larger",
        )
    return int(prefix)


def _chain_ports(hosts: Sequence[str], cidr: IPNetwork, topology: str) -> Iterator[Port]:
    cables = len(hosts) - (topology == "line")
    prefix = _chain_prefix(cables, cidr, topology, len(hosts))
    for cable, host in enumerate(hosts[:cables]):
        peer = hosts[(cable + 1) % len(hosts)]
        for half in HALVES:
            segment = 2 * cable + half
            one, two = (_address(cidr, prefix, segment, number) for number in (1, 2))
            p0, p1 = spark_netdev(0, half), spark_netdev(1, half)
            yield Port(host, p0, spark_device(0, half), half, segment, one, peer, p1)
            yield Port(peer, p1, spark_device(1, half), half, segment, two, host, p0)


def _apply_overrides(ports: list[Port], overrides: Mapping[str, t.Any]) -> list[Port]:
    if not overrides:
        return ports
    wanted: dict[str, dict[str, t.Any]] = {
        host: checked_mapping(f"fabric_overrides[{host}]", value) for host, value in overrides.items()
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
                "remove the entry or correct the name",
                host,
            )
        for netdev in by_netdev:
            if netdev not in names[host]:
                raise FabricError(
                    "fabric_overrides",
                    netdev,
                    "the plan gives this NIC no address",
                    f"override one of {', '.join(names[host])}",
                    host,
                )
    result = []
    for port in ports:
        value = wanted.get(port.host, {}).get(port.netdev)
        if value is not None:
            port = port._replace(address=check_override(port.host, port.netdev, value, port.address))
        result.append(port)
    return result


def _some_overlap(ports: Sequence[Port]) -> bool:
    """Whether any two of these ports' subnets overlap; cheap, for most never do."""
    spans = sorted((port.address.first, port.address.last) for port in ports)
    return any(one[1] >= two[0] for one, two in pairwise(spans))


def _check_addresses(
    ports: Sequence[Port],
    networks: Mapping[IPNetwork, str],
    cidr: IPNetwork,
    overrides: Mapping[str, t.Any],
) -> None:
    """One subnet per segment, no two segments overlapping, no address twice, none in a management network."""
    for network, host in networks.items():
        if overlap(cidr, network):
            raise FabricError(
                "fabric_cidr",
                cidr,
                f"it overlaps the management network {network} of host {host}",
                "choose a range that no other network of these hosts uses",
            )
    segments: dict[int, Port] = {}
    owners: dict[IPAddress, Port] = {}
    for port in ports:
        other = owners.setdefault(port.address.ip, port)
        if other is not port:
            raise FabricError(
                "fabric_overrides",
                port.address.ip,
                f"this address is given twice, to {other.netdev} of {other.host} and to {port.netdev} of {port.host}",
                "override it with an unused one, or remove the override",
                port.host,
            )
        first = segments.setdefault(port.segment, port)
        if first.address.cidr != port.address.cidr:
            raise FabricError(
                f"fabric_overrides[{port.netdev}]",
                port.address,
                f"{first.netdev} of {first.host} at the other end is {first.address}, in another subnet",
                "both ends of a link belong in one subnet: override both, or neither",
                port.host,
            )
    if overrides:
        _check_overlaps(list(segments.values()), networks, overrides)


def _check_overlaps(chosen: Sequence[Port], networks: Mapping[IPNetwork, str], overrides: Mapping[str, t.Any]) -> None:
    """No subnet of the fabric inside another one or in a management network, which only overrides can do.

    ``chosen`` has one port of each.
    """
    for index, port in enumerate(chosen if _some_overlap(chosen) else ()):
        for other in chosen[:index]:
            if overlap(port.address, other.address):
                # Only an override can do this: name the NIC that has one.
                guilty, victim = (port, other) if port.netdev in overrides.get(port.host, ()) else (other, port)
                raise FabricError(
                    f"fabric_overrides[{guilty.netdev}]",
                    guilty.address,
                    f"its subnet overlaps {victim.address.cidr} of {victim.netdev} on {victim.host}; two NICs in "
                    "one subnet make routing ambiguous and NCCL hang",
                    "use a different subnet for each half and each cable",
                    guilty.host,
                )
    for port in chosen:
        for management, host in networks.items():
            if overlap(port.address, management):
                raise FabricError(
                    f"fabric_overrides[{port.netdev}]",
                    port.address,
                    f"it overlaps the management network {management} of host {host}",
                    "choose a range that no other network of these hosts uses",
                    port.host,
                )


def allot(
    hosts: Sequence[str],
    topology: str,
    cidr: IPNetwork,
    cages: Mapping[str, Sequence[int]],
    overrides: Mapping[str, t.Any],
    management: Mapping[str, IPNetwork | None],
    reserved: Collection[int] = (),
    lanes: Sequence[int] = (),
) -> list[Port]:
    """Ports with settled, checked addresses on a topology that has a fabric of its own; ``lanes``: those of Thors."""
    if topology in CHAINS:
        ports = list(_chain_ports(hosts, cidr, topology))
    elif lanes:
        ports = list(_lane_ports(hosts, cidr, lanes, topology, reserved))
    else:
        ports = list(_switch_ports(hosts, cidr, cages, topology, reserved))
    ports = _apply_overrides(ports, overrides)
    networks: dict[IPNetwork, str] = {}
    for host, interface in management.items():
        if interface is not None:
            networks.setdefault(interface.cidr, host)
    _check_addresses(ports, networks, cidr, overrides)
    return ports


def lan_ports(
    hosts: Sequence[str], addresses: Mapping[str, IPNetwork | None], netdevs: Mapping[str, str]
) -> Iterator[Port]:
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
                "name the NIC that carries the management address (preflight finds it by that address)",
                host,
            )
        if interface.prefixlen > 30:
            raise FabricError(
                "management address",
                interface,
                "its prefix leaves no room for peers",
                "give it as a.b.c.d/24; an address of a VPN has none, so set fabric_lan_nic to a NIC of the LAN",
                host,
            )
        if first is None:
            first = interface
        elif interface.cidr != first.cidr:
            raise FabricError(
                "management address",
                interface,
                f"host {hosts[0]} is in {first.cidr}, and a lan is one subnet",
                "give all hosts addresses and prefix lengths of one subnet",
                host,
            )
        yield Port(host, netdevs[host], "", 0, 0, interface, "", "")


def check_no_overrides(overrides: Mapping[str, t.Any]) -> None:
    for host, value in overrides.items():
        if checked_mapping(f"fabric_overrides[{host}]", value):
            raise FabricError(
                "fabric_overrides",
                value,
                "on a lan the hosts keep the addresses they have",
                "remove fabric_overrides, or change the address on the host itself",
                str(host),
            )


def check_management_duplicates(addresses: Mapping[str, IPNetwork | None]) -> None:
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
                "give each host its own address (is one machine listed under two names?)",
                host,
            )
