# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role roce_network asks for on a host, and what the module makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.filter.fabric_plan import FilterModule as Plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import module_files, role_tasks

from tests.unit.role_state import variables_of

fabric_plan = Plan().filters()["fabric_plan"]
MANAGEMENT = {"a": "192.0.2.1/24", "b": "192.0.2.2/24", "c": "192.0.2.3/24"}


def call(fabric: Any, host: str, **given: Any) -> dict[str, Any]:
    loader = DataLoader()
    known = {**variables_of("roce_network", **given), "sparkthor_fabric": fabric, "inventory_hostname": host}
    # what accepts and who floats is others' to say
    known |= {"__roce_network_floating": [], "roce_network_accept": []}
    calls = role_tasks.calls_that_make_files("roce_network", Templar(loader=loader, variables={}), known)
    assert calls is not None
    [found] = calls
    return found


def links(fabric: Any, host: str) -> list[dict[str, Any]]:
    return list(call(fabric, host)["arguments"]["links"])


def files(fabric: Any, host: str, **given: Any) -> list[dict[str, Any]]:
    return module_files.of_call(call(fabric, host, **given))


def ring() -> dict[str, Any]:
    return dict(fabric_plan(list(MANAGEMENT), "ring", cidr="10.100.0.0/16", management=MANAGEMENT))


def test_ring_host_has_one_peer_on_each_of_its_four_links() -> None:
    found = links(ring(), "b")
    assert len(found) == 4
    assert sorted(peer["host"] for link in found for peer in link["peers"]) == ["a", "a", "c", "c"]
    assert all(len(link["peers"]) == 1 for link in found)


def test_switch_host_has_everybody_on_both_halves() -> None:
    fabric = fabric_plan(["a", "b", "c", "d"], "switch", cidr="10.100.0.0/16")
    assert [[peer["host"] for peer in link["peers"]] for link in links(fabric, "c")] == [["a", "b", "d"]] * 2


def test_no_plan_of_this_host_is_an_error() -> None:
    with pytest.raises(AnsibleError):
        links({"b": {"links": []}}, "a")


def test_network_files() -> None:
    netplan, environment = files(ring(), "b")
    assert (netplan["path"], netplan["mode"]) == ("/etc/netplan/40-cx7.yaml", "0600")
    assert "  ethernets:\n" in netplan["content"]
    assert "renderer" not in netplan["content"]
    assert environment["path"] == "/etc/sparkthor/fabric.env"
    assert "NCCL_SOCKET_IFNAME=" in environment["content"]
    with_renderer = files(ring(), "b", roce_network_renderer="NetworkManager")
    assert "      renderer: NetworkManager\n" in with_renderer[0]["content"]
    assert with_renderer[1]["path"] == "/etc/NetworkManager/conf.d/60-sparkthor-fabric.conf"


def test_a_lan_keeps_its_own_netplan_file() -> None:
    fabric = ring()
    fabric["b"]["topology"] = "lan"
    assert [file["path"] for file in files(fabric, "b")] == ["/etc/sparkthor/fabric.env"]


def test_the_steps_of_a_change_are_told_the_same() -> None:
    """The list stands once; each step adds what it is."""
    tasks = [
        task["sparkthor.cluster.netplan_apply"]
        for task in role_tasks.read(role_tasks.ROLES / "roce_network/tasks/main.yml")
    ]
    asked, changed, confirmed, waited = tasks
    assert changed == {**asked, "confirm": False}
    assert confirmed == {**asked, "outcomes": "__roce_network_change"}
    assert waited["links"] == asked["links"]
