# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is at the other end of a cable, asked with own Ethernet frames because there are no addresses yet.

All hosts of a run do this at the same time: each sends, out of each fabric port, a broadcast frame that carries its
inventory name and the port's name, and listens for those of the others. A host that has seen every expected
neighbour sends a last burst and stops, so that a sound fabric costs a second. A port waits only for what can still
happen: for its peer to begin, for a link that somebody has just set up to train. So a fault costs two to five seconds,
and only silence of a peer on every port costs the whole window.
Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import wait_until

#: "local experimental" in the IEEE's list: nothing else reacts to it
ETHERTYPE = 0x88B5
BROADCAST = b"\xff" * 6
#: no bridge passes frames to this address on (IEEE 802.1Q): one that arrives came over a plain cable
NEAREST = b"\x01\x80\xc2\x00\x00\x0e"
_MAGIC = b"sparkthor.cluster/1 "
_HEADER = struct.Struct("!6s6sH")
_NAME = re.compile(r"[^\x00-\x20\x7f]{1,253}")
#: all ports a Spark's ConnectX-7 can have: a cable that is missing in one cage may be in the other
SPARK_PORTS = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")
#: the lanes of a Thor's QSFP cage
THOR_LANES = ("mgbe0_0", "mgbe1_0", "mgbe2_0", "mgbe3_0")
#: seconds to go on for a port once nothing more can be expected of it
GRACE = 2.0

#: of linux/if_packet.h, which Python's socket leaves out
_SOL_PACKET, _ADD_MEMBERSHIP, _MULTICAST = 263, 1, 0
#: hosts and ports that are counted on one port
_MOST = 1024

Seen = dict[str, set[tuple[str, str]]]


class CagePort(Protocol):
    """The part of a packet socket that is used here."""

    def send(self, data: bytes, /) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def encode(source: bytes, host: str, netdev: str, target: bytes = BROADCAST) -> bytes:
    """One frame from this MAC address; never shorter than Ethernet's minimum of 60 bytes."""
    body = _MAGIC + json.dumps({"host": host, "netdev": netdev}, ensure_ascii=True).encode()
    return _HEADER.pack(target, source, ETHERTYPE) + body + b"\n"


def decode(frame: bytes) -> tuple[str, str] | None:
    """(host, NIC) of a frame of ours; None for anything else, since anybody can send anything."""
    if len(frame) < _HEADER.size or _HEADER.unpack_from(frame)[2] != ETHERTYPE:
        return None
    body = frame[_HEADER.size :]
    if not body.startswith(_MAGIC):
        return None
    try:
        content = foreign.parse_object(body[len(_MAGIC) :].split(b"\n", 1)[0])
    except foreign.ForeignError:
        return None
    host, netdev = content.get("host"), content.get("netdev")
    if not (isinstance(host, str) and isinstance(netdev, str) and _NAME.fullmatch(host) and _NAME.fullmatch(netdev)):
        return None
    return host, netdev


def port_of(netdev: str) -> str:
    """``np0`` or ``np1``, what the two halves of one cage have in common; the whole name where it says nothing."""
    match = re.search(r"np[0-9]+$", netdev)
    return match[0] if match else netdev


def is_neighbour(seen: Iterable[tuple[str, str]], peer: str, peer_netdev: str) -> bool:
    """Whether the right cage of the right host was seen.

    Both halves of a cage share one cable, and the NIC hands a broadcast to both: which half it came from says nothing.
    """
    return any(host == peer and port_of(netdev) == port_of(peer_netdev) for host, netdev in seen)


def open_port(netdev: str) -> tuple[CagePort, bytes]:
    """A raw socket on one NIC, and the NIC's address."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    try:
        port.setblocking(False)
        port.bind((netdev, ETHERTYPE))
        # struct packet_mreq: without it the NIC drops frames to that address (packet(7))
        wanted = struct.pack("iHH8s", socket.if_nametoindex(netdev), _MULTICAST, len(NEAREST), NEAREST)
        with contextlib.suppress(OSError):
            port.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, wanted)
        return port, port.getsockname()[4]
    except OSError:
        port.close()
        raise


class _Watch:
    """What was seen on each port, by when, and until when waiting is worth it."""

    def __init__(
        self,
        expected: Mapping[str, tuple[str, str]],
        seconds: float,
        training: float,
        settled: Iterable[str],
        others: Mapping[str, bool],
        crowds: Mapping[str, Iterable[str]],
    ) -> None:
        self.expected, self.seconds, self.training = expected, seconds, training
        self.settled, self.others = set(settled), others
        self.crowds = {netdev: set(hosts) for netdev, hosts in crowds.items()}
        self.start = time.monotonic()
        self.seen: Seen = {netdev: set() for netdev in (*expected, *others)}
        self.first: dict[str, float] = {}
        self.heard: dict[str, float] = {}
        self.dark: set[str] = set()

    def note(self, netdev: str, now: float) -> None:
        if self.seen[netdev]:
            self.first.setdefault(netdev, now)
        for name, _netdev in self.seen[netdev]:
            self.heard.setdefault(name, now)

    def missing(self, ports: Iterable[str]) -> list[str]:
        return [name for name in ports if name in self.expected and not self._found(name)]

    def _found(self, netdev: str) -> bool:
        if netdev in self.crowds:
            return self.crowds[netdev] <= {host for host, _netdev in self.seen[netdev]}
        return is_neighbour(self.seen[netdev], *self.expected[netdev])

    def until(self, netdev: str) -> float:
        """When to give this port up."""
        peer = self.expected[netdev][0]
        dark = netdev in self.dark
        last = self.start + self.seconds + (self.training if dark else 0)
        if netdev in self.crowds:
            # a switch is there already; where frames pass, one that has not come may be of a host that begins late
            longer = self.heard if not dark else netdev not in self.settled
            return self.start + self.seconds + (self.training if longer else 0)
        if netdev in self.first:
            # its cable leads to somebody else
            return min(last, self.first[netdev] + GRACE)
        if dark and (netdev in self.settled or any(self.seen[other] for other in self.others)):
            # both ends were up before the probe, or the cable was found in the other cage
            return min(last, self.start + GRACE)
        if peer in self.heard:
            # it had set its ports up before it sent its first frame
            return min(last, self.heard[peer] + (self.training if dark else GRACE))
        return last

    def search_ends(self) -> float:
        """When to give the other cage up."""
        if not self.others or any(self.seen[name] for name in self.others):
            return self.start
        if all(name in self.dark for name in self.others):
            return self.start + (self.training if any(self.others.values()) else 0)
        return self.start + GRACE


def exchange(
    host: str,
    expected: Mapping[str, tuple[str, str]],
    seconds: float,
    open_netdev: Callable[[str], tuple[CagePort, bytes]] = open_port,
    interval: float = 0.15,
    burst: int = 4,
    dark: Callable[[], set[str]] = set,
    training: float = 0.0,
    settled: Iterable[str] = (),
    others: Mapping[str, bool] | None = None,
    crowds: Mapping[str, Iterable[str]] | None = None,
    cabled: Seen | None = None,
) -> tuple[Seen, dict[str, str]]:
    """Send and listen on the NICs of ``expected`` (NIC → who should be there); who was seen, and what went wrong.

    Frames of this very host are not counted: a NIC may hand them from one half to the other.  ``dark`` names the NICs
    without carrier and is asked twice a second; ``settled`` are those whose both ends were up before the probe, so
    that there is no training to wait for.  ``others`` are NICs of the other cage (→ set up for the probe): nobody is
    expected there, but a peer whose cable ends there learns it from the frames sent out of them.  ``crowds`` are the
    NICs on a switch (→ the hosts that it joins).  ``cabled`` is filled with those whose frames no bridge passed on.
    """
    watch = _Watch(expected, seconds, training, settled, others or {}, crowds or {})
    near: Seen = {} if cabled is None else cabled
    errors: dict[str, str] = {}
    ports: dict[str, CagePort] = {}
    frames: dict[str, list[bytes]] = {}
    try:
        for netdev in watch.seen:
            try:
                ports[netdev], address = open_netdev(netdev)
                frames[netdev] = [encode(address, host, netdev, target) for target in (BROADCAST, NEAREST)]
            except OSError as error:
                errors[netdev] = error.strerror or str(error)
        due, left, next_read = watch.start, burst, watch.start
        while any(name in expected for name in ports) and left > 0:
            now = time.monotonic()
            if now >= next_read:
                next_read = now + 0.5
                watch.dark = dark()
            if now >= due:
                due = now + interval
                for netdev, port in ports.items():
                    # a port without carrier refuses or drops frames; it simply sees nobody
                    for frame in frames[netdev]:
                        with contextlib.suppress(OSError):
                            port.send(frame)
                missing = watch.missing(ports)
                if not missing or now >= max(*map(watch.until, missing), watch.search_ends()):
                    left -= 1
            ready, _w, _x = select.select(list(ports.values()), [], [], max(0.0, due - time.monotonic()))
            for netdev, port in ports.items():
                if port in ready:
                    _drain(port, host, watch.seen[netdev], near.setdefault(netdev, set()))
                    watch.note(netdev, time.monotonic())
    finally:
        for port in ports.values():
            port.close()
    return watch.seen, errors


def _drain(port: CagePort, host: str, seen: set[tuple[str, str]], near: set[tuple[str, str]]) -> None:
    for _frame in range(256):  # a flood must not keep us from sending
        try:
            frame = port.recv(2048)
        except OSError:
            return
        found = decode(frame)
        if found and found[0] != host and len(seen) < _MOST:
            seen.add(found)
            if frame.startswith(NEAREST):
                near.add(found)


def plain(seen: Seen) -> dict[str, list[dict[str, str]]]:
    """What was seen, as sorted plain data."""
    return {
        netdev: [{"host": host, "netdev": other} for host, other in sorted(found)] for netdev, found in seen.items()
    }


LinkStates = Callable[[], Mapping[str, Mapping[str, Any]]]
Runner = Callable[[list[str]], tuple[int, str, str]]
#: Gb/s by NIC, as it is now
Rates = Callable[[], Mapping[str, float]]


@contextlib.contextmanager
def raised(netdevs: Iterable[str], run: Runner, errors: dict[str, str]) -> Iterator[list[str]]:
    """Set ports up for the time of the probe, and down again afterwards whatever happens."""
    done: list[str] = []
    try:
        for netdev in netdevs:
            rc, _out, err = run(["ip", "link", "set", "dev", netdev, "up"])
            if rc == 0:
                done.append(netdev)
            else:
                errors[netdev] = err.strip() or f"ip link set {netdev} up failed with exit code {rc}"
        yield done
    finally:
        for netdev in done:
            rc, _out, err = run(["ip", "link", "set", "dev", netdev, "down"])
            if rc != 0:
                errors[netdev] = f"it was set up for the probe and could not be set down again: {err.strip() or rc}"


def wait_for_carrier(netdevs: Iterable[str], states: LinkStates, seconds: float) -> None:
    """Give links time to train; returns as soon as all have a carrier."""
    wanted = set(netdevs)

    def trained() -> bool:
        live = states()
        wanted.difference_update({netdev for netdev in wanted if live.get(netdev, {}).get("carrier")})
        return not wanted

    if wanted:
        wait_until(trained, seconds, 0.2)


class _Ports:
    """The planned ports of a host, and those of the other cage where no planned port has a carrier."""

    def __init__(self, links: list[dict[str, Any]], states: LinkStates) -> None:
        self.links = links
        self.states = states
        self.before = states()
        self.planned = {link["netdev"] for link in links}
        self.present = [link for link in links if link["netdev"] in self.before]
        self.down = [link["netdev"] for link in self.present if not self.before[link["netdev"]]["up"]]
        with_carrier = any(self.before[link["netdev"]]["carrier"] for link in self.present)
        self.others = [
            name for name in SPARK_PORTS if not with_carrier and name in self.before and name not in self.planned
        ]
        self.others_with_carrier = {name for name in self.others if self.before[name]["carrier"]}
        self.rates: Mapping[str, float] = {}

    def dark(self) -> set[str]:
        """NICs without a carrier right now; remembers which of the other cage had one."""
        live = self.states()
        self.others_with_carrier.update(name for name in self.others if live.get(name, {}).get("carrier"))
        return {name for name, state in live.items() if not state.get("carrier")}

    def read_rates(self, raised_ports: list[str], rates: Rates) -> None:
        """A last look while the ports are still up: carriers, and what the ones that were set up negotiated."""
        dark = self.dark()
        lit = [name for name in raised_ports if name not in dark]
        self.rates = {name: rate for name, rate in rates().items() if name in lit} if lit else {}

    def usable(self, raised_ports: list[str]) -> list[dict[str, Any]]:
        return [link for link in self.present if link["netdev"] in raised_ports or link["netdev"] not in self.down]

    def report(self, after: Mapping[str, Mapping[str, Any]], seen: Seen, raised_ports: list[str]) -> dict[str, Any]:
        """By NIC ``present, up, carrier, mtu``."""
        ports = {
            name: {
                "present": True,
                "up": bool(self.before[name]["up"]),
                "carrier": name in self.others_with_carrier or bool(seen.get(name))
                if name in raised_ports or self.before[name]["up"]
                else None,
                "mtu": self.before[name]["mtu"],
            }
            for name in self.others
        }
        known = {link["netdev"] for link in self.usable(raised_ports)}
        for netdev in (link["netdev"] for link in self.links):
            carriers = (state.get(netdev, {}).get("carrier") for state in (self.before, after))
            ports[netdev] = {
                "present": netdev in self.before,
                "up": bool(self.before.get(netdev, {}).get("up")),
                # the peer may have set its end down again already: whoever was heard was there
                "carrier": (any(carriers) or bool(seen.get(netdev))) if netdev in known else None,
                "mtu": self.before.get(netdev, {}).get("mtu", 0),
            }
            if netdev in self.rates:
                ports[netdev]["rate"] = self.rates[netdev]
        return ports


def find_neighbours(
    host: str,
    links: list[dict[str, Any]],
    states: LinkStates,
    run: Runner,
    seconds: float = 5.0,
    training: float = 5.0,
    change_nothing: bool = False,
    open_netdev: Callable[[str], tuple[CagePort, bytes]] = open_port,
    rates: Rates = dict,
) -> dict[str, Any]:
    """``{ports, neighbours, cabled, raised, errors}`` of the planned links.

    Each has ``netdev, peer, peer_netdev, peer_up``, or ``hosts`` that a switch joins. ``ports`` holds, per NIC,
    ``present, up, carrier, mtu`` as they were then, and the ``rate`` of one that was set up; ``carrier`` is None where
    it could not be known (down, and ``change_nothing``). Frames go out on links that have a peer or hosts.
    """
    errors: dict[str, str] = {}
    seen: Seen = {}
    cabled: Seen = {}
    ports = _Ports(links, states)
    raisable = [*ports.down, *(name for name in ports.others if not ports.before[name]["up"])]
    with raised([] if change_nothing else raisable, run, errors) as done:
        usable = ports.usable(done)
        # A port of ours may be dark only because its peer has not set the other end up yet: it takes part all the same.
        crowds = {link["netdev"]: link["hosts"] for link in usable if link.get("hosts") and not link.get("peer")}
        expected = {
            link["netdev"]: (link["peer"], link["peer_netdev"])
            for link in usable
            if link.get("peer") or link["netdev"] in crowds
        }
        if expected:
            seen, problems = exchange(
                host,
                expected,
                seconds,
                open_netdev,
                dark=ports.dark,
                training=training,
                settled=[
                    link["netdev"]
                    for link in usable
                    if (link.get("peer_up") or link["netdev"] in crowds) and link["netdev"] not in done
                ],
                others={name: name in done for name in ports.others if name in done or ports.before[name]["up"]},
                crowds=crowds,
                cabled=cabled,
            )
            errors.update((name, problem) for name, problem in problems.items() if name in ports.planned)
        elif set(done) & ports.planned:
            wait_for_carrier(set(done) & ports.planned, states, training)
        after = states()
        ports.read_rates(done, rates)
    return {
        "ports": ports.report(after, seen, done),
        "neighbours": plain(seen),
        "cabled": {netdev: sorted({host for host, _netdev in found}) for netdev, found in cabled.items()},
        "raised": done,
        "errors": errors,
    }
