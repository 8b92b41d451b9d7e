# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role roce_network puts on a host."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.filter.fabric_plan import FilterModule as Plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles

fabric_plan = Plan().filters()["fabric_plan"]
MANAGEMENT = {"a": "192.0.2.1/24", "b": "192.0.2.2/24", "c": "192.0.2.3/24"}
VARIABLES = {
    "roce_network_netplan_path": "/etc/netplan/40-cx7.yaml",
    "roce_network_renderer": "",
    "sparkthor_cluster": {"head": "a"},
}


def plan(role: str, fabric: Any, host: str, **given: Any) -> dict[str, Any]:
    return roles.plan(role, {**VARIABLES, "sparkthor_fabric": fabric, "inventory_hostname": host, **given})


def ring() -> dict[str, Any]:
    return dict(fabric_plan(list(MANAGEMENT), "ring", cidr="10.100.0.0/16", management=MANAGEMENT))


def test_ring_host_has_one_peer_on_each_of_its_four_links() -> None:
    found = plan("roce_network", ring(), "b")["links"]
    assert len(found) == 4
    assert sorted(peer["host"] for link in found for peer in link["peers"]) == ["a", "a", "c", "c"]
    assert all(len(link["peers"]) == 1 for link in found)


def test_switch_host_has_everybody_on_both_halves() -> None:
    fabric = fabric_plan(["a", "b", "c", "d"], "switch", cidr="10.100.0.0/16")
    links = plan("roce_network", fabric, "c")["links"]
    assert [[peer["host"] for peer in link["peers"]] for link in links] == [["a", "b", "d"]] * 2


@pytest.mark.parametrize("fabric", [{}, {"b": {"links": []}}])
@pytest.mark.parametrize("role", ["roce_network"])
def test_no_plan_is_an_error(fabric: dict[str, Any], role: str) -> None:
    with pytest.raises(KeyError) as caught:
        plan(role, fabric, "a")
    assert roles.explained(caught.value) == (
        "the plan of this run lacks 'a'; run the preflight role first, on all hosts"
    )


def test_network_files() -> None:
    netplan, environment = plan("roce_network", ring(), "b")["files"]
    assert (netplan["path"], netplan["mode"]) == ("/etc/netplan/40-cx7.yaml", "0600")
    assert "  ethernets:\n" in netplan["content"]
    assert "renderer" not in netplan["content"]
    assert environment["path"] == "/etc/sparkthor/fabric.env"
    assert "NCCL_SOCKET_IFNAME=" in environment["content"]
    with_renderer = plan("roce_network", ring(), "b", roce_network_renderer="NetworkManager")["files"]
    assert "      renderer: NetworkManager\n" in with_renderer[0]["content"]
    assert with_renderer[1]["path"] == "/etc/NetworkManager/conf.d/60-sparkthor-fabric.conf"


def test_a_lan_keeps_its_own_netplan_file() -> None:
    fabric = ring()
    fabric["b"]["topology"] = "lan"
    assert [file["path"] for file in plan("roce_network", fabric, "b")["files"]] == ["/etc/sparkthor/fabric.env"]
