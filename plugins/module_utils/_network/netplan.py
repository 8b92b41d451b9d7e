# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file of this collection."""

from __future__ import annotations

from typing import Any

MARKER = "# Ansible managed: sparkthor.cluster"


def render(links: list[dict[str, Any]], renderer: str = "") -> str:
    """Our netplan file for these links; stable: NICs in the plan's order, keys always in the same order.

    ``ignore-carrier`` keeps the address while the other end of a cable is off, so that what is bound to it stays
    bound and the host may start before its peer.  No renderer unless asked for: the host's default then holds, and a
    renderer set for the whole file would change it for everybody else's NICs too.
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
    return "\n".join(lines) + "\n"


def is_ours(content: str) -> bool:
    """Whether a file carries our marker as its first line."""
    return content.split("\n", 1)[0].strip() == MARKER
