# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.node import NodeReader
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import (
    KINDS,
    asserted_kind,
    assumed_node,
    one_lan,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import ClusterError, plan_cluster


def test_hosts_without_an_address_share_one_subnet_that_is_nobodys_lan():
    found = [assumed_node("spark", number) for number in range(300)]
    addresses = {node["management"]["address"] for node in found}
    assert len(addresses) == 300
    assert len({ipaddress.ip_interface(node["management"]["cidr"]).network for node in found}) == 1
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network("198.18.0.0/15") for address in addresses)


def test_an_address_of_the_inventory_is_kept():
    assert assumed_node("thor", 3, "192.168.7.9")["management"] == {
        "netdev": "enP2p1s0",
        "address": "192.168.7.9",
        "cidr": "192.168.7.9/24",
    }


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'gb200' is not one of spark, thor, generic"):
        assumed_node("gb200", 0)


@pytest.mark.parametrize(("topology", "kind"), [("switch", "spark"), ("lan", "generic")])
def test_what_no_group_names_is_what_the_topology_is_made_of(topology, kind):
    groups = {"cluster": ["a", "t"], "thors": ["t"]}
    assert asserted_kind("a", groups, topology) == kind
    assert asserted_kind("t", groups, topology) == "thor"


def test_a_real_host_has_every_fact_that_is_assumed():
    """A name that only exists here would be a fact that no role may rely on."""
    real = NodeReader(lambda argv: (1, "", "")).read()
    assert set(assumed_node("generic", 0)) - {"assumed"} <= set(real)


def lan_of(*stated: str) -> dict[str, tuple[str, str]]:
    """Control address and subnet by host of a lan that nobody asks."""
    hosts = [f"h{number}" for number in range(len(stated))]
    groups = {"cluster": hosts, "ray_head": hosts[:1], "ray_workers": hosts[1:]}
    nodes = {host: assumed_node("generic", number, stated[number]) for number, host in enumerate(hosts)}
    _cluster, fabric, _warnings = plan_cluster(
        groups, hosts, {host: {"fabric_topology": "lan"} for host in hosts}, nodes
    )
    return {host: (fabric[host]["control_address"], fabric[host]["links"][0]["subnet"]) for host in hosts}


@pytest.mark.parametrize(
    ("stated", "subnet"),
    [
        (["192.168.1.11", "192.168.1.12"], "192.168.1.0/24"),
        (["192.168.0.11", "192.168.1.12"], "192.168.0.0/23"),
        (["10.1.2.3", "10.200.0.1", "10.1.2.4"], "10.0.0.0/8"),
    ],
)
def test_the_addresses_of_a_lan_are_in_one_network(stated, subnet):
    assert list(lan_of(*stated).values()) == [(address, subnet) for address in stated]


def test_where_one_host_is_a_name_no_address_counts():
    lan = lan_of("192.168.1.11", "spark-02.local", "192.168.1.13")
    assert {subnet for _address, subnet in lan.values()} == {"198.18.0.0/15"}
    assert len({address for address, _subnet in lan.values()}) == 3


def test_addresses_that_are_in_no_one_lan_are_refused():
    with pytest.raises(ClusterError, match="a lan is one subnet"):
        lan_of("10.0.0.1", "192.168.0.1")


def test_hosts_that_were_read_are_believed():
    nodes = {"a": assumed_node("generic", 0, "10.0.0.1"), "b": {**assumed_node("generic", 1, "10.9.0.1")}}
    del nodes["b"]["assumed"]
    assert one_lan(nodes) is nodes


@pytest.mark.parametrize("kind", KINDS)
def test_the_assumed_facts_are_enough_for_a_plan(kind):
    hosts = ["a", "b"]
    groups = {"cluster": hosts, "ray_head": ["a"], "ray_workers": ["b"], f"{kind}s": hosts}
    topology = "direct" if kind == "spark" else "lan"
    variables = {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/24"}
    nodes = {host: assumed_node(kind, number) for number, host in enumerate(hosts)}
    cluster, fabric, _warnings = plan_cluster(groups, hosts, dict.fromkeys(hosts, variables), nodes)
    assert cluster["world"] == 2
    assert fabric["a"]["kind"] == kind
