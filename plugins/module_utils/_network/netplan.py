# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file of this collection, and what NetworkManager needs beside it."""

from __future__ import annotations

from typing import Any

MARKER = "# Ansible managed: sparkthor.cluster"
#: NetworkManager has no such setting in its profiles
NM_CONF = "/etc/NetworkManager/conf.d/60-sparkthor-fabric.conf"
#: of our profiles among all that could take a NIC: NetworkManager raises the one with the highest
PRIORITY = "999"


def render(links: list[dict[str, Any]], renderer: str = "") -> str:
    """Our netplan file for these links; stable: NICs in the plan's order, keys always in the same order.

    ``ignore-carrier`` keeps the address while the other end of a cable is off, so that what is bound to it stays
    bound and the host may start before its peer.  No renderer unless asked for: the host's default then holds, and a
    renderer set for the whole file would change it for everybody else's NICs too.

    NetworkManager is told more, and then named, since netplan refuses its settings for any other renderer: without them
    a router's advertisement on the fabric gives the host a default route, and somebody's profile for all Ethernet NICs
    takes the NIC when its cable comes back.
    """
    lines = [MARKER, "network:", "  version: 2", "  ethernets:"]
    for link in links:
        lines.append(f"    {link['netdev']}:")
        if renderer:
            lines.append(f"      renderer: {renderer}")
        lines += [
            "      dhcp4: false",
            "      dhcp6: false",
            "      accept-ra: false",
            "      link-local: []",
            "      optional: true",
            "      ignore-carrier: true",
        ]
        if link.get("mtu"):
            lines.append(f"      mtu: {link['mtu']}")
        lines += ["      addresses:", f"        - {link['address']}"]
        if renderer == "NetworkManager":
            lines += [
                "      networkmanager:",
                "        passthrough:",
                f'          connection.autoconnect-priority: "{PRIORITY}"',
                "          ipv6.method: disabled",
            ]
    return "\n".join(lines) + "\n"


def files(path: str, links: list[dict[str, Any]], renderer: str) -> dict[str, dict[str, Any] | None]:
    """All files that we want for these links; None is one that must not be there.

    NetworkManager by itself takes the address away six seconds after the carrier is lost, and gives none to a NIC that
    never had one.
    """
    devices = ",".join(f"interface-name:{link['netdev']}" for link in links)
    settings = f"{MARKER}\n[device-sparkthor-fabric]\nmatch-device={devices}\nignore-carrier=yes\n"
    owner = {"uid": 0, "gid": 0}
    return {
        path: {"content": render(links, renderer), "mode": 0o600, **owner},
        NM_CONF: {"content": settings, "mode": 0o644, **owner} if renderer == "NetworkManager" else None,
    }


def is_ours(content: str) -> bool:
    """Whether a file carries our marker as its first line."""
    return content.split("\n", 1)[0].strip() == MARKER
