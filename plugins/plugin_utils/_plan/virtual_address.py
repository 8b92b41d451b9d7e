# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one address of several front proxies: what is wrong with it, and who may have it.

keepalived speaks VRRPv3 between the heads. It has no password, which version 3 of the protocol abolished: the firewall
lets it in from the other heads alone, and keepalived takes it from nobody else and from no other network.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front as front_proxy
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    address_of,
    interface_of,
    ipv4_interface_of,
    ipv4_network_of,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

if TYPE_CHECKING:
    from netaddr import IPNetwork

ADDRESS, INTERFACE, ROUTER = (f"vllm_serve_virtual_{name}" for name in ("address", "interface", "router_id"))
#: another vendor's default would be as good; no two routers on a LAN may have the same one
ROUTER_ID = 51
#: of the first head; each further one has one less, so that no two ever claim the address at the same time
PRIORITY = 200
_NETDEV = re.compile(r"[A-Za-z0-9_.:@-]{1,15}")


@dataclass(frozen=True)
class Front:
    """A head, as far as its front proxy could have the address."""

    host: str
    interface: str = ""
    listen: tuple[str, ...] = ("0.0.0.0",)
    tls: str = "off"


@dataclass(frozen=True)
class AddressHolder:
    """A head with keepalived: its name, and the interface and own address by which the others know it."""

    host: str
    interface: str
    address: str


@dataclass(frozen=True)
class Virtual:
    """The plan, the same for all heads."""

    address: str  # with its length
    router_id: int
    holders: tuple[AddressHolder, ...]

    @property
    def bare(self) -> str:
        return self.address.partition("/")[0]

    def of(self, host: str) -> AddressHolder | None:
        return next((holder for holder in self.holders if holder.host == host), None)

    def priority(self, holder: AddressHolder) -> int:
        return max(1, PRIORITY - self.holders.index(holder))

    def peers(self, host: str) -> list[str]:
        """Addresses of the other heads; nothing for a host that is none."""
        return [holder.address for holder in self.holders if holder.host != host] if self.of(host) else []


def of_cluster(cluster: Mapping[str, Any]) -> Virtual | None:
    """What the plan of a cluster, or of one serving group, says of it."""
    planned = cluster.get("virtual")
    if not planned:
        return None
    return Virtual(
        str(planned["address"]),
        int(planned["router_id"]),
        tuple(
            AddressHolder(str(one["host"]), str(one["interface"]), str(one["address"])) for one in planned["holders"]
        ),
    )


def wanted(variables: Mapping[str, Any]) -> str:
    """``vllm_serve_virtual_address`` as it was given; empty where there is none."""
    return str(variables.get(ADDRESS) or "").strip()


def virtual_address_problems(
    heads: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], cidr: Any = None
) -> list[Finding]:
    """What is known to be wrong before any host was contacted; nothing where no address is wanted."""
    text = wanted(hostvars[heads[0]]) if heads else ""
    if not text:
        return []
    return [*_alone(heads, text), *_router_problems(hostvars[heads[0]]), *_address_problems(text, hostvars, cidr)]


def _alone(heads: Sequence[str], text: str) -> Iterator[Finding]:
    if len(heads) < 2:
        what = f"only {heads[0]} has a front proxy, so there is nobody who could take the address over when it is lost"
        fix = f"remove it and give clients the address of {heads[0]}, or make serving_groups, each with a head"
        yield Finding("virtual_address", what, fix, where=ADDRESS, value=text)


def _router_problems(variables: Mapping[str, Any]) -> Iterator[Finding]:
    given = variables.get(ROUTER, ROUTER_ID)
    if isinstance(given, bool) or not re.fullmatch(r"[0-9]+", str(given)) or not 1 <= int(given) <= 255:
        fix = "give one from 1 to 255 that no other router on that LAN uses"
        yield Finding(
            "virtual_address", "it is not the number of a virtual router", fix, where=ROUTER, value=str(given)
        )


def _address_problems(text: str, hostvars: Mapping[str, Mapping[str, Any]], cidr: Any) -> Iterator[Finding]:
    def finding(what: str, fix: str) -> Finding:
        return Finding("virtual_address", what, fix, where=ADDRESS, value=text)

    free = "give a free address of the LAN on which clients reach the heads"
    try:
        given = ipv4_interface_of(text)
    except FabricError:  # netaddr is not installed
        raise
    except ValueError:
        yield finding("it is not an IPv4 address", "write it with the length of its network, like 192.168.1.100/24")
        return
    fabric = _network(cidr)
    if fabric is not None and given.ip in fabric:
        yield finding(f"it is in the range of the fabric, fabric_cidr {fabric}, where no client is", free)
    for host, variables in hostvars.items():
        if str(variables.get("ansible_host", host)) == str(given.ip):
            yield finding(f"it is the address of {host} itself, which goes with that host", free)


def _network(cidr: Any) -> IPNetwork | None:
    """``fabric_cidr``; what is none is told by the check of the fabric."""
    return ipv4_network_of(str(cidr)) if cidr else None


def plan_virtual(
    fronts: Sequence[Front],
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Mapping[str, Any]],
) -> tuple[Virtual | None, list[Finding]]:
    """Who may have the address and where, and what is wrong with it, by the facts of all hosts."""
    variables = hostvars[fronts[0].host]
    text = wanted(variables)
    if not text:
        return None, []
    given = ipv4_interface_of(text)
    findings = [*_own_address(str(given.ip), nodes, fabric), *_unreachable_fronts(fronts, text)]
    holders, length = [], ""
    for front in fronts:
        interface = front.interface or str(fabric[front.host]["management_netdev"])
        networks = _networks(interface, nodes[front.host], str(given.ip))
        own = next((network for network in networks if _inside(given, "/" in text, network)), None)
        if not _NETDEV.fullmatch(interface) or own is None:
            findings.append(_not_there(front.host, interface, text, networks))
            continue
        holders.append(AddressHolder(front.host, interface, str(own.ip)))
        length = length or str(own.prefixlen)
    return Virtual(f"{given.ip}/{length}", int(variables.get(ROUTER, ROUTER_ID)), tuple(holders)), findings


def _networks(interface: str, node: Mapping[str, Any], virtual: str) -> list[IPNetwork]:
    """The IPv4 addresses of an interface without the virtual one, that of ssh first."""
    management = node["management"]
    told = [
        str(item["address"])
        for link in node.get("interfaces") or ()
        if link["name"] == interface
        for item in link["addresses"]
        if item.get("family") == "inet" and item.get("scope") == "global"
    ]
    if interface == management["netdev"] and "." in management["cidr"]:
        told.insert(0, str(management["cidr"]))
    return [interface_of(text) for text in dict.fromkeys(told) if text.partition("/")[0] != virtual]


def _inside(given: IPNetwork, stated: bool, own: IPNetwork) -> bool:
    """Whether the address is one of a network's hosts, and of that length if one was stated."""
    edges = () if own.prefixlen > 30 else (own.network, own.broadcast)
    return given.ip in own.cidr and given.ip not in edges and (not stated or given.prefixlen == own.prefixlen)


def _not_there(host: str, interface: str, text: str, networks: Sequence[IPNetwork]) -> Finding:
    has = ", ".join(str(network) for network in networks) or "no IPv4 address"
    what = f"it is not an address in a network of {interface}, which has {has}"
    fix = f"give one from there with the same length, or name another interface of {host} as {INTERFACE}"
    return Finding("virtual_address", what, fix, host, ADDRESS, text)


def _own_address(
    address: str, nodes: Mapping[str, Mapping[str, Any]], fabric: Mapping[str, Mapping[str, Any]]
) -> Iterator[Finding]:
    """Hosts that have the address for themselves. One that keepalived gave it has said so in its cluster.json."""
    for host, node in nodes.items():
        planned = fabric.get(host) or {}
        links = [str(link["address"]).partition("/")[0] for link in planned.get("links") or ()]
        mine = [str(planned.get(name, "")) for name in ("management_address", "control_address")]
        carried = [
            str(item["address"]).partition("/")[0]
            for link in node.get("interfaces") or ()
            for item in link["addresses"]
        ]
        ours = (node.get("declared") or {}).get("virtual") == address
        if address in (*links, *mine) or (address in carried and not ours):
            fix = f"give an address that no host has; on {host}, ip address shows where this one comes from"
            if ours:
                fix = "let ansible_host be the host's own address: the virtual one is on another host tomorrow"
            yield Finding("virtual_address", "it is an address of the host itself", fix, host, ADDRESS, address)


def _unreachable_fronts(fronts: Sequence[Front], text: str) -> Iterator[Finding]:
    for front in fronts:
        if "0.0.0.0" not in front.listen:
            what = f"the front proxy does not listen on it: {', '.join(front.listen)}"
            fix = "with a virtual address remove vllm_serve_listen, and say who may come with firewall_api_sources"
            yield Finding("virtual_address", what, fix, front.host, "vllm_serve_listen")
    spoken = {front.tls != "off" for front in fronts}
    if len(spoken) > 1:
        which = ", ".join(f"{front.host} {front.tls}" for front in fronts)
        what = f"some front proxies have TLS and others not ({which}), and one URL is for all of them"
        yield Finding("virtual_address", what, "give all heads the same vllm_serve_tls", where=ADDRESS, value=text)


def declared(nodes: Mapping[str, Mapping[str, Any]], address: str) -> bool:
    """Whether a host already takes part in it, so that its answer is no stranger's."""
    return any((node.get("declared") or {}).get("virtual") == address for node in nodes.values())


def answered(address: str, port: int, seconds: float = 1.0) -> bool:
    """Whether somebody has the address: a refusal is an answer as well. Silence proves nothing."""
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def taken(virtual: Virtual) -> Finding:
    """What is said where somebody else answers."""
    fix = "give an address that nobody has: ping and the LAN's DHCP server know, or arping from a head"
    what = "somebody in the LAN answers there, and no head has it yet"
    return Finding("virtual_address", what, fix, where=ADDRESS, value=virtual.address)


def plan_shared(
    plans: Sequence[Mapping[str, Any]],
    variables: Callable[[str], Mapping[str, Any]],
    hostvars: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, Mapping[str, Any]],
    fabric: Mapping[str, Mapping[str, Any]],
    assumed: bool,
) -> tuple[Virtual | None, list[Finding]]:
    """The address that the heads of all plans have in turn, and what is wrong with it.

    ``plans``: that of the cluster, then those of its serving groups.  ``variables`` gives those of a host by their
    declared types.  Nobody is asked for the address where hosts are only ``assumed``.
    """
    fronts = []
    for host in dict.fromkeys(str(plan["head"]) for plan in plans[1:] or plans):
        given = variables(host)
        listen = tuple(str(address) for address in given.get("vllm_serve_listen") or ("0.0.0.0",))
        tls = front_proxy.effective_tls(
            str(given.get("vllm_serve_tls", role_specs.defaults()["vllm_serve_tls"])), front_proxy.network_of(plans[0])
        )
        fronts.append(Front(host, str(hostvars[host].get(INTERFACE) or ""), listen, tls))
    virtual, problems = plan_virtual(fronts, hostvars, nodes, fabric)
    if virtual is None or problems:
        return virtual, problems
    port = int(hostvars[fronts[0].host].get("vllm_serve_api_port") or role_specs.defaults()["vllm_serve_api_port"])
    known = assumed or declared(nodes, virtual.bare)
    return virtual, [taken(virtual)] if not known and answered(virtual.bare, port) else []


def holders(address: str, interfaces: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Hosts that have the address now, by the interfaces of each."""
    bare = str(address_of(address.partition("/")[0]))
    return [
        host
        for host, links in interfaces.items()
        if any(str(item["address"]).partition("/")[0] == bare for link in links for item in link["addresses"])
    ]
