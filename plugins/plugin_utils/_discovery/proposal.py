# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From machines that were looked at to a cluster: topology, order, and the cage of each.  Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.neighbors import port_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import lanes
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import (
    ipv4_interface_of,
    ipv4_network_of,
    is_everywhere,
    overlap,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import BY_MANAGEMENT, OF_LANES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import CHAINS

CAGES = (0, 1)
End = cabling.End
#: ranges for the fabric, tried in this order
RANGES = (*(f"10.{number}.0.0/16" for number in range(100, 116)), "172.30.0.0/16", "192.168.240.0/20")


#: one part of a host name, by RFC 1123
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
#: names that Ansible, or an inventory of ours, gives to something else
TAKEN = ("all", "ungrouped", "localhost", "cluster", "sparks", "thors", "discovered", "met")


def valid_host_name(name: str) -> bool:
    """Whether it is a host name by RFC 1123, whole or with its domain."""
    return len(name) <= 253 and all(_LABEL.fullmatch(label) for label in name.split("."))


@dataclass
class Machine:
    """A machine that let us look at it."""

    address: str
    node: Mapping[str, Any]
    #: what fabric_neighbors saw; empty where there was nothing to see
    seen: Mapping[str, Any] = field(default_factory=dict)
    given: bool = False

    @property
    def stated(self) -> str:
        """The name that it gives itself, as it says it."""
        return str(self.node.get("hostname") or "")

    @property
    def name(self) -> str:
        """The first label of that; the address where it says none, or one that is no name."""
        return self.stated.partition(".")[0] if valid_host_name(self.stated) else self.address

    @property
    def kind(self) -> str:
        told = self.node.get("kind")
        return told if told in ("spark", "thor") else "generic"

    @property
    def floating(self) -> bool:
        """Whether its address goes from head to head: the one that it declares for the front proxies."""
        return bool(self.address) and (self.node.get("declared") or {}).get("virtual") == self.address

    @property
    def boot(self) -> str:
        return str(self.node.get("boot_id") or self.address)

    def ports(self, cage: int) -> dict[str, Mapping[str, Any]]:
        return {name: port for name, port in (self.seen.get("ports") or {}).items() if port.get("cage") == cage}

    def plugged(self, cage: int) -> bool:
        return any(port["plugged"] for port in self.ports(cage).values())

    def switch(self, cage: int) -> str:
        """The switch that LLDP names on a cage."""
        told = self.seen.get("lldp") or {}
        return next((str(told[name]["name"]) for name in self.ports(cage) if told.get(name, {}).get("bridge")), "")


TWO_CAGES = (
    "both cages of each machine are cabled: the second cable adds little speed, for the NIC is the limit, but one may "
    "be lost. For one alone set fabric_cage"
)


@dataclass
class Proposal:
    topology: str = "lan"
    #: in the order of the inventory, the head first
    hosts: list[Machine] = field(default_factory=list)
    #: cage by host name, on direct and switch
    cages: dict[str, int] = field(default_factory=dict)
    #: both cages by host name where both are cabled alike; the first of them is the one in ``cages``
    both: dict[str, list[int]] = field(default_factory=dict)
    #: NIC by host name by which Thors reach each other, where it is another than the one of ssh
    lan_nics: dict[str, str] = field(default_factory=dict)
    #: lanes of the Thors' QSFP cages by which all of them reach each other, on direct and switch
    lanes: list[int] = field(default_factory=list)
    cidr: str = ""
    #: machine and why it is not part of the cluster
    left_out: list[tuple[Machine, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def _on_fabric(machine: Machine) -> bool:
    """Whether it answered on a NIC of its fabric, which site.yml gives other addresses."""
    return machine.node["management"]["netdev"] in SPARK_NETDEVS


def once(machines: Iterable[Machine]) -> tuple[list[Machine], list[str]]:
    """Each machine once, by the address of its default route where it answered on several; and a note on those.

    A NIC of the fabric is taken only where it answered on nothing else.
    """
    by_boot: dict[str, list[Machine]] = {}
    for machine in machines:
        by_boot.setdefault(machine.boot, []).append(machine)
    known, notes = [], []
    for same in by_boot.values():
        routes = same[0].node.get("routes") or ()
        default = next(
            (route["dev"] for route in routes if route["dst"] == "default" and route["dev"] not in SPARK_NETDEVS), ""
        )
        # its answer names the NIC that each ssh connection came in by
        # the address of all front proxies is another machine's tomorrow
        usable = [reply for reply in same if not reply.floating] or same
        usable = [reply for reply in usable if not _on_fabric(reply)] or usable
        best = next((reply for reply in usable if reply.node["management"]["netdev"] == default), usable[0])
        best.given = any(reply.given for reply in same)
        known.append(best)
        if len(same) > 1:
            others = ", ".join(reply.address for reply in same if reply is not best)
            notes.append(f"{best.name} answers on {best.address} and on {others}: the first one is used")
    return sorted(known, key=lambda machine: (machine.kind != "spark", machine.name, machine.address)), notes


class Cables:
    """Who is at the other end of each cage."""

    def __init__(self, sparks: Sequence[Machine]) -> None:
        self.sparks = {machine.name: machine for machine in sparks}
        names = {machine.boot: machine.name for machine in sparks}
        self.ends: dict[End, set[End]] = {(name, cage): set() for name in self.sparks for cage in CAGES}
        for machine in sparks:
            for netdev, seen in (machine.seen.get("neighbours") or {}).items():
                cage = next((cage for cage in CAGES if netdev in machine.ports(cage)), None)
                for item in seen:
                    other = names.get(item["host"])
                    if cage is not None and other not in (None, machine.name):
                        self.ends[machine.name, cage].add((str(other), 1 if port_of(item["netdev"]) == "np1" else 0))

    def words(self, name: str, cage: int) -> str:
        """A cage for the table."""
        machine = self.sparks[name]
        if not machine.ports(cage):
            return "no port"
        others = sorted(self.ends[name, cage])
        switch = machine.switch(cage)
        if switch:
            return f"switch {switch}"
        if len(others) > 1:
            return f"switch, {len(others)} others"
        if others:
            return "to " + ", ".join(f"{other} cage {number}" for other, number in others)
        return "cable, nobody answers" if machine.plugged(cage) else "-"

    def on_a_switch(self) -> bool:
        crowded = any(len({other for other, _cage in others}) > 1 for others in self.ends.values())
        return crowded or any(machine.switch(cage) for machine in self.sparks.values() for cage in CAGES)

    def sees(self) -> dict[cabling.Port, set[str]]:
        """By machine and cage, the machines whose frames came in there."""
        return {(name, f"cage {cage}"): {other for other, _cage in ends} for (name, cage), ends in self.ends.items()}

    def networks(self) -> list[list[End]]:
        """Cages that hear each other, directly or by others: what hangs on one switch."""
        sees = {
            (f"{name} {cage}", ""): {f"{other} {far}" for other, far in ends}
            for (name, cage), ends in self.ends.items()
        }
        parts = cabling.islands([name for name, _port in sees], sees)
        return [[(node[:-2], int(node[-1])) for node in part] for part in parts if len(part) > 1]

    def row(self) -> tuple[list[str], bool]:
        """The machines in a line or a ring, and whether it closes; empty where they are cabled otherwise."""
        return cabling.walk(list(self.sparks), self.sees())

    def free_ends(self, order: Sequence[str]) -> bool:
        """Whether the machines at both ends of a line have no cable but the one in it."""
        ends = ((name, cage) for name in (order[0], order[-1]) for cage in CAGES)
        return not any(self.sparks[name].plugged(cage) and not self.ends[name, cage] for name, cage in ends)

    def drawing(self) -> list[str]:
        """What is cabled, row by row."""
        return cabling.sketch(list(self.sparks), self.ends)

    def best_cage(self, name: str) -> int:
        """The cage that sees most of the others, else the one with a cable."""
        machine = self.sparks[name]
        return max(
            CAGES, key=lambda cage: (bool(machine.switch(cage)), len(self.ends[name, cage]), machine.plugged(cage))
        )


def _floating_findings(machines: Sequence[Machine]) -> list[Finding]:
    return [
        Finding(
            "address",
            f"it answered only on {one.address}, the address of all front proxies, which another machine has tomorrow",
            "give discover_addresses its own address",
            f"{one.name} ({one.address})",
        )
        for one in machines
        if one.floating
    ]


def _fabric_findings(machines: Sequence[Machine]) -> list[Finding]:
    """Machines that answered on their fabric alone: its addresses change when the fabric is set up."""
    findings = []
    for machine in machines:
        if machine.kind != "spark" or not _on_fabric(machine):
            continue
        others = [
            item["address"].partition("/")[0]
            for link in machine.node.get("interfaces") or ()
            if link["name"] not in SPARK_NETDEVS and link["name"] != "lo" and not link.get("virtual")
            for item in link["addresses"]
            if item.get("scope", "global") == "global"
        ]
        fix = (
            f"give discover_addresses {' or '.join(others)}" if others else "connect its RJ45 port or Wi-Fi to the LAN"
        )
        netdev = machine.node["management"]["netdev"]
        what = f"it answered only on {machine.address} of {netdev}, a NIC of its fabric, whose addresses change with it"
        findings.append(Finding("address", what, fix, f"{machine.name} ({machine.address})"))
    return findings


def propose(machines: Sequence[Machine], wanted: str = "") -> Proposal:
    """A cluster of these machines; what stands in its way is in ``findings``."""
    proposal = Proposal(findings=_kind_findings(machines) + _name_findings(machines) + _floating_findings(machines))
    proposal.findings += _fabric_findings(machines)
    proposal.left_out = [(one, f"a {one.kind} machine") for one in machines if one.kind == "generic"]
    sparks = [machine for machine in machines if machine.kind == "spark"]
    thors = [machine for machine in machines if machine.kind == "thor"]
    if not sparks and not thors and not proposal.findings:
        what = "none of the machines that answered is a DGX Spark or a Jetson Thor"
        proposal.findings.append(Finding("kind", what, "give their addresses: -e discover_addresses=…"))
    if proposal.findings:
        return proposal
    cables = Cables(sparks)
    alone = bool(thors) and not sparks
    by_lane = lanes.ends(thors)
    proposal.topology = wanted or (_thors_topology(thors, by_lane) if alone else _topology(sparks, cables))
    if alone and proposal.topology in OF_LANES:
        proposal.hosts = thors
        _by_lanes(proposal, by_lane)
    elif proposal.topology == "lan":
        proposal.hosts = [*sparks, *thors]
        _lanes(proposal, by_lane)
    else:
        proposal.hosts = sparks
        reason = "a Thor has no RDMA NIC; -e discover_topology=lan takes all machines into one cluster, over TCP"
        proposal.left_out += [(machine, reason) for machine in thors]
        _cabled(proposal, cables)
    _management(proposal)
    proposal.cidr = "" if proposal.topology == "lan" else _free_range(machines)
    return proposal


def _kind_findings(machines: Iterable[Machine]) -> list[Finding]:
    return [
        Finding(
            "kind",
            f"discover_addresses names it, but it is neither a DGX Spark nor a Jetson Thor (product "
            f"{one.node.get('product') or 'unknown'}, GPUs {', '.join(one.node.get('gpu_names') or ()) or 'none'})",
            "leave it out of discover_addresses; a machine of another kind is put into the inventory by hand",
            f"{one.name} ({one.address})",
        )
        for one in machines
        if one.given and one.kind == "generic"
    ]


def _name_findings(machines: Iterable[Machine]) -> list[Finding]:
    by_name: dict[str, list[Machine]] = {}
    findings = []
    for machine in machines:
        if machine.kind == "generic":
            continue
        by_name.setdefault(machine.name.lower(), []).append(machine)
        what = ""
        if machine.stated and not valid_host_name(machine.stated):
            what = "is no host name: letters, digits and hyphens, 63 of them at most"
        elif machine.name.lower() in TAKEN:
            what = "is what an inventory calls something else"
        if what:
            fix = "rename it (sudo hostnamectl set-hostname NEW-NAME, there) and look again"
            shown = printable(machine.stated)[:80]
            findings.append(Finding("name", what, fix, machine.address, where="hostname", value=shown))
    for same in by_name.values():
        if len(same) > 1:
            addresses = ", ".join(machine.address for machine in same)
            what = f"{'two' if len(same) == 2 else len(same)} machines have the name {same[0].name}: {addresses}"
            fix = "rename one of them (sudo hostnamectl set-hostname NEW-NAME, there) and look again"
            findings.append(Finding("name", what, fix))
    return findings


def _topology(sparks: Sequence[Machine], cables: Cables) -> str:
    if len(sparks) < 2 or not any(machine.plugged(cage) for machine in sparks for cage in CAGES):
        return "lan"
    if cables.on_a_switch():
        return "switch"
    if len(sparks) == 2:
        return "direct"
    order, closed = cables.row()
    if order and not closed and cables.free_ends(order):
        return "line"
    return "ring" if order or len(sparks) == 3 else "switch"


def _thors_topology(thors: Sequence[Machine], by_lane: lanes.Ends) -> str:
    """The lanes of their QSFP cages where they hear each other there; one that has addresses already stays a LAN.

    A LAN has one NIC a host, so several lanes that are heard are all used.
    """
    nics = {one.name: lanes.cabled(one) for one in thors}
    one_lane = len(lanes.joined(thors, by_lane)) < 2
    return "lan" if one_lane and lanes.network_of_all(nics) else lanes.topology(thors, by_lane)


def _by_lanes(proposal: Proposal, by_lane: lanes.Ends) -> None:
    """Thors that are cabled to each other or to a switch by the lanes of their QSFP cages."""
    count = len(proposal.hosts)
    if count < 2 or (proposal.topology == "direct" and count != 2):
        what = f"discover_topology is {proposal.topology}, and {count} Jetson Thor answered"
        proposal.findings.append(Finding("count", what, "leave discover_topology out, or give the others' addresses"))
        return
    proposal.lanes = lanes.joined(proposal.hosts, by_lane)
    if not proposal.lanes:
        proposal.findings += lanes.problems(proposal.hosts, by_lane)
        return
    proposal.notes.append("the Thors reach each other by the lanes of their QSFP cages, over TCP")
    if proposal.topology == "direct":
        proposal.notes.append("a switch between the two looks the same from here: then set fabric_topology: switch")


def _cabled(proposal: Proposal, cables: Cables) -> None:
    """Check the cables of a topology with a fabric, and choose cages and order."""
    count, two = len(proposal.hosts), proposal.topology == "direct"
    if count < (3 if proposal.topology in CHAINS else 2) or (two and count != 2):
        what = f"discover_topology is {proposal.topology}, and {count} DGX Spark answered"
        proposal.findings.append(Finding("count", what, "leave discover_topology out, or give the others' addresses"))
        return
    bare = [machine for machine in proposal.hosts if not any(machine.plugged(cage) for cage in CAGES)]
    for machine in bare:
        proposal.findings.append(
            Finding(
                "cage",
                "no QSFP cage of it has a cable",
                "plug one in at both ends, leave the machine out of discover_addresses, or take the LAN as fabric "
                "(-e discover_topology=lan)",
                f"{machine.name} ({machine.address})",
            )
        )
    if bare:
        return
    {"direct": _direct, "ring": _chain, "line": _chain, "switch": _switch}[proposal.topology](proposal, cables)


def _alone(name: str, cage: int, hint: str) -> Finding:
    return Finding(
        "cable", f"cage {cage} has a cable, but none of the other machines answers at its other end", hint, name
    )


def _direct(proposal: Proposal, cables: Cables) -> None:
    first, second = (machine.name for machine in proposal.hosts)
    joined = [(cage, other) for cage in CAGES for name, other in sorted(cables.ends[first, cage]) if name == second]
    if not joined:
        hint = "plug the cable into both machines; seconds after it the ports' lights are on"
        proposal.findings.append(_alone(first, cables.best_cage(first), hint))
        return
    proposal.cages = dict(zip((first, second), joined[0], strict=True))
    if len(joined) > 1:
        proposal.both = {first: [cage for cage, _other in joined], second: [other for _cage, other in joined]}
        proposal.notes.append(TWO_CAGES)
    proposal.notes.append("a switch between the two looks the same from here: then set fabric_topology: switch")


def _chain(proposal: Proposal, cables: Cables) -> None:
    """A ring or a line: the order of its machines, or the cables to move."""
    topology = proposal.topology
    names = [machine.name for machine in proposal.hosts]
    order, closed = cables.row()
    if order and closed == (topology == "ring"):
        order, wrong = cabling.misplaced(order, closed, cables.ends)
        proposal.hosts = [cables.sparks[name] for name in order]
        for name in wrong:
            both = all(cables.ends[name, cage] for cage in CAGES)
            what = f"a {topology} goes from cage 0 of each machine to cage 1 of the next, and its "
            what += "two cables are the wrong way" if both else "cable is in the wrong cage"
            hint = f"swap the two cables at {name}" if both else f"move the cable at {name} to its other cage"
            proposal.findings.append(Finding("cable", what, hint, name))
        if topology == "line":
            proposal.notes.append(
                f"NCCL needs a closed ring for RDMA: a cable from {order[-1]} cage 0 to {order[0]} cage 1 makes it "
                "one; as a line the machines serve one model over TCP, and neighbours as pairs (serving_groups) by RDMA"
            )
        return
    if topology == "line" and closed:
        hint = "leave discover_topology out, or take one cable away"
        proposal.findings.append(Finding("cable", f"the cables close a ring: {cabling.drawn(order, closed)}", hint))
        return
    for name, cage in itertools.product(names, CAGES):
        if topology == "ring" and not cables.ends[name, cage]:
            plugged = cables.sparks[name].plugged(cage)
            hint = (
                "join cage 0 of each machine to cage 1 of the next one, and of the last to the first, or use a switch"
            )
            what = f"cage {cage} has no cable, which a ring needs"
            proposal.findings.append(_alone(name, cage, hint) if plugged else Finding("cable", what, hint, name))
    if not proposal.findings:
        told = "; ".join(cables.drawing())
        hint = "join cage 0 of each machine to cage 1 of the next one"
        proposal.findings.append(Finding("cable", f"the cables make no {topology}: {told}", hint))


def _no_switch(names: Sequence[str], cables: Cables) -> list[Finding]:
    """What frames tell of machines that should be on one switch and are not."""
    sees = cables.sees()
    parts = cabling.islands(names, sees)
    # of machines that nobody heard each one is told by itself
    if any(len(part) == 1 for part in parts):
        return []
    if cabling.host_to_host(names, sees) and not any(
        cables.sparks[name].switch(cage) for name in names for cage in CAGES
    ):
        order, closed = cabling.walk(names, sees)
        if order:
            shape = f"they are cabled as a {'ring' if closed else 'line'}: {cabling.drawn(order, closed)}"
        else:
            shape = f"cables go from machine to machine: {'; '.join(', '.join(part) for part in parts)}"
        hint = (
            "leave discover_topology out where it is a ring or a line; else join all machines by a switch, or look "
            "again for those of one cluster alone (-e discover_addresses=…)"
        )
        return [Finding("shape", f"no switch joins the {len(names)} machines: {shape}", hint)]
    if len(parts) > 1:
        told = "; ".join(", ".join(part) for part in parts)
        hint = (
            "see that one VLAN joins their ports, and the link between two switches; then look again. Parts that are "
            "meant to be clusters of their own are looked for one by one (-e discover_addresses=…)"
        )
        return [Finding("shape", f"these machines hear each other and not the others: {told}", hint)]
    return []


def _switch(proposal: Proposal, cables: Cables) -> None:
    names = [machine.name for machine in proposal.hosts]
    if apart := _no_switch(names, cables):
        proposal.findings += apart
        return
    rails = [dict(reversed(one)) for one in cables.networks() if {name for name, _cage in one} == set(names)]
    heard = [len({other for other, _far in cables.ends[name, cage]}) for name in names for cage in CAGES]
    if len(rails) == 1 and set(heard) == {len(names) - 1}:
        # one network for both cages of all
        rails = [dict.fromkeys(names, cage) for cage in CAGES]
    if len(rails) > 1:
        proposal.both = {name: [rail[name] for rail in rails] for name in names}
        proposal.notes.append(TWO_CAGES)
    for machine in proposal.hosts:
        cage = rails[0][machine.name] if rails else cables.best_cage(machine.name)
        proposal.cages[machine.name] = cage
        if not cables.ends[machine.name, cage]:
            hint = (
                "four or more Sparks need a 200 GbE switch, with all of them in one VLAN that lets unknown Ethernet "
                "frames pass"
            )
            proposal.findings.append(_alone(machine.name, cage, hint))
    if not rails and not proposal.findings:
        told = "; ".join(", ".join(f"{name} cage {cage}" for name, cage in one) for one in cables.networks())
        what = f"no network joins the {len(names)} machines by one cage of each: {told}"
        hint = "put one cable of each machine into the same switch, or join the switches"
        proposal.findings.append(Finding("shape", what, hint))


def _lanes(proposal: Proposal, by_lane: lanes.Ends) -> None:
    """The lanes of the QSFP cages of Thors, faster than their RJ45 port, where all machines are Thors with a cable."""
    by_name = {one.name: lanes.cabled(one) for one in proposal.hosts if one.kind == "thor"}
    if len(by_name) < max(2, len(proposal.hosts)) or not all(by_name.values()):
        return
    common = lanes.network_of_all(by_name)
    if common:
        proposal.lan_nics = {
            name: next(nic for nic, network in nics if network == common) for name, nics in by_name.items()
        }
        proposal.notes.append(f"the Thors reach each other by a lane of their QSFP cages, in {common}, over TCP")
        return
    told = "; ".join(
        f"{name} {', '.join(dict.fromkeys(nic for nic, _network in nics))}" for name, nics in by_name.items()
    )
    why = "no frame came over these lanes, so the RJ45 ports are proposed: both ends of a lane need one fixed rate"
    if any(by_lane.values()):
        why = "discover_topology=lan takes the RJ45 ports: without it these lanes become the fabric"
    proposal.notes.append(f"the QSFP cages of the Thors are cabled ({told}), and {why}")


def _management(proposal: Proposal) -> None:
    """On a ring and a LAN the peers reach each other by their management addresses, which need one network."""
    networks: dict[str, list[str]] = {}
    for machine in proposal.hosts:
        network = ipv4_network_of(str(machine.node["management"]["cidr"]))
        networks.setdefault(str(network), []).append(f"{machine.name} ({machine.address})")
    if len(networks) < 2:
        return
    told = "; ".join(f"{network}: {', '.join(names)}" for network, names in networks.items())
    if (proposal.topology in BY_MANAGEMENT or proposal.both) and not proposal.lan_nics:
        what = f"the machines are in {len(networks)} address ranges ({told}), and a {proposal.topology} needs one"
        hint = "give discover_addresses the machines' addresses of one range, or connect all machines to one LAN"
        proposal.findings.append(Finding("lan", what, hint))
    else:
        proposal.notes.append(f"the machines' management addresses are in {len(networks)} ranges: {told}")


def _free_range(machines: Iterable[Machine]) -> str:
    """The first range that none of the machines uses or has a route to."""
    used = []
    for machine in machines:
        texts = [item["address"] for link in machine.node.get("interfaces") or () for item in link["addresses"]]
        texts += [route["dst"] for route in machine.node.get("routes") or ()]
        used += [network for text in texts if (network := ipv4_network_of(text)) is not None]
    used = [network for network in used if not is_everywhere(network)]
    free = (text for text in RANGES if not any(overlap(ipv4_interface_of(text), network) for network in used))
    return next(free, "")
