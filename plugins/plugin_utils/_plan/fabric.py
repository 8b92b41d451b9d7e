# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which address, peer and environment each host's fabric ports get: a pure function of the inventory."""

from __future__ import annotations

import typing as t
from collections.abc import Collection, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ring
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import netaddr, subnet_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import (
    Port,
    allot,
    check_management_duplicates,
    check_no_overrides,
    lan_ports,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import (
    BY_MANAGEMENT,
    CAGE,
    MTU_ROCE,
    OF_LANES,
    check_cages,
    check_cidr,
    check_hosts,
    check_kind,
    check_lanes,
    check_management,
    check_mtu,
    check_netdev,
    check_patch,
    check_ray_port,
    check_reserved,
    check_topology,
    checked_mapping,
    first_names,
)

if t.TYPE_CHECKING:
    from netaddr import IPNetwork


MTU_THOR: t.Final = 8966
# The one on-board copper port of a Spark; used where a ring's inventory does not name the management NIC.
SPARK_MANAGEMENT_NETDEV: t.Final = "enP7s7"


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
    #: Gb/s that its links are planned for
    speed: t.NotRequired[int]
    #: the same by NIC, where the host at the other end has a word in it
    speeds: t.NotRequired[dict[str, int]]
    #: MTU that its NIC has on a lan that keeps what it has
    lan_mtu: t.NotRequired[int]
    links: list[Link]
    trusted_netdevs: list[str]
    env: dict[str, str]


def _exactly(names: Sequence[str]) -> str:
    """A leading "=" makes NCCL's prefix list an exact one: enp1s0f1np1 must not also match enp1s0f1np10."""
    return "=" + ",".join(names)


def _ring_prefix(ports: Sequence[Port]) -> int:
    """Bits by which NCCL tells the segments of a ring apart: both ends of each are alike in them, and no two segments.

    NCCL compares addresses at /24 unless told otherwise, and the segments of a small range are longer than that.
    Source: NVIDIA's design of subnet-aware routing, NCCL_IB_SUBNET_PREFIX_LEN. Raises FabricError.
    """
    lengths = sorted({port.address.prefixlen for port in ports})
    for length in range(lengths[0], lengths[-1] + 1):
        seen = {(str(port.address.cidr), int(port.address.ip) >> (32 - length)) for port in ports}
        if len(seen) == len({segment for segment, _bits in seen}) == len({bits for _segment, bits in seen}):
            return int(length)
    raise FabricError(
        "fabric_overrides",
        ", ".join(sorted({str(port.address.cidr) for port in ports})),
        "NCCL cannot tell these segments of the ring apart at one prefix length",
        "give all segments one length, or leave fabric_overrides out",
    )


def _nccl(topology: str, hosts: int, ports: Sequence[Port], patch: str, two_cages: bool) -> dict[str, str]:
    """What NCCL is told besides, by the way the hosts are cabled."""
    if topology == "ring":
        return ring.environment(hosts, _ring_prefix(ports), patch)
    # both cages of a controller reach the same hosts, so they stay one device
    return {"NCCL_CROSS_NIC": "1", "NCCL_IB_MERGE_NICS": "1", "NCCL_NET_PLUGIN": "none"} if two_cages else {}


def _environment(
    topology: str,
    control_address: str,
    control_netdev: str,
    devices: Sequence[str],
    ray_address: str,
    nccl: Mapping[str, str],
    lanes: Sequence[str] = (),
) -> dict[str, str]:
    env = {
        # over sockets NCCL spreads its channels over the NICs that it is told
        "NCCL_SOCKET_IFNAME": _exactly(lanes or [control_netdev]),
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
    if topology in ("lan", "line") or lanes:
        # All ranks must use one transport; said outright, a Spark beside a Thor does not try RDMA on its own.
        env["NCCL_IB_DISABLE"] = "1"
        env["NCCL_NET"] = "Socket"
        return env
    # NCCL_NET=IB: a broken RDMA path is an error, not a quiet fall back to sockets at a hundredth of the speed.
    # NCCL_IB_DISABLE=0: outranks a 1 that a host's or an image's nccl.conf may carry.
    env["NCCL_NET"] = "IB"
    env["NCCL_IB_DISABLE"] = "0"
    env["NCCL_IB_HCA"] = _exactly(devices)
    env.update(nccl)
    return env


def _profile(topology: str, kinds: Mapping[str, str]) -> tuple[str, str]:
    if topology == "line":
        return "tcp", (
            "fabric_topology is line: NCCL's ring does not close there and its tree needs cables that are not there, "
            "so all ranks use TCP over the management network; two neighbours alone (serving_groups) use their cable"
        )
    if topology in OF_LANES and all(kind == "thor" for kind in kinds.values()):
        return "tcp", "a Jetson Thor has no RDMA NIC, so NCCL uses TCP sockets over the lanes of the QSFP cages"
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


def _head(ray_head: str | None, names: Sequence[str]) -> str:
    if ray_head is not None and ray_head not in set(names):
        raise FabricError("ray_head", ray_head, "this host is not in the cluster", f"use one of {first_names(names)}")
    return names[0] if ray_head is None else str(ray_head)


def fabric_plan(
    hosts: Sequence[str],
    topology: str,
    cidr: str | None = None,
    cage: int | str | Sequence[int] | Mapping[str, int | str | Sequence[int]] = CAGE,
    mtu: int | str | None = None,
    management: Mapping[str, str] | None = None,
    kinds: Mapping[str, str] | None = None,
    nics: Mapping[str, str] | None = None,
    overrides: Mapping[str, Mapping[str, str]] | None = None,
    ray_head: str | None = None,
    ray_ports: Mapping[str, int] | None = None,
    reserved: object = None,
    nccl_patch: object = None,
    control_nics: Collection[str] = (),
    lanes: object = None,
) -> dict[str, HostPlan]:
    """Plan the fabric of an ordered list of hosts, or raise FabricError with the first fault.

    ``control_nics``: hosts whose owner named the NIC by which peers are to reach them, the one in ``nics``.
    """
    netaddr()
    topology = check_topology(topology)
    names = check_hosts(hosts, topology)
    resolved_kinds, own_lanes = _kinds_and_lanes(names, topology, checked_mapping("kinds", kinds), lanes)
    cages = check_cages(cage, names, topology, bool(own_lanes))
    mtu_number, ray_port, places = check_mtu(mtu), check_ray_port(ray_ports), check_reserved(reserved, topology)
    two = len(cages[names[0]]) == 2
    lan, by_management = topology == "lan", topology in BY_MANAGEMENT or two or bool(control_nics)
    # a lan takes no address from the range, so it may be left undefined there; nonsense is still named
    network = t.cast("IPNetwork", None if lan and cidr in (None, "") else check_cidr(cidr))
    management_by_host, nic_by_host = checked_mapping("management", management), checked_mapping("nics", nics)
    override_by_host, head = checked_mapping("fabric_overrides", overrides), _head(ray_head, names)
    addresses = {host: check_management(host, management_by_host.get(host), by_management) for host in names}
    netdevs = {host: check_netdev(host, nic_by_host.get(host)) for host in names}
    check_management_duplicates(addresses)
    if lan:
        check_no_overrides(override_by_host)
        ports = list(lan_ports(names, addresses, netdevs))
    else:
        rest = (override_by_host, addresses, places, own_lanes)
        ports = allot(names, topology, network, cages, *rest)
    ports_by_host = {host: [port for port in ports if port.host == host] for host in names}
    control = {host: _control(by_management, ports_by_host[host], addresses[host], netdevs[host]) for host in names}
    nccl = _nccl(topology, len(names), ports, check_patch(nccl_patch, topology), two)
    return {
        host: _host_plan(
            topology,
            ports_by_host[host],
            kind=resolved_kinds[host],
            profile=_profile(topology, resolved_kinds),
            management=str(addresses[host] if addresses[host] is not None else management_by_host.get(host) or ""),
            management_netdev=netdevs[host] or (control[host][1] if by_management else ""),
            control=control[host],
            mtu=_link_mtu(mtu_number, lan, resolved_kinds[host]),
            ray_address=f"{control[head][0]}:{ray_port}",
            nccl=nccl,
        )
        for host in names
    }


def _kinds_and_lanes(
    names: Sequence[str], topology: str, kinds: Mapping[str, t.Any], lanes: object
) -> tuple[dict[str, str], Sequence[int]]:
    """The kind of every host, and the lanes that join them where all are Thors with a fabric."""
    alone = all(kinds.get(host) == "thor" for host in names)
    resolved = {host: check_kind(host, kinds.get(host), topology, alone) for host in names}
    cabled = check_lanes(lanes, topology, resolved.values())
    return resolved, cabled if alone and topology in OF_LANES else ()


def _control(by_management: bool, ports: Sequence[Port], management: IPNetwork | None, netdev: str) -> tuple[str, str]:
    """Address and NIC by which peers reach a host for everything but RDMA data.

    With two cages either may be lost, and the hosts shall still reach each other.
    """
    if not by_management:
        return str(ports[0].address.ip), ports[0].netdev
    if management is None:  # checked before; said for the type checker
        raise AssertionError(netdev)
    return str(management.ip), netdev or SPARK_MANAGEMENT_NETDEV


def _host_plan(
    topology: str,
    ports: Sequence[Port],
    *,
    kind: str,
    profile: tuple[str, str],
    management: str,
    management_netdev: str,
    control: tuple[str, str],
    mtu: int | None,
    ray_address: str,
    nccl: Mapping[str, str],
) -> HostPlan:
    ports_here = sorted(
        ports, key=lambda port: (port.netdev[-1], port.half) if topology in ring.CHAINS else ("", port.segment)
    )
    control_address, control_netdev = control
    trusted = [port.netdev for port in ports_here]
    if control_netdev not in trusted:
        trusted.append(control_netdev)
    return {
        "topology": topology,
        "profile": profile[0],
        "profile_reason": profile[1],
        "addressing": "adopted" if topology == "lan" else "managed",
        "kind": kind,
        "control_address": control_address,
        "control_netdev": control_netdev,
        "management_address": management,
        "management_netdev": management_netdev,
        "links": [
            {
                "netdev": port.netdev,
                "device": port.device,
                "half": port.half,
                "address": str(port.address),
                "subnet": str(port.address.cidr),
                "peer": port.peer,
                "peer_netdev": port.peer_netdev,
                "mtu": mtu,
            }
            for port in ports_here
        ],
        "trusted_netdevs": trusted,
        "env": _environment(
            topology,
            control_address,
            control_netdev,
            [port.device for port in ports_here],
            ray_address,
            nccl,
            [port.netdev for port in ports_here] if kind == "thor" and topology != "lan" else [],
        ),
    }


def _link_mtu(mtu: int | None, lan: bool, kind: str) -> int | None:
    if mtu is None and lan:
        return None
    wanted = MTU_ROCE if mtu is None else mtu
    return min(wanted, MTU_THOR) if kind == "thor" else wanted


def trusted_sources(plan: Mapping[str, HostPlan], host: str) -> dict[str, list[str]]:
    """For each NIC the firewall trusts: the peers' addresses it may trust there, in host order."""
    entry = plan[host]
    own_segments = {link["netdev"]: link["subnet"] for link in entry["links"]}
    result: dict[str, list[str]] = {netdev: [] for netdev in entry["trusted_netdevs"]}
    by_subnet = {subnet: netdev for netdev, subnet in own_segments.items()}
    for name, other in plan.items():
        if name == host:
            continue
        for link in other["links"]:
            netdev = by_subnet.get(link["subnet"])
            if netdev is not None:
                result[netdev].append(link["address"].partition("/")[0])
        if entry["control_netdev"] not in own_segments:
            result[entry["control_netdev"]].append(other["control_address"])
    return result


def adopt_devices(plan: Mapping[str, HostPlan], devices: Mapping[str, Mapping[str, str]]) -> None:
    """Put the RDMA devices' real names (host → NIC → device) into a plan, in place.

    A Spark's devices are named after their NICs, but images without that udev rule call them ``mlx5_0`` and so on;
    NCCL must be told the name that exists.
    """
    for host, entry in plan.items():
        found = devices.get(host, {})
        real: dict[str, str] = {}
        for link in entry["links"]:
            if link["device"]:
                real[link["device"]] = found.get(link["netdev"]) or link["device"]
                link["device"] = real[link["device"]]
        if "NCCL_IB_HCA" in entry["env"]:
            planned = entry["env"]["NCCL_IB_HCA"].removeprefix("=").split(",")
            entry["env"]["NCCL_IB_HCA"] = _exactly([real.get(device, device) for device in planned])


def _subnet(link: Mapping[str, t.Any]) -> str:
    """The link's subnet as text; plans carry it, so that nothing has to be worked out for every pair of hosts."""
    return link.get("subnet") or subnet_of(link["address"])


def links_of(fabric: dict[str, t.Any], host: str) -> list[dict[str, t.Any]]:
    """One host's links with everybody who shares a subnet with them, out of the fabric plan of all hosts."""
    own = fabric.get(host) or {}
    links = [link for link in own.get("links") or [] if link.get("address")]
    peers: dict[str, list[dict[str, t.Any]]] = {_subnet(link): [] for link in links}
    for other, plan in fabric.items():
        if other == host:
            continue
        for link in plan.get("links") or []:
            found = peers.get(_subnet(link)) if link.get("address") else None
            if found is not None:
                address = link["address"].partition("/")[0]
                mtu = link.get("mtu") or plan.get("lan_mtu") or 0
                found.append({"host": other, "address": address, "mtu": mtu})
    return [
        {
            "netdev": link["netdev"],
            "address": link["address"],
            "mtu": link.get("mtu") or 0,
            "shared": own.get("addressing") == "adopted",
            "peers": peers[_subnet(link)],
        }
        for link in links
    ]
