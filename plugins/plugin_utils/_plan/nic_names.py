# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a planned NIC that is absent is only called otherwise: one judge for preflight, status and the doctor."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS

#: of a NIC's name: PCI domain, bus, slot and function, all decimal.  Source: systemd.net-naming-scheme(7)
_PATH = re.compile(r"en(?:P(\d+))?p(\d+)s(\d+)f(\d+)(?:np\d+)?")


def pci_of(netdev: str) -> str:
    """The PCI address that a name says; empty for other names."""
    match = _PATH.fullmatch(netdev)
    if match is None:
        return ""
    domain, bus, slot, function = (int(number or 0) for number in match.groups())
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"


def now_called(netdev: str, interfaces: Iterable[Mapping[str, Any]]) -> str:
    """The name that an absent NIC has now; empty where it is there, or where no other one is known to be it.

    Known by its second names, by its PCI address, or on a Spark by its cage and half, which no change of the PCI bus
    moves.
    """
    here = list(interfaces)
    if any(nic["name"] == netdev for nic in here):
        return ""
    pci = pci_of(netdev)
    port = f"p{SPARK_NETDEVS[netdev][0]}" if netdev in SPARK_NETDEVS else ""
    domain = pci.partition(":")[0]
    others = [nic for nic in here if nic["name"] not in SPARK_NETDEVS]
    for found in (
        [nic for nic in others if netdev in (nic.get("altnames") or ())],
        [nic for nic in others if pci and nic.get("pci") == pci],
        [
            nic
            for nic in others
            if port and nic.get("phys_port_name") == port and str(nic.get("pci") or "").startswith(f"{domain}:")
        ],
    ):
        if len(found) == 1:
            return str(found[0]["name"])
    return ""


def renamed(netdev: str, now: str) -> tuple[str, str]:
    """What is wrong, and what to do. A person pastes the fix, and the host chose the name."""
    quoted = shlex.quote(now)
    return (
        f"NIC {netdev} is now called {now}",
        "take away what names it so (a rule in /etc/udev/rules.d, a .link file in /etc/systemd/network, set-name in "
        f"netplan); at once: sudo ip link set {quoted} down && sudo ip link set {quoted} name {netdev} && sudo ip "
        f"link set {netdev} up",
    )
