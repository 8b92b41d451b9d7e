# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan against what the hosts say they are: every difference that would hurt, before anything is written.

Pure, on the controller. Input: the plan of all hosts (:mod:`_fabric`), the fact ``sparkthor_node`` of each host
(module ``node_info``) and, where it ran, what the module ``host_compare`` saw on each host.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from ipaddress import IPv4Interface, IPv4Network

from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric

Node = Mapping[str, t.Any]
Plan = Mapping[str, t.Any]

#: findings that a user may declare known; everything else stops the run
ACCEPTABLE: t.Final = ("pending_edit", "runtime_address", "parity", "known_bad", "clock")
#: findings that replacing foreign settings mends by itself
REPLACEABLE: t.Final = ("foreign_file", "foreign_address", "same_subnet")

#: seconds that a clock may be off: certificates are judged by it, and logs of several hosts are read together
CLOCK_LIMIT: t.Final = 30

#: combinations that do not serve, as data: ``fact`` is a path into sparkthor_node, ``match`` a shell pattern
KNOWN_BAD: t.Final[tuple[dict[str, str], ...]] = (
    {
        "fact": "kernel",
        "match": "7.0.0-1019-nvidia*",
        "reason": "it reserves no contiguous memory (CmaTotal is 0) and CUDA allocations fail",
        "mend": "boot a 6.17.0-103x-nvidia kernel",
    },
    {
        "fact": "kernel",
        "match": "6.17.0-1008-nvidia*",
        "reason": "it panics under load",
        "mend": "update to a 6.17.0-103x-nvidia kernel",
    },
)

_SPARK_NETDEVS: t.Final = {fabric.spark_netdev(cage, half): (cage, half) for cage in (0, 1) for half in fabric.HALVES}


@dataclasses.dataclass(frozen=True)
class Problem:
    """One finding. ``severity``: ``error`` stops the run, ``warning`` and ``unknown`` are only reported."""

    kind: str
    host: str
    message: str
    mend: str
    netdev: str = ""
    severity: str = "error"

    def __str__(self) -> str:
        return f"host {self.host}: {self.message}; {self.mend}"


def check_facts(
    plan: Plan,
    nodes: Mapping[str, Node],
    probes: Mapping[str, Mapping[str, t.Any]] | None = None,
    accept: Iterable[str] = (),
    replace_foreign: bool = False,
    known_bad: Sequence[Mapping[str, str]] = KNOWN_BAD,
) -> list[Problem]:
    """Every finding, host by host in the plan's order, then those that concern several hosts."""
    probes = probes or {}
    problems: list[Problem] = []
    subnets = _subnets(plan)
    for host, entry in plan.items():
        node, probe = nodes[host], probes.get(host) or {}
        if entry["addressing"] == "adopted":
            problems += _adopted_problems(host, entry, node)
        else:
            problems += port_problems(host, entry, nodes, probes)
            problems += overlap_problems(host, entry, node, probe, subnets)
            problems += same_subnet_problems(host, entry, node)
            problems += rdma_problems(host, entry, node, probe)
            problems += netplan_problems(host, probe)
        problems += known_bad_problems(host, node, known_bad)
        problems += clock_problems(host, node)
    problems += cabling_problems(plan, probes)
    problems += parity_problems(plan, nodes, probes)
    return _settle(_fold(problems), set(accept), replace_foreign)


def split(problems: Iterable[Problem]) -> tuple[list[str], list[str]]:
    """Messages that stop the run, and those that are only reported."""
    errors: list[str] = []
    others: list[str] = []
    for problem in problems:
        (errors if problem.severity == "error" else others).append(str(problem))
    return errors, others


def devices(probes: Mapping[str, Mapping[str, t.Any]]) -> dict[str, dict[str, str]]:
    """RDMA device by host and NIC, for :func:`_fabric.adopt_devices`."""
    return {
        host: {link["netdev"]: link["device"] for link in (probe.get("rdma") or {}).get("links", ())}
        for host, probe in probes.items()
    }


def _settle(problems: Iterable[Problem], accept: set[str], replace_foreign: bool) -> list[Problem]:
    settled = []
    for problem in problems:
        known = problem.kind in accept and problem.kind in ACCEPTABLE
        replaced = replace_foreign and problem.kind in REPLACEABLE
        if problem.severity == "error" and (known or replaced):
            problem = dataclasses.replace(problem, severity="warning")
        settled.append(problem)
    return settled


def _fold(problems: Iterable[Problem]) -> list[Problem]:
    """The same finding once: a NIC without a carrier has no neighbour either, and says so by itself."""
    seen: set[tuple[str, str, str]] = set()
    folded = []
    for problem in problems:
        key = (problem.kind, problem.host, problem.message)
        if key not in seen:
            seen.add(key)
            folded.append(problem)
    return folded


def _interfaces(node: Node) -> dict[str, Mapping[str, t.Any]]:
    return {link["name"]: link for link in node.get("interfaces", ())}


def _subnets(plan: Plan) -> dict[IPv4Network, str]:
    """Planned subnets and, for messages, the NIC name that first has each."""
    found: dict[IPv4Network, str] = {}
    for entry in plan.values():
        if entry["addressing"] == "managed":
            for link in entry["links"]:
                found.setdefault(IPv4Network(link["subnet"]), link["netdev"])
    return found


def _cage(netdev: str) -> str:
    place = _SPARK_NETDEVS.get(netdev)
    return (
        f"cage {place[0]} ({'next to the RJ45 port' if place[0] == 0 else 'away from the RJ45 port'})"
        if place
        else netdev
    )


# ---------------------------------------------------------------------------------------------------------------------
# Ports: there, cabled, the right cage, both halves


def port_problems(
    host: str, entry: t.Any, nodes: Mapping[str, Node], probes: Mapping[str, Mapping[str, t.Any]]
) -> list[Problem]:
    """Carrier, cage, both halves, what MTU the NIC can do."""
    probe = probes.get(host) or {}
    interfaces = _interfaces(nodes[host])
    probed = probe.get("ports") or {}
    states: dict[str, str] = {}
    for netdev in {*_SPARK_NETDEVS, *(link["netdev"] for link in entry["links"])}:
        states[netdev] = _port_state(interfaces.get(netdev), probed.get(netdev))
    planned = [link["netdev"] for link in entry["links"]]
    problems: list[Problem] = []

    dead = [netdev for netdev in planned if states[netdev] in ("absent", "dark")]
    other_cage = [name for name in _SPARK_NETDEVS if name not in planned and states[name] == "carrier"]
    if dead and len(dead) == len(planned) and other_cage:
        number = _SPARK_NETDEVS[other_cage[0]][0]
        problems.append(
            Problem(
                "cage",
                host,
                f"NIC {planned[0]} has no carrier, but {other_cage[0]} has: the cable is in {_cage(other_cage[0])}, "
                f"the plan uses {_cage(planned[0])}",
                f"move the cable, or set fabric_cage: {number} if it is in that cage on every host",
                planned[0],
            )
        )
    else:
        for link in entry["links"]:
            if link["netdev"] in dead:
                problem = _dead_port(host, link, states)
                if states[link["netdev"]] == "dark" and _peer_is_down(link, nodes, probes):
                    why = f"{link['peer']} {link['peer_netdev']} at its other end is administratively down"
                    problem = dataclasses.replace(
                        problem, message=f"NIC {link['netdev']} has no carrier, but {why}", severity="unknown"
                    )
                problems.append(problem)
    for link in entry["links"]:
        netdev = link["netdev"]
        if states[netdev] == "down":
            trouble = (probe.get("errors") or {}).get(netdev)
            problems.append(
                Problem(
                    "carrier",
                    host,
                    f"NIC {netdev} is administratively down, so its carrier and neighbour are unknown"
                    + (f" ({trouble})" if trouble else ""),
                    f"a run without check mode sets it up to look; by hand: sudo ip link set {netdev} up",
                    netdev,
                    "error" if trouble else "unknown",
                )
            )
        limit = int(interfaces.get(netdev, {}).get("max_mtu") or 0)
        if link["mtu"] and limit and link["mtu"] > limit:
            problems.append(
                Problem(
                    "mtu",
                    host,
                    f"NIC {netdev} can do an MTU of {limit} at most, fabric_mtu asks for {link['mtu']}",
                    f"set fabric_mtu: {limit} or less",
                    netdev,
                )
            )
    return problems


def _port_state(interface: Mapping[str, t.Any] | None, probed: Mapping[str, t.Any] | None) -> str:
    """``absent``, ``down`` (administratively, carrier unknown), ``dark`` (no carrier) or ``carrier``."""
    if probed is not None:
        if not probed["present"]:
            return "absent"
        return "down" if probed["carrier"] is None else ("carrier" if probed["carrier"] else "dark")
    if interface is None:
        return "absent"
    if not interface["up"]:
        return "down"
    return "carrier" if interface["carrier"] else "dark"


def _peer_is_down(
    link: Mapping[str, t.Any], nodes: Mapping[str, Node], probes: Mapping[str, Mapping[str, t.Any]]
) -> bool:
    """Whether nobody set the other end up, so that the lack of a carrier here says nothing about the cable."""
    if not link["peer"]:
        return False
    probed = ((probes.get(link["peer"]) or {}).get("ports") or {}).get(link["peer_netdev"])
    interface = _interfaces(nodes[link["peer"]]).get(link["peer_netdev"])
    return _port_state(interface, probed) == "down"


def _dead_port(host: str, link: Mapping[str, t.Any], states: Mapping[str, str]) -> Problem:
    netdev = link["netdev"]
    gone = "is not there" if states[netdev] == "absent" else "has no carrier"
    place = _SPARK_NETDEVS.get(netdev)
    twin = fabric.spark_netdev(place[0], 1 - place[1]) if place else ""
    if twin and states.get(twin) == "carrier":
        return Problem(
            "half",
            host,
            f"NIC {netdev} {gone} though {twin}, the other half of the same cage, has a carrier: the link would run at "
            "half its speed",
            "reseat the cable at both ends; if that does not help, power the host off and on (a reboot is not enough)",
            netdev,
        )
    end = f" to {link['peer']} {link['peer_netdev']}" if link["peer"] else " to the switch"
    hint = "; an uncabled ConnectX-7 leaves the PCI bus" if states[netdev] == "absent" else ""
    return Problem(
        "carrier",
        host,
        f"NIC {netdev} {gone}{hint}",
        f"plug the cable{end} into {_cage(netdev)}, and see that the other end is plugged and powered",
        netdev,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Cables: who is at the other end


def cabling_problems(plan: Plan, probes: Mapping[str, Mapping[str, t.Any]]) -> list[Problem]:
    """Links whose other end is somebody else than planned, with the cable to move."""
    wrong: list[tuple[str, t.Any, list[tuple[str, str]]]] = []
    silent: list[tuple[str, t.Any]] = []
    for host, entry in plan.items():
        probe = probes.get(host) or {}
        for link in entry["links"]:
            port = (probe.get("ports") or {}).get(link["netdev"])
            if not link["peer"] or port is None or not port["carrier"]:
                continue  # unknown or already reported
            seen = [(item["host"], item["netdev"]) for item in (probe.get("neighbours") or {}).get(link["netdev"], ())]
            if neighbors.is_neighbour(seen, link["peer"], link["peer_netdev"]):
                continue
            if seen:
                wrong.append((host, link, seen))
            else:
                silent.append((host, link))
    reverse = _runs_backwards(plan, wrong)
    problems, wrong = _swapped(wrong)
    told: set[tuple[str, str]] = set()
    for host, link, seen in wrong:
        cage = (host, neighbors.port_of(link["netdev"]))
        if cage in told:  # both halves of a cable say the same
            continue
        told.add(cage)
        other_host, other_netdev = seen[0]
        mend = (
            f"move the end that is in {_cage(other_netdev)} of {other_host} to {_cage(link['peer_netdev'])} of "
            f"{link['peer']}"
        )
        if reverse:
            mend = (
                f"the ring runs the other way round: list the hosts as {', '.join(reverse)}, or swap both cables on "
                "every host"
            )
        problems.append(
            Problem(
                "cabling",
                host,
                f"NIC {link['netdev']} is cabled to {other_host} {other_netdev}, the plan wants {link['peer']} "
                f"{link['peer_netdev']} there",
                mend,
                link["netdev"],
            )
        )
    for host, link in silent:
        peer_port = ((probes.get(link["peer"]) or {}).get("ports") or {}).get(link["peer_netdev"]) or {}
        if not probes.get(link["peer"]) or peer_port.get("carrier") is None:
            severity, why = "unknown", f"{link['peer']} was not probed there"
        else:
            severity, why = "error", f"nobody of this cluster answers on it, the plan wants {link['peer']} there"
        problems.append(
            Problem(
                "cabling",
                host,
                f"NIC {link['netdev']} has a carrier, but {why}",
                f"follow the cable from {_cage(link['netdev'])}: its other end belongs in {_cage(link['peer_netdev'])} "
                f"of {link['peer']}",
                link["netdev"],
                severity,
            )
        )
    return problems


def _swapped(
    wrong: Sequence[tuple[str, t.Any, list[tuple[str, str]]]],
) -> tuple[list[Problem], list[tuple[str, t.Any, list[tuple[str, str]]]]]:
    """Hosts whose two cables changed places, as one problem each, and the wrong links that this does not explain."""
    ports: dict[str, dict[str, tuple[t.Any, list[tuple[str, str]]]]] = {}
    for host, link, seen in wrong:
        ports.setdefault(host, {}).setdefault(neighbors.port_of(link["netdev"]), (link, seen))
    problems = []
    swapped: set[str] = set()
    for host, found in ports.items():
        if len(found) != 2:
            continue
        (one, sees_one), (two, sees_two) = found.values()
        if neighbors.is_neighbour(sees_one, two["peer"], two["peer_netdev"]) and neighbors.is_neighbour(
            sees_two, one["peer"], one["peer_netdev"]
        ):
            swapped.add(host)
            problems.append(
                Problem(
                    "cabling",
                    host,
                    f"its two cables are swapped: NIC {one['netdev']} is cabled to {sees_one[0][0]} {sees_one[0][1]}, "
                    f"NIC {two['netdev']} to {sees_two[0][0]} {sees_two[0][1]}, the plan wants it the other way",
                    f"swap the two cables at {host}: the one from {two['peer']} belongs in {_cage(two['netdev'])}, the "
                    f"one from {one['peer']} in {_cage(one['netdev'])}",
                    one["netdev"],
                )
            )
    left = [
        (host, link, seen)
        for host, link, seen in wrong
        if host not in swapped and not (link["peer"] in swapped and any(name == link["peer"] for name, _netdev in seen))
    ]
    return problems, left


def _runs_backwards(plan: Plan, wrong: Sequence[tuple[str, t.Any, list[tuple[str, str]]]]) -> list[str]:
    """The order of hosts in which a ring that is cabled consistently, but the other way round, would be right."""
    hosts = list(plan)
    if len(hosts) != 3 or any(entry["topology"] != "ring" for entry in plan.values()):
        return []
    order = [hosts[0], hosts[2], hosts[1]]
    found = {(host, neighbors.port_of(link["netdev"])): seen for host, link, seen in wrong}
    for index, host in enumerate(order):
        following = order[(index + 1) % 3]
        if not neighbors.is_neighbour(found.get((host, "np0"), ()), following, fabric.spark_netdev(1, 0)):
            return []
        if not neighbors.is_neighbour(found.get((following, "np1"), ()), host, fabric.spark_netdev(0, 0)):
            return []
    return order


# ---------------------------------------------------------------------------------------------------------------------
# Addresses and routes that are there already


def overlap_problems(
    host: str, entry: t.Any, node: Node, probe: Mapping[str, t.Any], subnets: Mapping[IPv4Network, str]
) -> list[Problem]:
    """Interfaces, routes and gateways of this host that the planned subnets would collide with."""
    own = set((probe.get("netplan") or {}).get("own", ())) | {link["netdev"] for link in entry["links"]}
    mend = "choose a fabric_cidr that no network of any host uses, or remove it"
    problems = []
    blamed: set[str] = set()
    for name, interface in _interfaces(node).items():
        if name in own:  # a foreign address on a fabric NIC is a finding of its own
            continue
        for item in interface.get("addresses", ()):
            network = network_of(item["address"])
            subnet = _hit(network, subnets)
            if subnet:
                blamed.add(name)
                problems.append(
                    Problem(
                        "overlap",
                        host,
                        f"NIC {name} has {item['address']}, inside or around the planned {subnet}",
                        mend,
                        name,
                    )
                )
    for route in node.get("routes", ()):
        words = f"route {route['dst']}" + (f" via {route['gateway']}" if route["gateway"] else "")
        words += f" dev {route['dev']}" if route["dev"] else ""
        gateway = network_of(route["gateway"])
        if route["dev"] in own and route["protocol"] == "kernel":
            continue
        if route["dev"] in blamed and route["protocol"] == "kernel":
            continue  # follows from the address already named
        subnet = _hit(gateway, subnets)
        if subnet:
            problems.append(
                Problem("overlap", host, f"the gateway of {words} is in the planned {subnet}", mend, route["dev"])
            )
            continue
        subnet = _hit(None if route["dst"] == "default" else network_of(route["dst"]), subnets)
        if subnet:
            problems.append(Problem("overlap", host, f"{words} overlaps the planned {subnet}", mend, route["dev"]))
    return problems


def network_of(text: str) -> IPv4Network | None:
    """The network that an address with its length, or a network, lies in; None for anything else."""
    try:
        return IPv4Interface(text).network
    except ValueError:
        return None


def _hit(network: IPv4Network | None, subnets: Mapping[IPv4Network, str]) -> IPv4Network | None:
    if network is None or network.prefixlen == 0:
        return None
    return next((subnet for subnet in subnets if subnet.overlaps(network)), None)


def same_subnet_problems(host: str, entry: t.Any, node: Node) -> list[Problem]:
    """Two fabric NICs of a host that have addresses in one subnet right now."""
    planned = {(link["netdev"], link["address"]) for link in entry["links"]}
    names = {*_SPARK_NETDEVS, *(link["netdev"] for link in entry["links"])}
    found: list[tuple[str, str, IPv4Network]] = []
    problems = []
    for name, interface in _interfaces(node).items():
        if name not in names:
            continue
        for item in interface.get("addresses", ()):
            network = network_of(item["address"])
            if network is None or item.get("scope") == "link":
                continue
            for other, address, existing in found:
                pair_is_planned = (name, item["address"]) in planned and (other, address) in planned
                if other != name and existing.overlaps(network) and not pair_is_planned:
                    problems.append(
                        Problem(
                            "same_subnet",
                            host,
                            f"NICs {other} ({address}) and {name} ({item['address']}) are in one subnet: routing "
                            "between them is ambiguous and NCCL hangs",
                            f"remove the address of {name} (sudo ip address del {item['address']} dev {name}) and the "
                            "file that sets it, or set roce_network_replace_foreign: true",
                            name,
                        )
                    )
            found.append((name, item["address"], network))
    return problems


def _adopted_problems(host: str, entry: t.Any, node: Node) -> list[Problem]:
    """On a lan the network is taken as it is: the one NIC must be there, up and with the MTU that was declared."""
    problems = []
    interfaces = _interfaces(node)
    for link in entry["links"]:
        netdev = link["netdev"]
        interface = interfaces.get(netdev)
        if interface is None or not any(item["address"] == link["address"] for item in interface["addresses"]):
            problems.append(
                Problem(
                    "address",
                    host,
                    f"NIC {netdev} does not have {link['address']}, which peers would use",
                    "correct fabric_lan_nic or the host's address",
                    netdev,
                )
            )
            continue
        if not interface["carrier"]:
            problems.append(Problem("carrier", host, f"NIC {netdev} has no carrier", "plug in its cable", netdev))
        if link["mtu"] and interface["mtu"] != link["mtu"]:
            problems.append(
                Problem(
                    "mtu",
                    host,
                    f"NIC {netdev} has an MTU of {interface['mtu']}, fabric_mtu asks for {link['mtu']}",
                    "on a lan nothing is configured: set the MTU on the host, or leave fabric_mtu undefined",
                    netdev,
                )
            )
    return problems


# ---------------------------------------------------------------------------------------------------------------------
# RDMA, netplan


def rdma_problems(host: str, entry: t.Any, node: Node, probe: Mapping[str, t.Any]) -> list[Problem]:
    """RDMA where the plan needs it: a device on every planned NIC, Ethernet, active with a carrier, at full rate."""
    found = probe.get("rdma") or node.get("rdma")
    if found is None:
        return []
    by_netdev = {link["netdev"]: link for link in found["links"] if link["netdev"]}
    if not found["links"]:
        return [
            Problem(
                "rdma",
                host,
                f"it has no RDMA device, which a {entry['topology']} fabric needs",
                "see that its ConnectX-7 is cabled and its driver loaded (sudo modprobe mlx5_ib; dmesg), or set "
                "fabric_topology: lan",
            )
        ]
    present = _interfaces(node)
    problems = []
    for link in entry["links"]:
        netdev = link["netdev"]
        rdma = by_netdev.get(netdev)
        if rdma is None:
            if netdev in present:
                problems.append(
                    Problem(
                        "rdma",
                        host,
                        f"NIC {netdev} has no RDMA device; those of this host are "
                        + ", ".join(f"{name} ({item['device']})" for name, item in sorted(by_netdev.items())),
                        "reload the driver (sudo modprobe -r mlx5_ib && sudo modprobe mlx5_ib) or reboot the host",
                        netdev,
                    )
                )
            continue
        if rdma.get("link_layer") == "InfiniBand":
            problems.append(
                Problem(
                    "rdma",
                    host,
                    f"RDMA device {rdma['device']} of NIC {netdev} is in InfiniBand mode, the plan is RoCE",
                    "set LINK_TYPE to Ethernet (2) with mlxconfig and power the host off and on",
                    netdev,
                )
            )
        carrier = (probe.get("ports") or {}).get(netdev, {}).get("carrier")
        # a port that was only set up for the probe may still be training, and a peer that did so has set its end down
        # again: the carrier that counts is the one that was read with the state
        trained = carrier and rdma.get("state") != "down" and not (probe.get("raised") or ())
        rate = rdma.get("rate")
        if trained and rdma.get("port_state") not in ("", None, "ACTIVE"):
            problems.append(
                Problem(
                    "rdma",
                    host,
                    f"RDMA device {rdma['device']} is {rdma['port_state']} although its NIC {netdev} has a carrier",
                    "reload the driver (sudo modprobe -r mlx5_ib && sudo modprobe mlx5_ib) or reboot the host",
                    netdev,
                )
            )
        if trained and rate and rate < 200 and entry["kind"] == "spark":
            problems.append(
                Problem(
                    "rate",
                    host,
                    f"NIC {netdev} has negotiated {rate} Gb/s of 200",
                    "use a 200 Gb/s cable; on a switch set the port to 200 Gb/s without negotiation",
                    netdev,
                    "warning",
                )
            )
    return problems


def netplan_problems(host: str, probe: Mapping[str, t.Any]) -> list[Problem]:
    """What netplan and NetworkManager have against the plan, in the words of the probe."""
    return [
        Problem(
            "foreign_file" if item["kind"] == "foreign_settings" and item.get("alone") else item["kind"],
            host,
            item["message"],
            item["mend"],
            item.get("netdev", ""),
        )
        for item in (probe.get("netplan") or {}).get("findings", ())
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Hosts compared with each other, and with what is known not to work


def clock_problems(host: str, node: Node) -> list[Problem]:
    """A clock that is wrong now is wrong before any service of ours could set it right."""
    offset = float(node.get("clock_offset") or 0)
    if abs(offset) <= CLOCK_LIMIT:
        return []
    way = "ahead of" if offset > 0 else "behind"
    return [
        Problem(
            "clock",
            host,
            f"its clock is {abs(offset):.0f} s {way} the controller's, by which tokens and TLS certificates are judged",
            "let it synchronise (sudo timedatectl set-ntp true; timedatectl shows when it has), or list clock in "
            "preflight_accept",
        )
    ]


def known_bad_problems(host: str, node: Node, known_bad: Sequence[Mapping[str, str]]) -> list[Problem]:
    problems = []
    for entry in known_bad:
        value: t.Any = node
        for key in entry["fact"].split("."):
            value = value.get(key, "") if isinstance(value, Mapping) else ""
        if value and fnmatchcase(str(value), entry["match"]):
            problems.append(
                Problem("known_bad", host, f"{entry['fact']} {value} is known bad: {entry['reason']}", entry["mend"])
            )
    return problems


def _image(node: Node) -> str:
    """The OS and, on DGX OS, its release; the file also holds a serial number, which differs by design."""
    system = node.get("os") or {}
    versions = re.findall(r'^DGX_(?:OTA|SWBUILD)_VERSION="?([^"\n]+)"?$', system.get("dgx", ""), re.MULTILINE)
    return " ".join(filter(None, [system.get("pretty", ""), f"DGX OS {versions[-1]}" if versions else ""]))


def _firmware(node: Node, probe: Mapping[str, t.Any]) -> str:
    links = (probe.get("rdma") or node.get("rdma") or {}).get("links", ())
    return ", ".join(sorted({link["firmware"] for link in links if link.get("firmware")}))


def parity_problems(plan: Plan, nodes: Mapping[str, Node], probes: Mapping[str, Mapping[str, t.Any]]) -> list[Problem]:
    """Kernel, driver, firmware and OS image must be one across the hosts of one kind: mixed ranks fail in odd ways."""
    problems = []
    kinds: dict[str, list[str]] = {}
    for host, entry in plan.items():
        kinds.setdefault(entry["kind"], []).append(host)
    for kind, hosts in kinds.items():
        for what, value_of in (
            ("kernel", lambda host: nodes[host].get("kernel", "")),
            ("NVIDIA driver", lambda host: nodes[host].get("driver", "")),
            ("OS image", lambda host: _image(nodes[host])),
            ("ConnectX firmware", lambda host: _firmware(nodes[host], probes.get(host) or {})),
        ):
            values: dict[str, list[str]] = {}
            for host in hosts:
                if value_of(host):
                    values.setdefault(str(value_of(host)), []).append(host)
            if len(values) < 2:
                continue
            usual = max(values, key=lambda value: len(values[value]))
            for value, odd in values.items():
                if value != usual:
                    problems.append(
                        Problem(
                            "parity",
                            ", ".join(odd),
                            f"{what} is {value}, but {usual} on {', '.join(values[usual])}: all {kind} hosts of a "
                            "cluster must have the same",
                            "update them to the same version, or list parity in preflight_accept",
                        )
                    )
    if any(entry["addressing"] == "adopted" for entry in plan.values()):
        problems += _lan_mtu_parity(plan, nodes)
    return problems


def _lan_mtu_parity(plan: Plan, nodes: Mapping[str, Node]) -> list[Problem]:
    mtus: dict[int, list[str]] = {}
    for host, entry in plan.items():
        for link in entry["links"]:
            interface = _interfaces(nodes[host]).get(link["netdev"])
            if interface and link["mtu"] is None:
                mtus.setdefault(interface["mtu"], []).append(host)
    if len(mtus) < 2:
        return []
    smallest = min(mtus)
    return [
        Problem(
            "mtu",
            ", ".join(hosts),
            f"its NIC has an MTU of {mtu}, but {smallest} on {', '.join(mtus[smallest])}",
            "give all hosts of the lan one MTU",
            severity="warning",
        )
        for mtu, hosts in mtus.items()
        if mtu != smallest
    ]
