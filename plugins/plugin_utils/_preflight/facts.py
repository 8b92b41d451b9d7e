# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks before a run read of plan and facts."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import SPARK_NETDEVS, THOR_NETDEVS

Node = Mapping[str, t.Any]
Plan = Mapping[str, t.Any]


def interfaces_of(node: Node) -> dict[str, Mapping[str, t.Any]]:
    return {link["name"]: link for link in node.get("interfaces", ())}


def cage_name(netdev: str) -> str:
    place = SPARK_NETDEVS.get(netdev)
    if netdev in THOR_NETDEVS:
        return f"lane {THOR_NETDEVS[netdev]} of the QSFP cage"
    return (
        f"cage {place[0]} ({'next to the RJ45 port' if place[0] == 0 else 'away from the RJ45 port'})"
        if place
        else netdev
    )
