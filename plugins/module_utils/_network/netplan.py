# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The netplan file of this collection: its links out of the plan, and its text."""

from __future__ import annotations

import ipaddress
import re
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


def _subnet(link: dict[str, Any]) -> str:
    """The link's subnet as text; plans carry it, so that nothing has to be worked out for every pair of hosts."""
    return link.get("subnet") or str(ipaddress.ip_interface(link["address"]).network)


def links_of(fabric: dict[str, Any], host: str) -> list[dict[str, Any]]:
    """One host's links with everybody who shares a subnet with them, out of the fabric plan of all hosts."""
    own = [link for link in (fabric.get(host) or {}).get("links") or [] if link.get("address")]
    peers: dict[str, list[dict[str, Any]]] = {_subnet(link): [] for link in own}
    for other, plan in fabric.items():
        if other == host:
            continue
        for link in plan.get("links") or []:
            found = peers.get(_subnet(link)) if link.get("address") else None
            if found is not None:
                address = link["address"].partition("/")[0]
                found.append({"host": other, "address": address, "mtu": link.get("mtu") or 0})
    return [
        {
            "netdev": link["netdev"],
            "address": link["address"],
            "mtu": link.get("mtu") or 0,
            "peers": peers[_subnet(link)],
        }
        for link in own
    ]


def render_environment(variables: dict[str, Any]) -> str:
    """An EnvironmentFile= for systemd: sorted, quoted only where systemd would split or drop something."""
    lines = [MARKER]
    for key in sorted(variables):
        value = str(variables[key])
        if "\n" in value or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
            raise ValueError(f"{key}: not a variable that an environment file can hold")
        if re.search(r"[\s\"'\\#;$`]", value):
            value = '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        lines.append(f"{key}={value}")
    return "\n".join(lines) + "\n"
