# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the fabric: cables, addresses, routes, MTU, RDMA."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Callable, Iterator, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import rdma_counters
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import (
    Case,
    check,
    environments,
    hosts_read,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling, fabric_speed, nic_names
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    ipv4_network_of,
    overlap,
    subnet_of,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.virtual_address import holders
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import network_check

if t.TYPE_CHECKING:
    from netaddr import IPNetwork

End = tuple[str, str]
OFF_THE_BUS: t.Final = (
    "A Spark takes a cage without a cable off the bus. With a cable in, the NIC has lost its PCIe link: power the host "
    "off, pull its plug for a minute, start it with the cable plugged in."
)


def _cables(case: Case) -> Iterator[dict[str, list[End]]]:
    """Cables as halves: name of a half → its ends.  A cable to a switch has one end that we can see."""
    seen: set[End] = set()
    for host in case.hosts:
        ports: dict[tuple[str, str], list[Mapping[str, t.Any]]] = {}
        for link in case.links(host):
            ports.setdefault((neighbors.port_of(link["netdev"]), link.get("peer") or ""), []).append(link)
        for (_port, peer), links in ports.items():
            if (host, links[0]["netdev"]) in seen:
                continue
            halves: dict[str, list[End]] = {}
            for link in links:
                ends = [(host, link["netdev"])]
                if peer and link.get("peer_netdev"):
                    ends.append((peer, link["peer_netdev"]))
                seen.update(ends)
                halves[link["netdev"]] = ends
            yield halves


def _carrier(case: Case, end: End) -> bool | None:
    host, netdev = end
    if host not in case.evidence:
        return None
    interface = case.interfaces(host).get(netdev)
    return bool(interface and interface["carrier"])


def _off_the_bus(case: Case, end: End) -> str:
    """The PCI address of a NIC that is missing there; empty where it is there, or where nobody knows."""
    known, address = case.evidence[end[0]].get("nic_pci"), nic_names.pci_of(end[1])
    return "" if known is None or address in known or end[1] in case.interfaces(end[0]) else address


def _words(case: Case, end: End) -> str:
    interface = case.interfaces(end[0]).get(end[1])
    if interface is None:
        missing = _off_the_bus(case, end)
        return f"{end[0]}: {end[1]} is absent" + (f": PCI {missing} is missing" if missing else "")
    if not interface["up"]:
        return f"{end[0]}: {end[1]} is set down"
    return f"{end[0]}: {end[1]} has {'a' if interface['carrier'] else 'no'} carrier"


def _dark(case: Case, ends: Sequence[End]) -> bool:
    return any(_carrier(case, end) is False for end in ends)


@check
def half_cable(case: Case) -> Iterator[Hit]:
    for halves in _cables(case):
        dark = [name for name, ends in halves.items() if _dark(case, ends)]
        if dark and len(dark) < len(halves):
            ends = [end for name in dark for end in halves[name]]
            hosts = tuple(dict.fromkeys(host for host, _netdev in ends))
            seen = [_words(case, end) for end in ends if end[0] in case.evidence]
            seen.append(f"the other half, {', '.join(name for name in halves if name not in dark)}, is up")
            yield Hit(hosts[0], seen, ", ".join(dark), hosts)


def _left(case: Case, ends: Sequence[End]) -> Iterator[str]:
    """What the hosts at these ends serve on with, where they have a second cable to the same place."""
    for host in dict.fromkeys(host for host, _netdev in ends):
        lit = [name for name, interface in case.interfaces(host).items() if interface["carrier"]]
        if left := cabling.what_is_left(case.links(host), lit):
            yield f"{host}: {left}"


@check
def cable_down(case: Case) -> Iterator[Hit]:
    for halves in _cables(case):
        if halves and all(_dark(case, ends) for ends in halves.values()):
            ends = [end for each in halves.values() for end in each]
            hosts = tuple(dict.fromkeys(host for host, _netdev in ends))
            read = [end for end in ends if end[0] in case.evidence]
            missing = [f"{host}: {netdev}" for host, netdev in read if _off_the_bus(case, (host, netdev))]
            cause = f"{', '.join(missing)}: missing from PCI. {OFF_THE_BUS}" if missing else ""
            seen = [_words(case, end) for end in read]
            yield Hit(hosts[0], [*seen, *_left(case, read)], ", ".join(halves), hosts, cause=cause)


def _failing_pairs(case: Case, failed: Callable[[Mapping[str, t.Any]], bool]) -> Iterator[tuple[End, list[End], str]]:
    """Who cannot talk to whom, told by the fewest ends that explain it: one dead port is not a failure per peer."""
    owners = {
        link["address"].partition("/")[0]: (host, link["netdev"]) for host in case.hosts for link in case.links(host)
    }
    pairs: dict[frozenset[End], str] = {}
    for host, evidence in hosts_read(case):
        for ping in evidence.get("pings") or ():
            end, other = (host, ping["netdev"]), owners.get(ping["address"])
            if other is None or other[0] not in case.evidence or not failed(ping):
                continue
            if _carrier(case, end) and _carrier(case, other):
                pairs.setdefault(
                    frozenset((end, other)), f"{host}: {ping['netdev']} to {ping['address']}: {ping['error']}"
                )
    while pairs:
        degree: dict[End, int] = {}
        for pair in pairs:
            for end in pair:
                degree[end] = degree.get(end, 0) + 1
        worst = max(sorted(degree), key=lambda end: degree[end])
        mine = [pair for pair in pairs if worst in pair]
        others = sorted(end for pair in mine for end in pair if end != worst)
        text = pairs[mine[0]]
        for pair in mine:
            del pairs[pair]
        yield worst, others, text


@check
def link_silent(case: Case) -> Iterator[Hit]:
    for end, others, text in _failing_pairs(case, lambda ping: not ping["small"]):
        hosts = tuple(dict.fromkeys((end[0], *(host for host, _netdev in others))))
        peers = ", ".join(f"{host} {netdev}" for host, netdev in others)
        yield Hit(end[0], [f"{end[1]} has a carrier, yet nothing passes to {peers}", text], end[1], hosts)


@check
def path_mtu(case: Case) -> Iterator[Hit]:
    for end, others, text in _failing_pairs(case, lambda ping: ping["small"] and not ping["full"]):
        hosts = tuple(dict.fromkeys((end[0], *(host for host, _netdev in others))))
        peers = ", ".join(f"{host} {netdev}" for host, netdev in others)
        yield Hit(end[0], [f"{end[1]}: small packets reach {peers}, full ones do not", text], end[1], hosts)


@check
def mtu_mismatch(case: Case) -> Iterator[Hit]:
    by_subnet: dict[str, list[tuple[str, Mapping[str, t.Any], int]]] = {}
    for host, _evidence in hosts_read(case):
        for link in case.links(host):
            interface = case.interfaces(host).get(link["netdev"])
            if interface:
                by_subnet.setdefault(subnet_of(link["address"]), []).append((host, link, interface["mtu"]))
    for ends in by_subnet.values():
        planned = next((link["mtu"] for _host, link, _mtu in ends if link.get("mtu")), None)
        values = [mtu for _host, _link, mtu in ends]
        usual = planned or max(sorted(values, reverse=True), key=values.count)
        for host, link, mtu in ends:
            if mtu != usual:
                others = tuple(other for other, _link, _mtu in ends if other != host)
                what = f"planned are {usual}" if planned else f"the other end has {usual}"
                yield Hit(host, [f"{link['netdev']} has an MTU of {mtu}, {what}"], link["netdev"], (host, *others))


@check
def address_missing(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        interfaces = case.interfaces(host)
        for link in case.links(host):
            interface = interfaces.get(link["netdev"])
            if interface is None or not interface["carrier"]:
                continue
            have = [item["address"] for item in interface["addresses"] if item["family"] == "inet"]
            if link["address"] not in have:
                peers = (link["peer"],) if link.get("peer") else ()
                seen = f"{link['netdev']} lacks {link['address']}, it has {', '.join(have) or 'no address'}"
                yield Hit(host, [seen], link["netdev"], (host, *peers))


def _has_fabric(case: Case) -> bool:
    return bool((case.cluster or {}).get("topology", "lan") != "lan")


@check
def address_twice(case: Case) -> Iterator[Hit]:
    """A second owner that has the address on a NIC, or that answers for it to others."""
    owners = {
        link["address"].partition("/")[0]: (host, link["netdev"]) for host in case.hosts for link in case.links(host)
    }
    hosts_by_address: dict[str, list[str]] = {}
    for host, evidence in hosts_read(case):
        for name, interface in case.interfaces(host).items():
            for item in interface["addresses"]:
                address = item["address"].partition("/")[0]
                if owners.get(address, (host, ""))[0] != host:
                    hosts_by_address.setdefault(address, []).append(f"{host} has {address} on {name} as well")
        # on a LAN a repeater answers for others rightly
        for entry in (evidence.get("neighbours") or ()) if _has_fabric(case) else ():
            owner, netdev = owners.get(entry["address"], ("", ""))
            # a host with both halves on one switch may answer by either
            own = {nic.get("mac") for nic in case.interfaces(owner).values()} if owner in case.evidence else set()
            if any(own) and owner != host and entry["mac"] not in own:
                what = f"{host}: {entry['mac']} answers for {entry['address']}, which {owner} has on {netdev}"
                hosts_by_address.setdefault(entry["address"], []).append(what)
    for address, seen in hosts_by_address.items():
        owner, netdev = owners[address]
        others = tuple(dict.fromkeys(line.split()[0].rstrip(":") for line in seen))
        yield Hit(owner, seen, netdev, (owner, *(host for host in others if host != owner)))


@check
def same_subnet(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        subnets: list[tuple[str, str, IPNetwork]] = []
        for name, interface in case.interfaces(host).items():
            if interface.get("virtual") or name == "lo":
                continue
            for item in interface["addresses"]:
                network = ipv4_network_of(item["address"])
                if network is None or item.get("scope") == "link" or network.prefixlen == 32:
                    continue
                for other, address, existing in subnets:
                    if other != name and overlap(existing, network):
                        yield Hit(host, [f"{other} has {address} and {name} has {item['address']}"], f"{other}, {name}")
                subnets.append((name, item["address"], network))


@check
def foreign_route(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        planned = [(ipv4_network_of(link["address"]), link["netdev"]) for link in case.links(host)]
        interfaces = case.interfaces(host).values()
        addresses = {item["address"].partition("/")[0] for link in interfaces for item in link["addresses"]}
        for route in case.node(host).get("routes") or ():
            network = ipv4_network_of(route["dst"])
            if network is None or route.get("protocol") == "kernel" or network.prefixlen == 0:
                continue
            hit = next((netdev for subnet, netdev in planned if subnet and overlap(subnet, network)), "")
            if hit:
                via = f" via {route['gateway']}" if route.get("gateway") else ""
                self_made = ", its own address" if route.get("gateway") in addresses else ""
                seen = f"{route['dst']}{via} dev {route['dev']} proto {route.get('protocol') or '-'}{self_made}"
                yield Hit(host, [f"{seen}: covers the subnet of {hit}"], route["dev"])


@check
def address_shadowed(case: Case) -> Iterator[Hit]:
    """Another interface of a host, such as a bond that nobody uses any more, that has an address in a fabric subnet."""
    for host, _evidence in hosts_read(case):
        planned = {link["netdev"]: ipv4_network_of(link["address"]) for link in case.links(host)}
        for name, interface in case.interfaces(host).items():
            if name in planned or name == "lo":
                continue
            for item in interface["addresses"]:
                network = ipv4_network_of(item["address"])
                if network is None or network.prefixlen == 32:
                    continue
                hit = next((netdev for netdev, subnet in planned.items() if subnet and overlap(subnet, network)), "")
                if hit:
                    yield Hit(host, [f"{name} has {item['address']}, in the subnet of {hit}"], name)


@check
def fabric_enslaved(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        for link in case.links(host):
            master = case.interfaces(host).get(link["netdev"], {}).get("master")
            if master:
                yield Hit(host, [f"{link['netdev']} is a slave of {master}"], link["netdev"])


@check
def default_by_fabric(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        fabric = {*SPARK_NETDEVS, *(link["netdev"] for link in case.links(host))} if case.links(host) else set()
        for route, by, fix in network_check.default_routes(fabric, case.node(host)):
            seen = f"default via {route.get('gateway') or '-'} dev {route['dev']}: {by}"
            yield Hit(host, [seen], route["dev"], fix="" if route["dev"] in fabric else fix)


@check
def rdma_absent(case: Case) -> Iterator[Hit]:
    if not case.roce:
        return
    for host, evidence in hosts_read(case):
        by_netdev = {link["netdev"]: link for link in (evidence.get("rdma") or {}).get("links") or ()}
        lacking = [
            link["netdev"]
            for link in case.links(host)
            if link["netdev"] not in by_netdev and link["netdev"] in case.interfaces(host)
        ]
        if lacking:
            yield Hit(host, [f"no RDMA device belongs to {', '.join(lacking)}"], ", ".join(lacking))


@check
def nic_absent(case: Case) -> Iterator[Hit]:
    """A Spark takes a cage without a cable off the bus, so it is the NIC's fault only where the cable's other end is
    lit."""
    for host, _evidence in hosts_read(case):
        here = case.interfaces(host)
        seen = [
            f"{link['netdev']} is absent, and {link['peer']}: {link['peer_netdev']} has a carrier"
            for link in case.links(host)
            if link.get("peer") and case.node(host).get("kind") == "spark"
            if link["netdev"] not in here and _carrier(case, (link["peer"], link["peer_netdev"]))
            if not nic_names.now_called(link["netdev"], here.values())
        ]
        if seen:
            yield Hit(host, seen)


@check
def nic_renamed(case: Case) -> Iterator[Hit]:
    for host, _evidence in hosts_read(case):
        for link in case.links(host):
            netdev = link["netdev"]
            if now := nic_names.now_called(netdev, case.interfaces(host).values()):
                what, fix = nic_names.renamed(netdev, now)
                yield Hit(host, [what], netdev, fix=fix)


@check
def nic_throttled(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        planned = {link["netdev"] for link in case.links(host)}
        for netdev, values in (evidence.get("pcie") or {}).items():
            if netdev not in planned:
                continue
            for key, unit in (("width", " lanes"), ("speed", "")):
                now, most = values.get(f"current_link_{key}", ""), values.get(f"max_link_{key}", "")
                # a ConnectX-7 has more lanes than the four that each half of a Spark's cage gives it
                limit = min(_first(most), 4.0) if key == "width" else _first(most)
                if now and most and _first(now) < limit:
                    yield Hit(host, [f"{netdev}: PCIe {key} is {now}{unit}, it could be {most}{unit}"], netdev)


def _slow_links(case: Case) -> list[fabric_speed.Slow]:
    rates = {
        host: {
            link["netdev"]: link["rate"]
            for link in (evidence.get("rdma") or {}).get("links") or ()
            if link["state"] == "up" and link.get("rate")
        }
        for host, evidence in hosts_read(case)
        if case.node(host).get("kind") == "spark" and case.links(host)
    }
    return fabric_speed.slow(case.fabric or {}, rates)


@check
def link_rate(case: Case) -> Iterator[Hit]:
    for one in _slow_links(case):
        if not one.mixed:
            yield Hit(one.hosts[0], [f"{', '.join(one.hosts)}: {one.what}"], hosts=one.hosts)


@check
def link_rates_mixed(case: Case) -> Iterator[Hit]:
    for one in _slow_links(case):
        if one.mixed:
            yield Hit(one.hosts[0], [f"{', '.join(one.hosts)}: {one.what}"], hosts=one.hosts, fix=one.fix)


@check
def fabric_loses(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for what in rdma_counters.told(evidence.get("rdma_counters") or {}):
            yield Hit(host, [what])


def _first(text: str) -> float:
    match = re.match(r"\s*(\d+(?:\.\d+)?)", text)
    return float(match[1]) if match else 0.0


@check
def gid_moved(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        pinned: dict[str, str] = {}
        for name, content in (evidence.get("nccl") or {}).items():
            if "NCCL_IB_GID_INDEX" in content["settings"]:
                pinned[name] = content["settings"]["NCCL_IB_GID_INDEX"]
        for where, environment in environments(evidence):
            if "NCCL_IB_GID_INDEX" in environment:
                pinned[where] = environment["NCCL_IB_GID_INDEX"]
        planned = {link["netdev"] for link in case.links(host)}
        for where, value in pinned.items():
            if not value.strip().isdigit():
                continue
            for link in (evidence.get("rdma") or {}).get("links") or ():
                if link["netdev"] in planned and link.get("gid_index") not in (None, int(value)):
                    real = f"the RoCE v2 address of {link['device']} is at index {link['gid_index']}"
                    yield Hit(host, [f"{where} pins NCCL_IB_GID_INDEX={value.strip()}, {real}"], where)


@check
def forward_drop(case: Case) -> Iterator[Hit]:
    """Somebody routes through this host, and this host's FORWARD chain drops it."""
    for host, evidence in hosts_read(case):
        forward = evidence.get("forward") or {}
        if forward.get("policy") != "drop":
            continue
        addresses = {link["address"].partition("/")[0] for link in case.links(host)}
        netdevs = {link["netdev"] for link in case.links(host)}
        if netdevs and netdevs <= set(forward.get("accepts") or ()):
            continue
        for other, _theirs in hosts_read(case):
            through = [
                route
                for route in case.node(other).get("routes") or ()
                if other != host and route.get("gateway") in addresses
            ]
            if through:
                routes = ", ".join(f"{route['dst']} via {route['gateway']}" for route in through)
                by = " (Docker's)" if forward.get("docker") else ""
                yield Hit(
                    host,
                    [f"{other} routes {routes}", f"{host}: policy of chain FORWARD is DROP{by}"],
                    hosts=(host, other),
                )


@check
def firewall_open(case: Case) -> Iterator[Hit]:
    """By what is loaded: the unit that loaded it stays active when somebody flushes the ruleset."""
    for host, evidence in hosts_read(case):
        firewall = evidence.get("firewall") or {}
        if firewall.get("state") == "open":
            yield Hit(host, [firewall["reason"]])


@check
def firewall_unwatched(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        watch = (evidence.get("units") or {}).get("sparkthor-firewall-watch.service") or {}
        if (evidence.get("firewall") or {}).get("state") == "closed" and watch.get("ActiveState") != "active":
            yield Hit(host, [f"sparkthor-firewall-watch.service is {watch.get('ActiveState') or 'absent'}"])


@check
def virtual_address_held(case: Case) -> Iterator[Hit]:
    """Heads that take part have said so in their cluster.json; one that did not answer may be the one that has it."""
    by_address: dict[str, list[str]] = {}
    for host, _evidence in hosts_read(case):
        address = (case.node(host).get("declared") or {}).get("virtual")
        if address:
            by_address.setdefault(address, []).append(host)
    for address, heads in by_address.items():
        having = holders(
            address, {host: case.node(host).get("interfaces") or () for host, _evidence in hosts_read(case)}
        )
        if len(having) > 1:
            yield Hit(having[0], [f"{' and '.join(having)} have {address} at once"], address, tuple(having))
        elif not having and all(host in case.evidence for host in case.hosts):
            yield Hit(heads[0], [f"none of {', '.join(heads)} has {address}"], address, tuple(heads))
