# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is told of its peers' ports before it probes its own.

A link whose both ends were up and that has no carrier will not get one by waiting.  Only the controller has the facts
of both ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def with_peers(links: Sequence[Mapping[str, Any]], hostvars: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The links, each with ``peer_up``: whether the NIC at its other end was up before anything was probed."""
    up = {peer: _up(hostvars, peer) for peer in {link.get("peer") for link in links} if peer}
    return [{**link, "peer_up": link.get("peer_netdev") in up.get(link.get("peer"), ())} for link in links]


def _up(hostvars: Mapping[str, Any], peer: str) -> set[str]:
    facts = (hostvars[peer].get("ansible_facts") or {}) if peer in hostvars else {}
    interfaces = (facts.get("sparkthor_node") or {}).get("interfaces") or []
    return {item["name"] for item in interfaces if item.get("up")}
