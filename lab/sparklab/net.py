# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's network: one switch name space, a port in it for every NIC, and the faults that are laid on ports.

All of it lies outside the hosts, so a host sees a fault as it would see a bad cable or switch: no carrier, or silence.
Names: the name spaces carry the lab's tag; names inside the switch name space need not be unique in the machine.
"""

from __future__ import annotations

import copy
import ctypes
import fcntl
import json
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .plan import Host, Plan, mac
from .system import LabError, locked, ok, run, write

IFF_UP = 1
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
CLONE_NEWNET = 0x40000000
# What switch ports carry at most; hosts start with 1500
PORT_MTU = 9216
NETLINK_GROUPS = 0x1 | 0x10 | 0x100  # link, IPv4 addresses, IPv6 addresses

Result = TypeVar("Result")


def inside(namespace: str, work: Callable[[], Result]) -> Result:
    """Call a function with this thread in a network name space: sockets it opens stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as here, open(f"/run/netns/{namespace}") as there:
        if libc.setns(there.fileno(), CLONE_NEWNET):
            raise LabError(f"cannot enter the network name space {namespace}: {os.strerror(ctypes.get_errno())}")
        try:
            return work()
        finally:
            libc.setns(here.fileno(), CLONE_NEWNET)


def _control_socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def _watch_socket() -> socket.socket:
    watch = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0)
    watch.bind((0, NETLINK_GROUPS))
    return watch


def flags(control: socket.socket, nic: str) -> int | None:
    """A NIC's flags, None if there is no such NIC."""
    request = struct.pack("16sh14x", nic.encode(), 0)
    try:
        answer = fcntl.ioctl(control, SIOCGIFFLAGS, request)
    except OSError:
        return None
    return int(struct.unpack("16sh14x", answer)[1]) & 0xFFFF


def set_up(control: socket.socket, nic: str, up: bool) -> None:
    """Administrative state of a NIC; a NIC that is not there is nobody's business."""
    now = flags(control, nic)
    if now is None or bool(now & IFF_UP) == up:
        return
    wanted = (now | IFF_UP) if up else (now & ~IFF_UP)
    try:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", nic.encode(), wanted))
    except OSError:
        if flags(control, nic) is not None:
            raise


class Faults:
    """What is broken on purpose, kept in a file so that a power cycle does not repair it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def none() -> dict[str, Any]:
        return {"cut": [], "silent": [], "loss": {}, "oneway": [], "rate": {}, "blackhole": []}

    def read(self) -> dict[str, Any]:
        try:
            return {**self.none(), **json.loads(self.path.read_text())}
        except FileNotFoundError:
            return self.none()

    def save(self, state: Mapping[str, Any]) -> None:
        write(self.path, json.dumps(state, indent=1, sort_keys=True) + "\n")


class Network:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.switch = f"sl{plan.tag}_switch"
        self.uplink = f"sl{plan.tag}ctl"
        self.faults = Faults(folder / "faults.json")
        self.lock = folder / "network.lock"

    def namespace(self, host: Host) -> str:
        return f"sl{self.plan.tag}-{host.name}"

    @staticmethod
    def exists(namespace: str) -> bool:
        return Path("/run/netns", namespace).exists()

    # --- making and removing -----------------------------------------------------------------------------------------

    def switch_up(self) -> None:
        """The switch name space with its bridges, and the controller's own port. Idempotent."""
        with locked(self.lock):
            if self.exists(self.switch) and not ok(["ip", "-n", self.switch, "link", "show", "ready"]):
                run(["ip", "netns", "del", self.switch])  # a run died while it made it
            if not self.exists(self.switch):
                run(["ip", "netns", "add", self.switch])
                commands = ["link set dev lo up", "link add name mgmt type bridge", "link set dev mgmt up"]
                for segment in self.plan.segments:
                    commands.append(f"link add name {segment.name} mtu {PORT_MTU} type bridge")
                    if segment.kind == "cable":
                        # a cable learns nothing and passes what a bridge would keep (LLDP and the like)
                        commands.append(f"link set dev {segment.name} type bridge ageing_time 0 group_fwd_mask 0xfff8")
                    commands.append(f"link set dev {segment.name} up")
                self._batch(self.switch, commands)
                filters = self.ruleset(self.faults.read())
                if filters:
                    self._nft(filters)
                self._batch(self.switch, ["link add name ready type ifb"])
            if not ok(["ip", "link", "show", self.uplink]):
                run(["ip", "-n", self.switch, "link", "del", "ctl"], check=False)
                peer = ["peer", "name", "ctl", "netns", self.switch]
                run(["ip", "link", "add", "name", self.uplink, "type", "veth", *peer])
                run(["ip", "-n", self.switch, "link", "set", "dev", "ctl", "master", "mgmt", "up"])
                run(["ip", "address", "add", f"{self.plan.controller}/{self.plan.prefix}", "dev", self.uplink])
                run(["ip", "link", "set", "dev", self.uplink, "up"])
                self._batch(self.switch, ["link set dev ctl up"])

    def switch_down(self) -> None:
        run(["ip", "link", "del", self.uplink], check=False)
        run(["ip", "netns", "del", self.switch], check=False)

    @staticmethod
    def _batch(namespace: str, commands: Iterable[str]) -> None:
        run(["ip", "-n", namespace, "-batch", "-"], stdin="\n".join(commands) + "\n")

    def plug_in(self, host: Host) -> None:
        """A fresh network name space for a host, with all its NICs, as bare as after power-on."""
        self.unplug(host)
        namespace = self.namespace(host)
        run(["ip", "netns", "add", namespace])
        ports = []
        for number, nic in enumerate(host.nics):
            port = host.port(nic)
            address = mac(self.plan.tag, host.index, number)
            ports.append(
                f"link add name {port} mtu {PORT_MTU} type veth "
                f"peer name {nic} netns {namespace} address {address} mtu 1500"
            )
            segment = self.plan.segment(host.name, nic)
            bridge = "mgmt" if nic == host.management else segment.name if segment else None
            if bridge:
                ports.append(f"link set dev {port} master {bridge}")
        with locked(self.lock):
            self._batch(self.switch, ports)
            self._apply_to_nics(host, self.faults.read(), self.faults.none())
        self.sync_carrier([host])

    def unplug(self, host: Host) -> None:
        """Remove a host's NICs and name space."""
        run(["ip", "netns", "del", self.namespace(host)], check=False)
        for nic in host.nics:
            run(["ip", "-n", self.switch, "link", "del", host.port(nic)], check=False)

    def darken(self, host: Host) -> None:
        """Pull all cables of a host at once: nothing that it still says gets out."""
        inside(self.switch, lambda: self._set_ports(host.port(nic) for nic in host.nics))

    @staticmethod
    def _set_ports(ports: Iterable[str]) -> None:
        with _control_socket() as control:
            for port in ports:
                set_up(control, port, False)

    # --- carriers ----------------------------------------------------------------------------------------------------

    def sync_carrier(self, hosts: Iterable[Host] | None = None, *, dead: str | None = None) -> None:
        """Set the ports that face the hosts (and their cable peers) up or down, by cables, cuts and the far ends.

        `dead` names a host that is to be taken as switched off although its NICs may still be there.
        """
        names = {host.name for host in (hosts if hosts is not None else self.plan.hosts)}
        with locked(self.lock):
            cut = {tuple(entry) for entry in self.faults.read()["cut"]}
            wanted: dict[str, bool] = {}
            for host in self.plan.hosts:
                for nic in host.nics:
                    peer = self.plan.cable_peer(host.name, nic)
                    if host.name not in names and (peer is None or peer[0] not in names):
                        continue
                    segment = self.plan.segment(host.name, nic)
                    up = (nic == host.management or segment is not None) and (host.name, nic) not in cut
                    if up and peer is not None:
                        up = peer not in cut and peer[0] != dead and self.is_up(self.plan.host(peer[0]), peer[1])
                    wanted[host.port(nic)] = up and host.name != dead

            def work() -> None:
                with _control_socket() as control:
                    for port, up in wanted.items():
                        set_up(control, port, up)

            inside(self.switch, work)

    def is_up(self, host: Host, nic: str) -> bool:
        """Whether the host itself has this NIC switched on."""
        if not self.exists(self.namespace(host)):
            return False

        def work() -> bool:
            with _control_socket() as control:
                return bool((flags(control, nic) or 0) & IFF_UP)

        try:
            return inside(self.namespace(host), work)
        except (OSError, LabError):
            return False  # it went away under our hands

    def watch(self, host: Host) -> socket.socket:
        """A socket that becomes readable when a NIC or an address of the host changes."""
        return inside(self.namespace(host), _watch_socket)

    def nic_state(self, host: Host) -> list[dict[str, Any]]:
        done = run(["ip", "-n", self.namespace(host), "-j", "address", "show"], check=False)
        return json.loads(done.stdout or "[]") if done.returncode == 0 else []

    # --- faults ------------------------------------------------------------------------------------------------------

    def change_faults(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the record of faults, then make the network so; only what differs is touched."""
        with locked(self.lock):
            before = self.faults.read()
            state = copy.deepcopy(before)
            change(state)
            self.faults.save(state)
            if self.exists(self.switch):
                if self.ruleset(state) != self.ruleset(before):
                    self._nft(self.ruleset(state))
                for host in self.plan.hosts:
                    if self.exists(self.namespace(host)):
                        self._apply_to_nics(host, state, before)
        if self.exists(self.switch):
            self.sync_carrier()

    def _apply_to_nics(self, host: Host, state: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        for nic in host.nics:
            end = f"{host.name}:{nic}"
            rate = state["rate"].get(end)
            if rate != before["rate"].get(end):
                self._rate(host, nic, rate)
            black = end in state["blackhole"]
            if black != (end in before["blackhole"]):
                self._offloads(host, nic, not black)

    def ruleset(self, state: Mapping[str, Any]) -> str:
        """All packet faults as one nftables table in the switch."""
        rules = []

        def port(end: str) -> str:
            name, _unused, nic = end.partition(":")
            return self.plan.host(name).port(nic)

        for end in state["silent"]:
            rules += [f'{way} "{port(end)}" drop' for way in ("iifname", "oifname")]
        for end, percent in sorted(state["loss"].items()):
            share = f"numgen random mod 1000 < {round(float(percent) * 10)} drop"
            rules += [f'{way} "{port(end)}" {share}' for way in ("iifname", "oifname")]
        for end in state["blackhole"]:
            rules += [f'{way} "{port(end)}" meta length > 1500 drop' for way in ("iifname", "oifname")]
        for source, target in state["oneway"]:
            first, second = self.plan.host(source), self.plan.host(target)
            pairs = [(a, b) for a in first.nics for b in second.nics]
            rules += [f'iifname "{first.port(a)}" oifname "{second.port(b)}" drop' for a, b in pairs]
        if not rules:
            return ""
        lines = "\n".join(f"    {rule}" for rule in rules)
        chain = f"  chain forward {{\n    type filter hook forward priority 0;\n{lines}\n  }}\n"
        return f"table bridge faults {{\n{chain}}}\n"

    def _nft(self, ruleset: str) -> None:
        # the machine need not have nft: the base image's own is run over the switch's name space
        base = (self.folder / "base").resolve()
        argv = ["ip", "netns", "exec", self.switch, "chroot", str(base), "nft", "-f", "-"]
        run(argv, stdin="table bridge faults {}\ndelete table bridge faults\n" + ruleset)

    def _rate(self, host: Host, nic: str, mbit: float | None) -> None:
        """Shape both directions at the switch's end: towards the host on the port, from it through an ifb device."""
        port = host.port(nic)
        ifb = f"i{port}"
        tc = ["tc", "-n", self.switch]
        run([*tc, "qdisc", "del", "dev", port, "root"], check=False)
        run([*tc, "qdisc", "del", "dev", port, "ingress"], check=False)
        run(["ip", "-n", self.switch, "link", "del", ifb], check=False)
        if mbit is None:
            return
        # the bucket must hold what the line carries in one tick, and one whole offloaded packet
        burst = max(int(mbit * 1e6 / 8 / 250), 96 * 1024)
        shape = ["tbf", "rate", f"{mbit}mbit", "burst", str(burst), "latency", "50ms"]
        self._batch(self.switch, [f"link add name {ifb} type ifb", f"link set dev {ifb} up"])
        run([*tc, "qdisc", "add", "dev", port, "root", *shape])
        run([*tc, "qdisc", "add", "dev", ifb, "root", *shape])
        run([*tc, "qdisc", "add", "dev", port, "ingress"])
        everything = ["protocol", "all", "u32", "match", "u32", "0", "0"]
        redirect = ["action", "mirred", "egress", "redirect", "dev", ifb]
        run([*tc, "filter", "add", "dev", port, "parent", "ffff:", *everything, *redirect])

    def _offloads(self, host: Host, nic: str, on: bool) -> None:
        """Frames must have their real size for a jumbo black hole to see them."""
        word = "on" if on else "off"
        base = (self.folder / "base").resolve()
        argv = ["ip", "netns", "exec", self.namespace(host), "chroot", str(base), "ethtool", "-K", nic]
        run([*argv, "tso", word, "gso", word])
