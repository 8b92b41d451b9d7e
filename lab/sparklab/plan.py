# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a lab consists of, worked out without touching anything: hosts, addresses, NICs, cables.

Every NIC of every host has a port in one switch name space. A segment is a bridge there that joins ports: a cable joins
exactly two and couples their carriers (an end that is down darkens the other), a switch joins any number. Ports in no
segment are uncabled: the NIC exists and has no carrier.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .system import LabError

KINDS = ("spark", "thor", "generic")
TOPOLOGIES = ("direct", "ring", "line", "switch", "lan")
MANAGEMENT = {"spark": "enP7s7", "thor": "enP2p1s0", "generic": "eno1"}
# [cage][half], as on the real machine: two PCIe halves behind each cage
CAGES = (("enp1s0f0np0", "enP2p1s0f0np0"), ("enp1s0f1np1", "enP2p1s0f1np1"))
# of a Thor's QSFP cage
LANES = ("mgbe0_0", "mgbe1_0", "mgbe2_0", "mgbe3_0")
DATA_NICS = {"spark": tuple(nic for cage in CAGES for nic in cage), "thor": LANES, "generic": ()}

HOST_NAME = re.compile(r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")
LAB_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,11}$")
SIZE = re.compile(r"^([1-9][0-9]*)([MG])$")


@dataclass(frozen=True)
class Wish:
    """One host as the inventory asks for it."""

    name: str
    kind: str = "spark"
    address: str | None = None


@dataclass(frozen=True)
class Host:
    name: str
    index: int
    kind: str
    address: str

    @property
    def management(self) -> str:
        return MANAGEMENT[self.kind]

    @property
    def nics(self) -> tuple[str, ...]:
        """All NICs, the management NIC first; the order numbers the ports."""
        return (self.management, *DATA_NICS[self.kind])

    def port(self, nic: str) -> str:
        """The NIC's port in the switch name space (at most 15 characters)."""
        if nic not in self.nics:
            raise LabError(f"{self.name} has no NIC {nic!r}: it has {', '.join(self.nics)}")
        return f"h{self.index}p{self.nics.index(nic)}"


@dataclass(frozen=True)
class Segment:
    name: str
    kind: str  # cable | switch
    ends: tuple[tuple[str, str], ...]  # (host, NIC)


@dataclass(frozen=True)
class Plan:
    name: str
    tag: str
    subnet: str
    suite: str
    disk: str
    layers: tuple[str, ...]
    hosts: tuple[Host, ...]
    segments: tuple[Segment, ...] = field(default=())
    #: the machine's GPU that each host owns, in the order of the hosts; empty: stand-ins
    gpus: tuple[int, ...] = ()

    @property
    def controller(self) -> str:
        return str(ipaddress.ip_network(self.subnet)[1])

    @property
    def prefix(self) -> int:
        return ipaddress.ip_network(self.subnet).prefixlen

    def host(self, name: str) -> Host:
        for host in self.hosts:
            if host.name == name:
                return host
        raise LabError(f"no host {name!r} in lab {self.name}: it has {', '.join(host.name for host in self.hosts)}")

    def gpu(self, host: Host) -> int | None:
        return self.gpus[host.index] if self.gpus else None

    def segment(self, host: str, nic: str) -> Segment | None:
        for segment in self.segments:
            if (host, nic) in segment.ends:
                return segment
        return None

    def cable_peer(self, host: str, nic: str) -> tuple[str, str] | None:
        """The other end, if this NIC hangs on a cable."""
        segment = self.segment(host, nic)
        if segment is None or segment.kind != "cable":
            return None
        first, second = segment.ends
        return second if first == (host, nic) else first

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Plan:
        return cls(
            name=data["name"],
            tag=data["tag"],
            subnet=data["subnet"],
            suite=data["suite"],
            disk=data["disk"],
            layers=tuple(data["layers"]),
            hosts=tuple(Host(**host) for host in data["hosts"]),
            segments=tuple(
                Segment(entry["name"], entry["kind"], tuple((host, nic) for host, nic in entry["ends"]))
                for entry in data["segments"]
            ),
            gpus=tuple(data.get("gpus", ())),
        )


def lab_tag(home: str, name: str) -> str:
    """Four characters that keep two labs apart, also two of the same name in two checkouts."""
    return hashlib.sha256(f"{home}\0{name}".encode()).hexdigest()[:4]


def check_lab_name(name: str) -> str:
    if not LAB_NAME.match(name):
        raise LabError(f"lab name {name!r}: at most 12 of a-z 0-9 - _, the first a letter or digit")
    return name


def short_name(text: str) -> str:
    """A lab name from a folder name."""
    return check_lab_name(re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:12] or "lab")


def disk_bytes(size: str) -> int:
    match = SIZE.match(size)
    if not match:
        raise LabError(f"disk size {size!r}: a number with M or G, such as 12G")
    value = int(match[1]) << {"M": 20, "G": 30}[match[2]]
    if value < 256 * 1024**2:
        raise LabError(f"disk size {size!r}: at least 256M")
    return value


def parse_subnet(subnet: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.ip_network(subnet)
    except ValueError as exc:
        raise LabError(f"subnet {subnet!r}: {exc}") from exc
    if not isinstance(network, ipaddress.IPv4Network) or not 8 <= network.prefixlen <= 28:
        raise LabError(f"subnet {subnet!r}: an IPv4 network of /28 or larger is needed")
    return network


def allot(wishes: Sequence[Wish], subnet: str) -> tuple[Host, ...]:
    """Addresses: an ansible_host inside the subnet is kept, the others get .11, .12 … in the order of the inventory."""
    network = parse_subnet(subnet)
    if not wishes:
        raise LabError("the inventory has no host in the group cluster")
    names = [wish.name for wish in wishes]
    taken: dict[ipaddress.IPv4Address, str] = {network[1]: "the controller"}
    kept: dict[str, ipaddress.IPv4Address] = {}
    for wish in wishes:
        if not HOST_NAME.match(wish.name):
            raise LabError(f"host {wish.name!r}: a lab host's name is made of a-z, 0-9 and - (at most 40)")
        if names.count(wish.name) > 1:
            raise LabError(f"host {wish.name!r} is there twice")
        if wish.kind not in KINDS:
            raise LabError(f"host {wish.name}: lab_kind {wish.kind!r}, but one of {', '.join(KINDS)} is needed")
        try:
            wanted = ipaddress.IPv4Address(wish.address or "")
        except ValueError:
            continue
        if wanted not in network:
            continue
        if wanted in taken or wanted in (network.network_address, network.broadcast_address):
            raise LabError(f"host {wish.name}: ansible_host {wanted} is taken by {taken.get(wanted, 'the network')}")
        taken[wanted] = wish.name
        kept[wish.name] = wanted
    hosts = []
    offset = 11 if network.num_addresses > 32 else 2
    for index, wish in enumerate(wishes):
        address: ipaddress.IPv4Address | None = kept.get(wish.name)
        while address is None:
            if offset >= network.num_addresses - 1:
                raise LabError(f"subnet {subnet} is too small for {len(wishes)} hosts")
            candidate = network[offset]
            offset += 1
            if candidate not in taken:
                taken[candidate] = wish.name
                address = candidate
        hosts.append(Host(wish.name, index, wish.kind, str(address)))
    return tuple(hosts)


def wire(hosts: Sequence[Host], topology: str, cage: int = 1, cages: Sequence[int] = ()) -> tuple[Segment, ...]:
    """The cables and switches of a topology; ``cages``: both, where two of each host are cabled."""
    if topology not in TOPOLOGIES:
        raise LabError(f"fabric_topology {topology!r}: one of {', '.join(TOPOLOGIES)}")
    if cage not in (0, 1):
        raise LabError(f"fabric_cage {cage!r}: 0 or 1")
    if topology == "lan":
        return ()
    if topology in ("direct", "switch") and all(host.kind == "thor" for host in hosts):
        if topology == "direct" and len(hosts) != 2:
            raise LabError(f"fabric_topology direct joins 2 hosts, the inventory has {len(hosts)}")
        kind, letter = ("cable", "c") if topology == "direct" else ("switch", "sw")
        return tuple(
            Segment(f"{letter}{lane}", kind, tuple((host.name, nic) for host in hosts))
            for lane, nic in enumerate(LANES)
        )
    strangers = [host.name for host in hosts if host.kind != "spark"]
    if strangers:
        raise LabError(f"fabric_topology {topology}: {', '.join(strangers)} has no ConnectX; use lan")
    if topology == "switch":
        return tuple(
            Segment(f"sw{half + 2 * rail}", "switch", tuple((host.name, CAGES[rail_cage][half]) for host in hosts))
            for rail, rail_cage in enumerate(cages or [cage])
            for half in (0, 1)
        )
    count = len(hosts)
    if topology == "direct":
        if count != 2:
            raise LabError(f"fabric_topology direct joins 2 hosts, the inventory has {count}")
        pairs = [(hosts[0], rail_cage, hosts[1], rail_cage) for rail_cage in cages or [cage]]
    else:
        if count < 3:
            raise LabError(f"fabric_topology {topology} needs 3 hosts, the inventory has {count}")
        # each host's cage 0 to the next one's cage 1, except the last cable, which closes the ring the other way
        pairs = [(hosts[0], 0, hosts[1], 1)]
        pairs += [(hosts[place], 0, hosts[place + 1], 1) for place in range(1, count - 1)]
        pairs += [(hosts[-1], 0, hosts[0], 1)] if topology == "ring" else []
    return tuple(
        Segment(f"c{number}h{half}", "cable", ((a.name, CAGES[from_cage][half]), (b.name, CAGES[to_cage][half])))
        for number, (a, from_cage, b, to_cage) in enumerate(pairs)
        for half in (0, 1)
    )


def rewire(hosts: Sequence[Host], segments: Sequence[Segment], changes: Mapping[str, Any]) -> tuple[Segment, ...]:
    """Wrong wiring on purpose, for tests.

    cables / switches: lists of lists of "host:nic"; given, they replace what the topology says.
    swap: pairs of "host:nic" that change places; unplug: "host:nic" that hang on nothing;
    cage: host → cage into which that host's cable is plugged instead.
    """
    unknown = set(changes) - {"cables", "switches", "swap", "unplug", "cage"}
    if unknown:
        raise LabError(f"wiring file: unknown key {sorted(unknown)[0]!r}")
    by_name = {host.name: host for host in hosts}

    def end(text: Any) -> tuple[str, str]:
        name, _unused, nic = str(text).partition(":")
        if name not in by_name or nic not in DATA_NICS[by_name[name].kind]:
            raise LabError(f"wiring file: {text!r} is not a data NIC of a host, written host:nic")
        return name, nic

    result = list(segments)
    if "cables" in changes or "switches" in changes:
        result = []
        for kind, letter in (("cables", "c"), ("switches", "sw")):
            for number, ends in enumerate(changes.get(kind) or []):
                if kind == "cables" and len(ends) != 2:
                    raise LabError(f"wiring file: a cable has two ends, not {len(ends)}")
                name = f"{letter}{number}"
                result.append(
                    Segment(name, "cable" if kind == "cables" else "switch", tuple(end(item) for item in ends))
                )
    moves: dict[tuple[str, str], tuple[str, str] | None] = {}
    for pair in changes.get("swap") or []:
        first, second = (end(item) for item in pair)
        moves[first], moves[second] = second, first
    for host, cage in (changes.get("cage") or {}).items():
        if host not in by_name or cage not in (0, 1):
            raise LabError(f"wiring file: cage: {host}: {cage}, but a host and 0 or 1 are needed")
        for half in (0, 1):
            moves[(host, CAGES[1 - cage][half])] = (host, CAGES[cage][half])
    for item in changes.get("unplug") or []:
        moves[end(item)] = None
    moved = []
    for segment in result:
        ends = tuple(there for here in segment.ends if (there := moves.get(here, here)) is not None)
        if segment.kind == "switch" or len(ends) == 2:
            moved.append(Segment(segment.name, segment.kind, ends))
    seen: set[tuple[str, str]] = set()
    for segment in moved:
        for one in segment.ends:
            if one in seen:
                raise LabError(f"wiring file: {one[0]}:{one[1]} would hang on two cables")
            seen.add(one)
    return tuple(moved)


def mac(tag: str, index: int, number: int) -> str:
    """A locally administered address, unique in the machine."""
    return f"02:{tag[:2]}:{tag[2:]}:{index // 256:02x}:{index % 256:02x}:{number:02x}"
