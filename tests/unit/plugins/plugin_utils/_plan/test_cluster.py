# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks for hosts that told none."""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import Part
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    plan_cluster,
    plan_parts,
    stand_in_cidrs,
    told_cidrs,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import links_of

from tests.unit.planned_cluster import node, planned

HOSTS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("variables", "known", "expected"),
    [
        # what the inventory says
        ({"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3"}, {}, ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.3/24"]),
        # with the length that another host told
        ({"b": "10.0.0.2", "c": "n"}, {"a": "10.0.0.254/22"}, ["10.0.0.254/22", "10.0.0.2/22", "10.0.3.254/22"]),
        # an address that somebody has is not made up
        ({"b": "10.0.0.254", "c": "n"}, {"a": "10.0.0.253/24"}, ["10.0.0.253/24", "10.0.0.254/24", "10.0.0.252/24"]),
        # nobody knows anything
        ({}, {}, ["192.0.2.254/24", "192.0.2.253/24", "192.0.2.252/24"]),
        # a network without room for a second host, and one that is no IPv4
        ({}, {"a": "100.64.0.7/32"}, ["100.64.0.7/32", "192.0.2.254/24", "192.0.2.253/24"]),
        ({}, {"a": "fd00::7/64"}, ["fd00::7/64", "192.0.2.254/24", "192.0.2.253/24"]),
    ],
)
def test_a_network_for_every_host(variables: dict[str, str], known: dict[str, str], expected: list[str]) -> None:
    hostvars = {host: {"ansible_host": variables.get(host, f"{host}.example.net")} for host in HOSTS}
    found = stand_in_cidrs(HOSTS, hostvars, known)
    assert [found[host] for host in HOSTS] == expected


def test_a_host_without_a_variable_is_known_by_its_name() -> None:
    assert stand_in_cidrs(["10.1.1.1"], {"10.1.1.1": {}}, {}) == {"10.1.1.1": "10.1.1.1/24"}


def test_there_is_room_for_many() -> None:
    hosts = [f"h{number}" for number in range(600)]
    found = stand_in_cidrs(hosts, {host: {} for host in hosts}, {"h0": "10.0.0.1/24"})
    assert len({ipaddress.IPv4Interface(cidr).ip for cidr in found.values()}) == 600


def test_an_address_of_another_nic_says_nothing_about_the_lan() -> None:
    hostvars = {
        host: {"ansible_host": f"10.0.0.{number}", "fabric_lan_nic": "eth9"} for number, host in enumerate("abc")
    }
    found = stand_in_cidrs(HOSTS, hostvars, {"a": "10.9.0.1/24"})
    assert found == {"a": "10.9.0.1/24", "b": "10.9.0.254/24", "c": "10.9.0.253/24"}
    # the same NIC under its name
    assert stand_in_cidrs(HOSTS, hostvars, {"a": "10.0.0.0/24"})["b"] == "10.0.0.1/24"


def test_what_hosts_told_of_the_lan() -> None:
    def told(address: str) -> dict[str, object]:
        addresses = [{"address": address, "family": "inet", "scope": "global"}] if address else []
        management = {"netdev": "eth0", "address": "10.0.0.1", "cidr": "10.0.0.1/24"}
        return {"interfaces": [{"name": "eth9", "addresses": addresses}], "management": management}

    hostvars = {host: {"fabric_topology": "lan", "fabric_lan_nic": "eth9"} for host in "ab"}
    known, lost = told_cidrs(hostvars, {"a": told("10.9.0.1/24"), "b": told("")})
    assert known == {"a": "10.9.0.1/24"}
    assert str(lost["b"]).startswith("fabric_lan_nic of host b is eth9, which has no IPv4 address there; ")


@pytest.mark.parametrize(
    ("topology", "mtu", "told", "asked"),
    [("lan", None, 1466, 1466), ("lan", None, 5, 68), ("lan", None, None, 0), ("lan", 1500, 1466, 1500)],
)
def test_a_lan_asks_of_a_peer_what_its_nic_takes(topology: str, mtu: int | None, told: int | None, asked: int) -> None:
    hosts, first = ["a", "b"], {"fabric_topology": topology, "fabric_mtu": mtu}
    nodes = {host: node(number) for number, host in enumerate(hosts, 1)}
    nodes["b"]["interfaces"] = [{"name": "enP7s7", "mtu": told, "addresses": []}] if told else []
    groups = {"cluster": hosts, "ray_head": ["a"], "ray_workers": ["b"]}
    _cluster, fabric, _warnings = plan_cluster(groups, hosts, dict.fromkeys(hosts, first), nodes)
    ((peer,),) = [link["peers"] for link in links_of(fabric, "a")]
    assert peer["mtu"] == asked


def test_a_serving_group_is_a_cluster_of_its_own_hosts_on_one_fabric() -> None:
    hosts = ["a", "b", "c", "d"]
    _first, whole, fabric, nodes = planned(hosts)
    before = {host: dict(fabric[host]["env"]) for host in hosts}
    hostvars = {host: {"fabric_topology": "switch"} for host in hosts}
    plans = plan_parts([Part("big", ["a", "c", "b"]), Part("small", ["d"])], hostvars, nodes, fabric)
    assert [(plan["group"], plan["head"], plan["workers"], plan["world"]) for plan in plans.values()] == [
        ("big", "a", ["c", "b"], 3),
        ("small", "d", [], 1),
    ]
    assert plans["small"]["head_address"] == fabric["d"]["control_address"] == "10.100.0.4"
    assert plans["small"]["summary"].startswith("small: switch, 1 host (d spark)")
    # each host joins the Ray of its own group; nothing else of its network knows of groups
    assert {host: fabric[host]["env"]["RAY_ADDRESS"] for host in hosts} == {
        **dict.fromkeys("abc", "10.100.0.1:6379"),
        "d": "10.100.0.4:6379",
    }
    for host in hosts:
        assert {**fabric[host]["env"], "RAY_ADDRESS": ""} == {**before[host], "RAY_ADDRESS": ""}
    assert whole["hosts"] == hosts

    # another run plans the same: another group's head is not a head that was replaced
    told = {
        host: {**nodes[host], "declared": {"cluster": plan["id"], "head": plan["head"], "generation": 1}}
        for plan in plans.values()
        for host in plan["hosts"]
    }
    assert plan_parts([Part("big", ["a", "c", "b"]), Part("small", ["d"])], hostvars, told, fabric) == plans


def test_thors_on_cables_of_their_own_are_said_and_planned_as_ranks_over_tcp() -> None:
    hosts = ["t", "u"]
    _first, cluster, fabric, _nodes = planned(hosts, "direct", dict.fromkeys(hosts, "thor"), fabric_lanes=[0])
    assert cluster["summary"].endswith("TCP on every rank: over the lanes of the QSFP cages, for a Thor has no RDMA")
    assert (cluster["profile"], cluster["control"]) == ("tcp", "fabric")
    assert [link["netdev"] for link in fabric["t"]["links"]] == ["mgbe0_0"]
