# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and routes of a host that conflict with the plan."""

from __future__ import annotations

import shlex
import typing as t
from collections.abc import Iterator, Mapping, Set

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    ipv4_interface_of,
    ipv4_network_of,
    is_everywhere,
    overlap,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import (
    Node,
    Plan,
    interfaces_of,
)

if t.TYPE_CHECKING:
    from netaddr import IPNetwork


def planned_subnets(plan: Plan) -> dict[IPNetwork, str]:
    """Planned subnets and, for messages, the NIC name that first has each."""
    found: dict[IPNetwork, str] = {}
    for entry in plan.values():
        if entry["addressing"] == "managed":
            for link in entry["links"]:
                found.setdefault(ipv4_interface_of(link["subnet"]), link["netdev"])
    return found


def overlap_problems(
    host: str, entry: t.Any, node: Node, probe: Mapping[str, t.Any], subnets: Mapping[IPNetwork, str]
) -> list[Finding]:
    """Interfaces, routes and gateways of this host that the planned subnets would collide with."""
    fabric_nics = set((probe.get("netplan") or {}).get("own", ())) | {link["netdev"] for link in entry["links"]}
    fix = "choose a fabric_cidr that no network of any host uses, or remove it"
    problems = []
    blamed: set[str] = set()
    for name, interface in interfaces_of(node).items():
        if name in fabric_nics:  # a foreign address on a fabric NIC is a finding of its own
            continue
        for item in interface.get("addresses", ()):
            network = ipv4_network_of(item["address"])
            subnet = _hit(network, subnets)
            if subnet:
                blamed.add(name)
                problems.append(
                    Finding(
                        "overlap",
                        f"NIC {name} has {item['address']}, inside or around the planned {subnet}",
                        fix,
                        host,
                        name,
                    )
                )
    for route in node.get("routes", ()):
        words = f"route {route['dst']}" + (f" via {route['gateway']}" if route["gateway"] else "")
        words += f" dev {route['dev']}" if route["dev"] else ""
        gateway = ipv4_network_of(route["gateway"])
        if route["dev"] in fabric_nics and route["protocol"] == "kernel":
            continue
        if route["dev"] in blamed and route["protocol"] == "kernel":
            continue  # follows from the address already named
        subnet = _hit(gateway, subnets)
        if subnet:
            problems.append(
                Finding("overlap", f"the gateway of {words} is in the planned {subnet}", fix, host, route["dev"])
            )
            continue
        subnet = _hit(None if route["dst"] == "default" else ipv4_network_of(route["dst"]), subnets)
        if subnet:
            problems.append(Finding("overlap", f"{words} overlaps the planned {subnet}", fix, host, route["dev"]))
    return problems


def _hit(network: IPNetwork | None, subnets: Mapping[IPNetwork, str]) -> IPNetwork | None:
    if network is None or is_everywhere(network):
        return None
    return next((subnet for subnet in subnets if overlap(subnet, network)), None)


def management_address_problems(host: str, entry: t.Any, node: Node) -> list[Finding]:
    """The connection of the controller by a fabric NIC: the change of the fabric would end it."""
    netdev = (node.get("management") or {}).get("netdev", "")
    if netdev not in {*SPARK_NETDEVS, *(link["netdev"] for link in entry["links"])}:
        return []
    others = [
        f"{item['address'].partition('/')[0]} ({name})"
        for name, interface in interfaces_of(node).items()
        if name not in SPARK_NETDEVS and name != "lo" and not interface.get("virtual")
        for item in interface.get("addresses", ())
        if item.get("scope") == "global"
    ]
    return [
        Finding(
            "management",
            f"the controller comes in by {netdev} ({node['management'].get('address', '')}), a NIC of the fabric: this "
            "run would change its addresses",
            f"set ansible_host to {' or '.join(others) if others else 'an address of its RJ45 port or Wi-Fi'}",
            host,
            netdev,
        )
    ]


#: NICs of VPNs by the names that their programs give them, and of Wi-Fi (systemd.net-naming-scheme(7))
VPNS: t.Final = ("tailscale", "wg", "wt", "tun", "tap", "zt", "ppp", "utun", "nebula", "CloudflareWARP")
_DETOURS: t.Final = (
    (VPNS, "a VPN"),
    (("wl",), "Wi-Fi"),
)


def detour_problems(host: str, entry: t.Any) -> list[Finding]:
    """Control traffic of ranks by a VPN or Wi-Fi: it works, and one lost packet stalls all."""
    netdev = entry["control_netdev"]
    what = next((kind for names, kind in _DETOURS if netdev.startswith(names)), "")
    if not what:
        return []
    return [
        Finding(
            "detour",
            f"Ray, the engine's rendezvous and NCCL's bootstrap go by {netdev} ({entry['control_address']}), which is "
            f"{what}",
            "connect the RJ45 ports to one LAN and set fabric_lan_nic to the wired NIC of each host",
            host,
            netdev,
            severity=WARNING,
        )
    ]


def _control_networks(entry: t.Any, node: Node) -> Set[t.Any]:
    """The network of the address by which peers reach a host, as it is there now."""
    interface = interfaces_of(node).get(entry["control_netdev"], {})
    own = (item["address"] for item in interface.get("addresses", ()))
    found = {ipv4_network_of(address) for address in own if address.partition("/")[0] == entry["control_address"]}
    return found - {None}


def second_address_problems(host: str, entry: t.Any, node: Node) -> list[Finding]:
    """A second address of the NIC by which peers reach a host: the kernel may send from it, as with a lease of DHCP.

    One that goes from host to host is ours, and nothing is sent from it.
    """
    netdev, address, here = entry["control_netdev"], entry["control_address"], _control_networks(entry, node)
    sources = [
        route["prefsrc"]
        for route in node.get("routes", ())
        if route["dev"] == netdev and route["protocol"] == "kernel" and ipv4_network_of(route["dst"]) in here
    ]
    if sources[:1] == [address]:
        return []
    return [
        Finding(
            "second_address",
            f"NIC {netdev} has {item['address']} beside {address}, in one network: the firewall of a peer trusts "
            f"{address} alone, and the host may send from the other one",
            f"keep one of them (a lease of DHCP goes with dhcp4: false in the netplan file of {netdev}, or sudo nmcli "
            "connection modify NAME ipv4.method manual), and make ansible_host that one",
            host,
            netdev,
            severity=WARNING,
        )
        for item in interfaces_of(node).get(netdev, {}).get("addresses", ())
        if item.get("scope") == "global"
        and item["address"].partition("/")[0] not in (address, (node.get("declared") or {}).get("virtual"))
        and ipv4_network_of(item["address"]) in here
    ]


def second_nic_problems(host: str, entry: t.Any, node: Node) -> list[Finding]:
    """Another NIC in the network by which peers reach this host, so that their firewalls may meet it as a stranger."""
    netdev, here = entry["control_netdev"], _control_networks(entry, node)
    return [
        Finding(
            "second_nic",
            f"NIC {name} ({item['address']}) is in the network of {netdev} ({entry['control_address']}), by which the "
            "hosts reach each other: what goes by it the firewall of a peer takes for a stranger's",
            f"take {name} off that network (of Wi-Fi: sudo nmcli connection modify NAME autoconnect no, sudo nmcli "
            f"device disconnect {name}), or set fabric_lan_nic to the NIC that stays",
            host,
            name,
            severity=WARNING,
        )
        for name, interface in interfaces_of(node).items()
        for item in interface.get("addresses", ())
        if name != netdev and item.get("scope") == "global" and ipv4_network_of(item["address"]) in here
    ]


def _stacked(fabric: Set[str], interfaces: Mapping[str, Mapping[str, t.Any]]) -> dict[str, str]:
    """What has nothing but NICs of the fabric below it, in words: bonds, bridges, VLANs and such, also one on another.

    A bridge that joins another NIC as well leads there too.
    """
    above = dict.fromkeys(fabric, "")
    while True:
        found: dict[str, str] = {}
        for name, interface in interfaces.items():
            lower, master = interface.get("lower"), str(interface.get("master") or "")
            if name not in above and lower in above:
                found[name] = f"{str(interface.get('kind')).upper()} {name} on {above[lower] or f'fabric NIC {lower}'}"
            if name not in above or not master or master in above:
                continue
            kind = str(interfaces.get(master, {}).get("kind") or "bond")
            others = [one for one, other in interfaces.items() if other.get("master") == master and one not in above]
            if kind != "bridge" or not any(interfaces[one].get("kind") in ("", "vlan", "bond") for one in others):
                found[master] = f"{kind} {master} of {above[name] or 'fabric NICs'}"
        if not found:
            return {name: words for name, words in above.items() if words}
        above.update(found)


def default_routes(fabric: Set[str], node: Node) -> Iterator[tuple[Mapping[str, t.Any], str, str]]:
    """Routes to everywhere by the fabric, by what each goes in words, and the fix."""
    stacked = _stacked(fabric, interfaces_of(node))
    for route in node.get("routes") or ():
        netdev = route["dev"]
        if route["dst"] == "default" and (netdev in fabric or netdev in stacked):
            fix = (
                "switch the DHCP server of the fabric's switch off; on the host: sudo nmcli connection modify NAME "
                f"ipv4.never-default yes for the connection of {netdev} (nmcli -g NAME,DEVICE connection show), or "
                "dhcp4-overrides: {use-routes: false} in its netplan file, then sudo ip route del default dev "
                f"{netdev}"
            )
            yield route, stacked.get(netdev) or f"fabric NIC {netdev}", fix


def default_route_problems(host: str, entry: t.Any, node: Node) -> list[Finding]:
    """A way to everywhere by the fabric: whoever answers DHCP there has cut the host off from the internet."""
    fabric = {*SPARK_NETDEVS, *(link["netdev"] for link in entry["links"])}
    interfaces = interfaces_of(node)
    problems = []
    for route, by, fix in default_routes(fabric, node):
        what = f"its default route goes by {by} (via {route['gateway'] or 'no gateway'}), so it may reach no internet"
        problems.append(Finding("default_route", what, fix, host, route["dev"], severity=WARNING))
    for name in sorted(fabric & set(interfaces)):
        master = interfaces[name].get("master")
        if master and name in {link["netdev"] for link in entry["links"]}:
            what = f"fabric NIC {name} is a slave of {master}, so it can carry no address of its own"
            fix = (
                f"take {name} out of {master} in its netplan file or NetworkManager profile (sudo nmcli connection "
                f"delete NAME), then sudo ip link set {name} nomaster"
            )
            problems.append(Finding("enslaved", what, fix, host, name))
    return problems


def same_subnet_problems(host: str, entry: t.Any, node: Node) -> list[Finding]:
    """Two fabric NICs of a host that have addresses in one subnet right now.

    A lease on a NIC that the plan takes over goes with the profile that asked for it.
    """
    planned = {(link["netdev"], link["address"]) for link in entry["links"]}
    taken_over = {link["netdev"] for link in entry["links"]} if entry["addressing"] == "managed" else set()
    names = {*SPARK_NETDEVS, *(link["netdev"] for link in entry["links"])}
    subnets: list[tuple[str, str, IPNetwork]] = []
    problems = []
    for name, interface in interfaces_of(node).items():
        if name not in names:
            continue
        for item in interface.get("addresses", ()):
            network = ipv4_network_of(item["address"])
            leased = item.get("dynamic") and name in taken_over
            if network is None or item.get("scope") == "link" or leased:
                continue
            for other, address, existing in subnets:
                pair_is_planned = (name, item["address"]) in planned and (other, address) in planned
                if other != name and overlap(existing, network) and not pair_is_planned:
                    problems.append(
                        Finding(
                            "same_subnet",
                            f"NICs {other} ({address}) and {name} ({item['address']}) are in one subnet: routing "
                            "between them is ambiguous and NCCL hangs",
                            f"remove the address of {name} (sudo ip address del {item['address']} dev "
                            f"{shlex.quote(name)}) and the file that sets it, or set "
                            "roce_network_replace_foreign: true",
                            host,
                            name,
                        )
                    )
            subnets.append((name, item["address"], network))
    return problems


def adopted_problems(host: str, entry: t.Any, node: Node) -> list[Finding]:
    """On a lan the network is taken as it is: the one NIC must be there, up and with the MTU that was declared."""
    problems = []
    interfaces = interfaces_of(node)
    for link in entry["links"]:
        netdev = link["netdev"]
        interface = interfaces.get(netdev)
        if interface is None or not any(item["address"] == link["address"] for item in interface["addresses"]):
            problems.append(
                Finding(
                    "address",
                    f"NIC {netdev} does not have {link['address']}, which peers would use",
                    "correct fabric_lan_nic or the host's address",
                    host,
                    netdev,
                )
            )
            continue
        if not interface["carrier"]:
            problems.append(Finding("carrier", f"NIC {netdev} has no carrier", "plug in its cable", host, netdev))
        if link["mtu"] and interface["mtu"] != link["mtu"]:
            problems.append(
                Finding(
                    "mtu",
                    f"NIC {netdev} has an MTU of {interface['mtu']}, fabric_mtu asks for {link['mtu']}",
                    "on a lan nothing is configured: set the MTU on the host, or leave fabric_mtu undefined",
                    host,
                    netdev,
                )
            )
    return problems
