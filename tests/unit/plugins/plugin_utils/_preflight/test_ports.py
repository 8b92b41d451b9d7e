# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host is told of the other ends of its links."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import ports


def peers_up(links: list[dict[str, Any]], hostvars: dict[str, Any]) -> dict[str, bool]:
    return {item["netdev"]: item["peer_up"] for item in ports.with_peers(links, hostvars)}


def facts(**up: bool) -> dict[str, Any]:
    interfaces = [{"name": name, "up": value} for name, value in up.items()]
    return {"ansible_facts": {"sparkthor_node": {"interfaces": interfaces}}}


def link(netdev: str, peer: str, peer_netdev: str) -> dict[str, Any]:
    return {"netdev": netdev, "peer": peer, "peer_netdev": peer_netdev}


def test_the_state_of_the_other_end_goes_along() -> None:
    links = [link("p0", "b", "p1"), link("q0", "b", "q1"), link("p1", "c", "p0"), link("s0", "", "")]
    hostvars = {"b": facts(p1=True, q1=False), "c": facts(p1=True)}
    assert peers_up(links, hostvars) == {"p0": True, "q0": False, "p1": False, "s0": False}
    assert "peer_up" not in links[0], "the plan itself stays as it is"


def test_a_peer_without_facts_is_not_known_to_be_up() -> None:
    assert peers_up([link("p0", "b", "p1"), link("p1", "c", "p0")], {"b": {}}) == {"p0": False, "p1": False}
