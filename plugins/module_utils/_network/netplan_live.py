# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ip(8) says of links and routes, and how it differs from what was planned or recorded.

Goes to the host beside :mod:`netplan_job`, so it needs nothing but the standard library.
"""

from __future__ import annotations

import json
import re
from typing import Any


def parse_links(text: str) -> dict[str, dict[str, Any]]:
    """Interfaces by name, of ``ip -j address show``: see :func:`netplan_job.live_links`."""
    links: dict[str, dict[str, Any]] = {}
    for item in json.loads(text or "[]"):
        if "ifname" not in item:
            continue
        flags = item.get("flags") or []
        links[item["ifname"]] = {
            "mtu": int(item.get("mtu", 0)),
            "up": "UP" in flags,
            "carrier": "LOWER_UP" in flags,
            "mac": item.get("address", ""),
            "addresses": {
                f"{entry['local']}/{entry['prefixlen']}": {
                    "scope": entry.get("scope", ""),
                    "dynamic": bool(entry.get("dynamic", False)),
                    "family": entry.get("family", "inet"),
                }
                for entry in item.get("addr_info") or []
                if "local" in entry
            },
        }
    return links


def replayable_routes(text: str) -> list[str]:
    """One line per route, without the kernel's own and without state words."""
    lines = []
    for line in text.splitlines():
        if not line.strip() or line[0].isspace() or " proto kernel" in line or " proto ra" in line:
            continue
        words = [word for word in line.split() if word not in ("linkdown", "dead", "pervasive", "offload")]
        if "expires" in words:
            position = words.index("expires")
            del words[position : position + 2]
        lines.append(" ".join(words))
    return lines


def without_metric(route: str) -> str:
    """The way without its metric: NetworkManager may choose another whenever it raises a profile."""
    return re.sub(r" metric \d+", "", route)


def missing_addresses(before: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]], netdev: str) -> list[str]:
    """Addresses of one NIC that were there before and are not any more (link-local ones make themselves)."""
    gone = now.get(netdev, {}).get("addresses", {})
    return [
        address
        for address, item in before.get(netdev, {}).get("addresses", {}).items()
        if item["scope"] == "global" and address not in gone
    ]


def strange_addresses(plan: dict[str, Any], netdev: str, live: dict[str, dict[str, Any]]) -> list[str]:
    """Addresses of one of our NICs that were not there before; a floating one comes and goes with other hosts."""
    recorded = plan["live"].get(netdev, {}).get("addresses", {})
    return [
        address
        for address in live.get(netdev, {}).get("addresses", {})
        if address not in recorded
        and not address.startswith(("fe80:", "169.254."))
        and address.partition("/")[0] not in plan["floating"]
    ]


def expectation_problems(expect: list[dict[str, Any]], links: dict[str, dict[str, Any]]) -> list[str]:
    """Where the live links differ from the plan, one line each."""
    problems = []
    for link in expect:
        name, live = link["netdev"], links.get(link["netdev"])
        if live is None:
            problems.append(f"{name} does not exist")
            continue
        if not live["up"]:
            problems.append(f"{name} is administratively down")
        if link.get("address") and link["address"] not in live["addresses"]:
            problems.append(f"{name} does not have {link['address']}")
        if link.get("mtu") and live["mtu"] != link["mtu"]:
            problems.append(f"{name} has MTU {live['mtu']} instead of {link['mtu']}")
    return problems
