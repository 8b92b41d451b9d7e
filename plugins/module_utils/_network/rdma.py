# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which RDMA device drives which network interface, from any of the three places that say so.

``ibdev2netdev`` is the usual tool and often absent (it was removed upstream, plain Ubuntu and a Thor never had it);
``rdma`` belongs to iproute2; sysfs is always there. Each alone gives the same links, because whatever only one of
them knows is read from sysfs afterwards. Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

SOURCES = ("ibdev2netdev", "rdma", "sysfs")

Runner = Callable[[list[str]], tuple[int, str, str]]

# rocep1s0f0 port 1 ==> enp1s0f0np0 (Up)
# 0000:01:00.0 mlx5_0 (MT4123 - MCX653105A) ConnectX-6 VPI fw 20.35.2000 port 1 (DOWN  ) ==> p5p1 (Down)
_LINE = re.compile(
    r"""
    (?: (?P<pci> [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7] ) [ \t]+ )?
    (?P<device> [^\s()<>=:]+ ) [ \t]+
    (?: \( [^()]* \) [ \t]* (?: .* [ \t] )? fw [ \t]+ (?P<firmware> \S+ ) [ \t]+ )?
    port [ \t]+ (?P<port> [0-9]{1,3} ) [ \t]+
    (?: \( [ \t]* (?P<port_state> [A-Za-z_]+ ) [ \t]* \) [ \t]+ )?
    <? =+ > [ \t]+
    (?P<netdev> [^\s()<>=/]+ ) [ \t]+
    \( [ \t]* (?P<state> [A-Za-z/]+ ) [ \t]* \)
    """,
    re.VERBOSE,
)
_LONGEST_LINE = 2000  # the longest seen is 330; matching something endless would take quadratic time
_STATES = {"up": "up", "down": "down"}
_NOTHING = ("na", "n/a", "none")

# enp1s0f0np0, enP2p1s0f1np1: an upper-case P is a PCI domain other than 0, which on a Spark is the second half.
_NETDEV = re.compile(r"en(?P<domain>P[0-9]+)?p[0-9]+s[0-9]+f(?P<function>[0-9]+)(?:np(?P<port>[0-9]+))?")
_PCI = re.compile(r"(?P<domain>[0-9a-fA-F]{4,8}):[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
# What RoCE puts around its payload at most; the kernel takes it off the interface's MTU before rounding down.
_ROCE_OVERHEAD = 96


class RdmaError(ValueError):
    """A tool's output that cannot be read: which tool, which line, and the line itself."""

    def __init__(self, tool: str, number: int, line: str, problem: str = "is not in a known form") -> None:
        self.tool = tool
        self.number = number
        self.line = line
        super().__init__(f"{tool}: line {number} {problem}: {line[:200]!r}")


def parse_ibdev2netdev(text: str) -> list[dict[str, Any]]:
    """Links in the order of the text: ``device``, ``port``, ``netdev``, ``state`` (``up``, ``down``, ``unknown``).

    Lines of ``ibdev2netdev -v`` add ``pci``, ``firmware`` and ``port_state``. Column padding, carriage returns, empty
    lines and the old arrow ``<===>`` are read too; any other line raises RdmaError.
    """
    links = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip(" \t\r")
        if not line:
            continue
        match = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        if match is None:
            raise RdmaError("ibdev2netdev", number, line)
        netdev = match["netdev"]
        link: dict[str, Any] = {
            "device": match["device"],
            "port": int(match["port"]),
            "netdev": "" if netdev.lower() in _NOTHING else netdev,
            "state": _STATES.get(match["state"].lower(), "unknown"),
        }
        for key in ("pci", "firmware", "port_state"):
            if match[key] is not None:
                link[key] = match[key]
        links.append(link)
    return links


def parse_rdma_link(text: str) -> list[dict[str, Any]]:
    """Links out of ``rdma -j link show``, in its order; ``netdev`` is empty where the tool leaves it out.

    The tool knows the port's state, not the interface's carrier: ``state`` follows the port here, and
    :func:`read_links` replaces it by the carrier.
    """
    if not text.strip():
        return []
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        number = getattr(error, "lineno", 1)
        lines = text.split("\n")
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        raise RdmaError("rdma", number, line, "is not JSON") from None
    if not isinstance(entries, list):
        raise RdmaError("rdma", 1, text.split("\n")[0], "is not a list of links")
    links = []
    for number, entry in enumerate(entries, 1):
        if entry == {}:  # iproute2 prints one for a device it may not look into
            continue
        device = entry.get("ifname") if isinstance(entry, dict) else None
        port = entry.get("port", 1) if isinstance(entry, dict) else None
        netdev = entry.get("netdev", "") if isinstance(entry, dict) else None
        if (
            not isinstance(device, str)
            or not device
            or isinstance(port, bool)
            or not isinstance(port, int)
            or not isinstance(netdev, str)
        ):
            raise RdmaError("rdma", number, json.dumps(entry), "(entry of the list) is not a link")
        port_state = str(entry.get("state", ""))
        links.append(
            {
                # iproute2 before 5.0 put the port into the name: "mlx5_0/1"
                "device": device.split("/")[0],
                "port": int(device.split("/")[1]) if re.fullmatch(r"[^/]+/[0-9]{1,3}", device) else port,
                "netdev": netdev,
                "state": {"ACTIVE": "up", "DOWN": "down", "INIT": "down", "ARMED": "down"}.get(port_state, "unknown"),
                "port_state": port_state,
            }
        )
    return links


def parse_rate(text: str) -> float | int | None:
    """``200 Gb/sec (4X HDR)`` as 200, ``2.5 Gb/sec (1X SDR)`` as 2.5."""
    match = re.match(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec", text)
    if match is None:
        return None
    value = float(match[1])
    return int(value) if value.is_integer() else value


def rdma_path_mtu(mtu: int | None) -> int | None:
    """The RoCE path MTU the kernel derives from an interface's MTU: 1500 gives 1024, 9000 gives 4096."""
    if mtu is None:
        return None
    fitting = [size for size in (256, 512, 1024, 2048, 4096) if size <= mtu - _ROCE_OVERHEAD]
    return fitting[-1] if fitting else None


def cage_of(netdev: str, phys_port_name: str) -> int | None:
    """The QSFP cage of a port: what the driver says (``p0``, ``p1``), else what the interface is called."""
    match = re.fullmatch(r"p([0-9])", phys_port_name)
    if match:
        return int(match[1])
    match = _NETDEV.fullmatch(netdev)
    if match and match["port"] is not None:
        return int(match["port"])
    return None


def half_of(netdev: str, pci: str) -> int | None:
    """0 for the half on PCI domain 0, 1 for the other one."""
    match = _NETDEV.fullmatch(netdev)
    if match and match["port"] is not None:
        return 1 if match["domain"] else 0
    match = _PCI.fullmatch(pci)
    if match:
        return 1 if int(match["domain"], 16) else 0
    return None


class Sysfs:
    """Reads ``/sys/class/infiniband`` and ``/sys/class/net`` below a root folder."""

    def __init__(self, root: str = "/") -> None:
        self._ib = os.path.join(root, "sys/class/infiniband")
        self._net = os.path.join(root, "sys/class/net")

    def _read(self, *parts: str) -> str:
        # sysfs answers some reads with EINVAL (carrier of an interface that is down, an empty GID entry)
        try:
            with open(os.path.join(*parts), encoding="utf-8", errors="replace") as handle:
                return handle.read(4096).strip().strip("\0")
        except (OSError, ValueError):
            return ""

    def _list(self, *parts: str) -> list[str]:
        try:
            return sorted(os.listdir(os.path.join(*parts)))
        except (OSError, ValueError):
            return []

    def _number(self, *parts: str) -> int | None:
        text = self._read(*parts)
        return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None

    def links(self) -> list[dict[str, Any]]:
        """All ports of all devices with what sysfs says about them."""
        return [
            {
                "device": device,
                "port": int(port),
                "netdev": self.netdev(device, int(port)),
                "state": "unknown",
                "port_state": self.port_state(device, int(port)),
            }
            for device in self._list(self._ib)
            for port in self._list(self._ib, device, "ports")
            if port.isascii() and port.isdigit() and len(port) < 4
        ]

    def port_state(self, device: str, port: int) -> str:
        """``4: ACTIVE`` as ``ACTIVE``."""
        return self._read(self._ib, device, "ports", str(port), "state").rpartition(":")[2].strip()

    def netdev(self, device: str, port: int) -> str:
        """The interface of a port: the GID table names it, the device's folder lists it."""
        table = os.path.join(self._ib, device, "ports", str(port), "gid_attrs", "ndevs")
        for index in sorted(self._list(table), key=_numeric)[:16]:
            name = self._read(table, index)
            if name:
                return name
        names = self._list(self._ib, device, "device", "net")
        if len(names) > 1:  # a device with several ports: dev_port counts from 0
            names = [name for name in names if self._number(self._net, name, "dev_port") == port - 1]
        return names[0] if names else ""

    def carrier(self, netdev: str) -> str:
        """``up`` or ``down``; an interface that is administratively down has no carrier to read and is ``down``."""
        if not netdev or not self._list(self._net, netdev):
            return "unknown"
        return "up" if self._read(self._net, netdev, "carrier") == "1" else "down"

    def gid_index(self, device: str, port: int) -> int | None:
        """Index of the first GID that is RoCE v2 over IPv4: what NCCL picks, and None while there is no address."""
        base = os.path.join(self._ib, device, "ports", str(port))
        for index in sorted(self._list(base, "gid_attrs", "types"), key=_numeric):
            if self._read(base, "gid_attrs", "types", index).lower() != "roce v2":
                continue
            gid = self._read(base, "gids", index).lower()
            if gid.startswith("0000:0000:0000:0000:0000:ffff:") and gid != "0000:0000:0000:0000:0000:ffff:0000:0000":
                return _numeric(index)
        return None

    def pci(self, device: str) -> str:
        """PCI address of a device; empty for one that is no PCI function (soft RoCE)."""
        match = re.search(r"^PCI_SLOT_NAME=(\S+)$", self._read(self._ib, device, "device", "uevent"), re.MULTILINE)
        if match:
            return match[1]
        try:
            name = os.path.basename(os.path.realpath(os.path.join(self._ib, device, "device"), strict=True))
        except (OSError, ValueError):
            return ""
        return name if _PCI.fullmatch(name) else ""

    def enrich(self, link: dict[str, Any]) -> dict[str, Any]:
        """A link of any source with everything sysfs adds; unreadable things are None or empty."""
        device, port = link["device"], link["port"]
        netdev = link["netdev"] or self.netdev(device, port)
        carrier = self.carrier(netdev)
        pci = self.pci(device) or link.get("pci", "")
        phys_port_name = self._read(self._net, netdev, "phys_port_name") if netdev else ""
        mtu = self._number(self._net, netdev, "mtu") if netdev else None
        base = (self._ib, device, "ports", str(port))
        link_layer = self._read(*base, "link_layer")
        return {
            "device": device,
            "port": port,
            "netdev": netdev,
            "state": link["state"] if carrier == "unknown" else carrier,
            "port_state": self.port_state(device, port) or link.get("port_state", ""),
            "phys_state": self._read(*base, "phys_state").rpartition(":")[2].strip(),
            "cage": cage_of(netdev, phys_port_name),
            "half": half_of(netdev, pci),
            "pci": pci,
            "phys_port_name": phys_port_name,
            "phys_switch_id": self._read(self._net, netdev, "phys_switch_id") if netdev else "",
            "mtu": mtu,
            "active_mtu": rdma_path_mtu(mtu) if link_layer != "InfiniBand" else None,
            "rate": parse_rate(self._read(*base, "rate")),
            "link_layer": link_layer,
            "gid_index": self.gid_index(device, port),
            "firmware": self._read(self._ib, device, "fw_ver") or link.get("firmware", ""),
        }


def _numeric(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1 << 30


def read_links(run: Runner, root: str = "/", sources: Iterable[str] = SOURCES) -> dict[str, Any]:
    """``{links, source, warnings}`` from the first source that answers; links sorted by device and port.

    A tool that is missing, fails, hangs (``run`` has a time limit) or prints something unreadable is passed over. So
    is one that prints nothing while a later source knows devices. No RDMA at all is an empty list.
    """
    sysfs = Sysfs(root)
    warnings: list[str] = []
    answered = ""
    for source in sources:
        try:
            states = _ask(source, run, sysfs)
        except RdmaError as error:
            warnings.append(str(error))
            continue
        except _NoAnswer as reason:
            if str(reason):
                warnings.append(str(reason))
            continue
        answered = answered or source
        if states:
            links = sorted((sysfs.enrich(link) for link in states), key=lambda link: (link["device"], link["port"]))
            return {"links": links, "source": source, "warnings": warnings}
    return {"links": [], "source": answered, "warnings": warnings}


class _NoAnswer(Exception):
    pass


def _ask(source: str, run: Runner, sysfs: Sysfs) -> list[dict[str, Any]]:
    if source == "sysfs":
        return sysfs.links()
    argv, parse = {
        "ibdev2netdev": (["ibdev2netdev"], parse_ibdev2netdev),
        "rdma": (["rdma", "-j", "link", "show"], parse_rdma_link),
    }[source]
    rc, out, err = run(argv)
    # Not installed is the common case, and rdma fails where the kernel has no RDMA at all: nothing to warn of.
    if rc == 127 or (rc not in (0, 124) and not sysfs.links()):
        raise _NoAnswer
    if rc != 0:
        detail = (err.strip() or out.strip()).split("\n")[0][:200]
        raise _NoAnswer(f"{source} failed with exit code {rc}: {detail}")
    return parse(out)
