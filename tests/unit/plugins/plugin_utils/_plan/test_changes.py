# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Before a run changes who is in a cluster and how it is wired, it says so."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import Part
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.changes import announced
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import plan_cluster, plan_parts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import ServingError, plan_whole

from tests.unit import planned_cluster

MEMBERS = ["a", "b", "c"]


class World:
    """A cluster that was set up, and what its hosts say of it."""

    def __init__(self, hosts: list[str], topology: str = "switch", **variables: Any) -> None:
        _first, self.cluster, self.fabric, nodes = planned_cluster.planned(hosts, topology, **variables)
        for host, node in nodes.items():
            node["declared"] = {
                **{"head": hosts[0], "generation": 1, "seen": 1, "cluster": self.cluster["id"]},
                **{"hosts": sorted(hosts), "topology": topology, "machines": {name: f"id of {name}" for name in hosts}},
            }
            node["machine"] = f"id of {host}"
            node["serving"] = True
            node["interfaces"] = [
                {"name": link["netdev"], "addresses": [{"family": "inet", "address": link["address"]}]}
                for link in self.fabric[host]["links"]
            ]
        self.nodes = nodes

    def run(self, hosts: list[str], topology: str = "switch", **variables: Any) -> list[str]:
        """The lines of the next run."""
        groups = {"cluster": hosts, "ray_head": hosts[:1], "ray_workers": hosts[1:]}
        first = {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/16", **variables}
        virgin = {"machine": "id of a virgin", **planned_cluster.node(9), "interfaces": [], "declared": {}}
        nodes = {host: copy.deepcopy(self.nodes.get(host, virgin)) for host in hosts}
        cluster, fabric, _warnings = plan_cluster(groups, hosts, dict.fromkeys(hosts, first), nodes)
        return announced(cluster, fabric, nodes, first["fabric_cidr"])


def test_a_first_run_and_an_unchanged_cluster_say_nothing() -> None:
    world = World(MEMBERS)
    assert world.run(MEMBERS) == []
    for node in world.nodes.values():
        node["declared"] = {}
    assert world.run(MEMBERS) == []


def test_a_host_more_at_the_end_moves_nobody() -> None:
    lines = World(MEMBERS).run([*MEMBERS, "d"])
    assert lines == ["d is added", "serving stops once, until all hosts are ready and the model is loaded again"]


def test_a_host_less_and_its_place() -> None:
    world = World(MEMBERS)
    lines = world.run(["a", "c"])
    assert lines[0].startswith("b leaves the cluster: nothing is changed on it.")
    assert "teardown.yml --limit b -e teardown_parts=all" in lines[0]
    assert lines[1].startswith("c: enp1s0f1np1 gets 10.100.0.2/17 instead of 10.100.0.3/17, ")
    assert lines[2].startswith("addresses follow the order of the inventory: fabric_reserved keeps")
    kept = world.run(["a", "c"], fabric_reserved=[2])
    assert [line.split(":")[0].split(",")[0] for line in kept] == ["b leaves the cluster", "serving stops once"]
    # the last one leaves nobody behind
    assert len(world.run(["a", "b"])) == 2


def test_another_machine_under_a_known_name() -> None:
    world = World(MEMBERS)
    world.nodes["b"] = {**planned_cluster.node(2), "interfaces": [], "declared": {}}
    lines = world.run(MEMBERS)
    assert lines[0].startswith("b is another machine than before, or was made anew: it gets engine and models")
    assert lines[1] == "b: enp1s0f1np1 gets 10.100.0.2/17, enP2p1s0f1np1 gets 10.100.128.2/17"


def test_renamed_hosts_are_the_machines_that_they_were() -> None:
    """Nobody is told to tear down a machine that serves, and the head has not moved."""
    world = World(MEMBERS)
    world.nodes.update({new: world.nodes.pop(old) for old, new in zip(MEMBERS, ("x", "y", "z"), strict=True)})
    assert world.run(["x", "y", "z"]) == [
        "x is the machine that was called a: it stays, and nothing is torn down",
        "y is the machine that was called b: it stays, and nothing is torn down",
        "z is the machine that was called c: it stays, and nothing is torn down",
        "serving stops once, until all hosts are ready and the model is loaded again",
    ]


def test_a_renamed_host_beside_one_that_leaves() -> None:
    world = World(MEMBERS)
    world.nodes["y"] = world.nodes.pop("b")
    lines = world.run(["a", "y"])
    assert lines[0].startswith("y is the machine that was called b")
    assert lines[1].startswith("c leaves the cluster")
    assert len(lines) == 3
    # another machine as the head is another head, whatever its name
    lines = world.run(["y", "a", "d"])
    assert [line.split(":")[0] for line in lines[:4]] == [
        *("y is the machine that was called b", "d is added", "c leaves the cluster"),
        "the head moves from a to y",
    ]


def test_two_hosts_with_each_other_s_name() -> None:
    world = World(MEMBERS)
    world.nodes["b"], world.nodes["c"] = world.nodes["c"], world.nodes["b"]
    lines = world.run(MEMBERS)
    assert [line.partition(":")[0] for line in lines[:4]] == [
        *("b is the machine that was called c", "c is the machine that was called b"),
        *("b", "c"),
    ]


def test_a_machine_that_was_installed_anew_is_new_although_its_files_were_put_back() -> None:
    world = World(MEMBERS)
    world.nodes["b"]["machine"] = "id of its new installation"
    assert world.run(MEMBERS)[0].startswith("b is another machine than before, or was made anew: it gets engine and")


@pytest.mark.parametrize("machine", ["", "id of a"])
def test_where_machines_cannot_be_told_apart_names_count(machine: str) -> None:
    """A host without a machine-id, and clones of one disk, which preflight names."""
    world = World(MEMBERS)
    for name in MEMBERS:
        world.nodes[name]["machine"] = machine
        world.nodes[name]["declared"]["machines"] = dict.fromkeys(MEMBERS, machine)
    assert world.run(MEMBERS) == []
    world.nodes["y"] = world.nodes.pop("b")
    lines = world.run(["a", "y", "c"])
    assert lines[0] == "y is added"
    assert lines[1].startswith("b leaves the cluster")


def test_a_host_of_which_no_machine_was_declared_says_as_whom_it_was() -> None:
    world = World(MEMBERS)
    for name, node in world.nodes.items():
        node["declared"] = {**node["declared"], "host": name, "machines": {}}
    world.nodes["y"] = world.nodes.pop("b")
    assert world.run(["a", "y", "c"])[0].startswith("y is the machine that was called b")
    # a clone of its disk says so too, and then neither is believed
    world.nodes["z"] = {**world.nodes["y"], "management": planned_cluster.node(9)["management"]}
    lines = world.run(["a", "y", "c", "z"])
    assert [line.split(":")[0] for line in lines[:3]] == ["y is added", "z is added", "b leaves the cluster"]


def test_the_head_moves() -> None:
    lines = World(MEMBERS).run(["b", "a", "c"])
    assert lines[0].startswith("the head moves from a to b: clients need its address")
    assert {line.split(":")[0] for line in lines[1:3]} == {"a", "b"}
    assert not any("fabric_reserved" in line for line in lines)


def test_cables_and_cages() -> None:
    pair = World(["a", "b"], "direct")
    lines = pair.run(["a", "b"], "switch")
    assert lines[0] == "the topology changes from direct to switch"
    assert len(lines) == 2, "a pair that moves behind a switch keeps its addresses"
    moved = pair.run(["a", "b"], "direct", fabric_cage=0)
    assert [line.split(" ")[1] for line in moved[:2]] == ["enp1s0f0np0", "enp1s0f0np0"]


@pytest.mark.parametrize("hosts", ["abc", "abcd"])
def test_a_ring_with_a_host_more_moves_the_cable_that_closes_it_and_says_so(hosts: str) -> None:
    lines = World(list(hosts), "ring").run([*hosts, "z"], "ring")
    assert (len(lines), lines[0]) == (3, "z is added")
    assert re.findall(r"(\S+) gets", lines[1]) == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert lines[1].startswith("a: "), "only the first host's end of that cable gets another address"


def test_a_ring_that_moves_to_a_switch_says_each_address_that_changes() -> None:
    lines = World(MEMBERS, "ring").run(MEMBERS, "switch")
    assert lines[0] == "the topology changes from ring to switch"
    assert [line.split(":")[0] for line in lines[1:-1]] == MEMBERS
    # the first half of b's p1 is host number 2 on either, so it keeps its address with another length
    assert "enp1s0f1np1 gets 10.100.0.2/17 instead of 10.100.0.2/24" in lines[2]


def test_addresses_that_a_nic_only_loses_are_said_too() -> None:
    ring = World(MEMBERS, "ring")
    ring.nodes["a"]["interfaces"] += [
        {"name": "enP7s7", "addresses": [{"family": "inet", "address": "10.100.9.9/24"}]},
        {"name": "enp1s0f0np0", "addresses": [{"family": "inet", "address": "192.168.77.1/24"}]},
    ]
    lines = ring.run(MEMBERS, "switch")
    assert re.findall(r"(\S+) loses (\S+?)(?:,|$)", lines[1]) == [("enP2p1s0f0np0", "10.100.1.1/24")], "not of others"
    assert re.findall(r"(\S+) loses", lines[2]) == ["enp1s0f0np0", "enP2p1s0f0np0"]
    lines = World(MEMBERS, fabric_cages=[1, 0]).run(MEMBERS, "switch")
    assert [line.split(":")[0] for line in lines[:-1]] == MEMBERS
    assert all(re.findall(r"(\S+) loses", line) == ["enp1s0f0np0", "enP2p1s0f0np0"] for line in lines[:-1])
    opened = World(MEMBERS, "ring").run(MEMBERS, "line")
    assert [line.split(",")[0] for line in opened[1:-1]] == [
        "a: enp1s0f1np1 loses 10.100.4.2/24",
        "c: enp1s0f0np0 loses 10.100.4.1/24",
    ]
    to_lan = World(MEMBERS, "ring").run(MEMBERS, "lan")
    assert all(line.count(" loses ") == 4 for line in to_lan[1:-1])


@pytest.mark.parametrize("hosts", [MEMBERS, ["a", "b", "c", "d"]])
def test_a_line_that_is_closed_keeps_its_addresses_in_a_wide_range_alone(hosts: list[str]) -> None:
    wide = World(hosts, "line").run(hosts, "ring")
    assert [line.split(":")[0] for line in wide[1:-1]] == [hosts[0], hosts[-1]]
    assert not any(" instead of " in line or "below a /16" in line for line in wide)
    narrow = World(hosts, "line", fabric_cidr="10.100.0.0/20").run(hosts, "ring", fabric_cidr="10.100.0.0/20")
    assert [line.split(":")[0] for line in narrow[1:-2]] == hosts
    assert narrow[-2].startswith("below a /16 a ring of three or four has larger subnets than a line")


@pytest.mark.parametrize(("topology", "hosts"), [("direct", ["a", "b"]), ("switch", MEMBERS)])
def test_a_second_cage_keeps_the_addresses_of_the_first_with_another_length(topology: str, hosts: list[str]) -> None:
    lines = World(hosts, topology).run(hosts, topology, fabric_cages=[1, 0])
    assert len(lines) == len(hosts) + 1
    for line in lines[:-1]:
        kept = re.findall(r"gets (\S+)/18 instead of (\S+)/17", line)
        assert len(kept) == 2
        assert all(now == before for now, before in kept)
        assert re.findall(r"(\S+) gets [\d.]+/18(?:,|$)", line) == ["enp1s0f0np0", "enP2p1s0f0np0"]


def test_an_idle_cluster_stops_no_serving() -> None:
    world = World(MEMBERS)
    for node in world.nodes.values():
        node["serving"] = False
    assert world.run([*MEMBERS, "d"]) == ["d is added"]


def test_hosts_of_another_cluster_say_nothing_of_this_one() -> None:
    world = World(MEMBERS)
    world.nodes["b"]["declared"] = {**world.nodes["b"]["declared"], "cluster": "other", "generation": 9, "head": "z"}
    assert world.run(MEMBERS) == []


def test_hosts_of_an_earlier_version_know_no_members() -> None:
    world = World(MEMBERS)
    for node in world.nodes.values():
        node["declared"] = {**node["declared"], "hosts": [], "topology": ""}
    assert world.run(["b", "a", "c"])[0].startswith("the head moves from a to b")


def test_serving_groups_are_told_apart() -> None:
    hosts = ["a", "b", "c", "d"]
    first, cluster, fabric, nodes = planned_cluster.planned(hosts, "switch")

    def lines(*parts: tuple[str, list[str]]) -> list[str]:
        plans = plan_parts([Part(*part) for part in parts], dict.fromkeys(hosts, first), nodes, fabric)
        found = [line for plan in plans.values() for line in announced(plan, fabric, nodes)]
        for plan in plans.values():
            for host in plan["hosts"]:
                nodes[host]["declared"] = {
                    **{"head": plan["head"], "generation": plan["generation"], "seen": plan["generation"]},
                    **{"cluster": plan["id"], "hosts": sorted(plan["hosts"]), "topology": "switch"},
                }
        return [line for line in found if " gets " not in line]

    nodes["a"]["declared"] = {
        **{"head": "a", "generation": 1, "seen": 1, "cluster": cluster["id"], "hosts": hosts, "topology": "switch"}
    }
    nodes.update({host: {**nodes[host], "declared": nodes["a"]["declared"]} for host in hosts})
    apart = ("big", ["a", "b"]), ("small", ["c", "d"])
    assert [line.partition(":")[0] for line in lines(*apart)] == ["big", "big", "small", "small", "small"]
    # both have the name of the cluster that they were, and one the higher number
    assert nodes["a"]["declared"]["cluster"] == nodes["c"]["declared"]["cluster"]
    assert lines(*apart) == []
    assert lines(("big", ["a", "b", "d"]), ("small", ["c"])) == [
        "big: d is added",
        "small: d goes to another serving group",
    ]


def test_a_split_that_loses_its_last_worker_is_refused_in_one_message() -> None:
    _first, cluster, _fabric, nodes = planned_cluster.planned(["a", "b"], "switch")
    variables = {"vllm_serve_recipe": "tiny-qwen3", "vllm_serve_pipeline_parallel_size": 3}
    with pytest.raises(
        ServingError, match=r"vllm_serve_pipeline_parallel_size=3: does not divide the cluster's 2 GPUs"
    ) as caught:
        plan_whole(variables, cluster, nodes, lambda *_model: None)
    assert str(caught.value).count("\n") <= 1


def test_a_message_names_one_variable() -> None:
    _first, cluster, _fabric, nodes = planned_cluster.planned(["a", "b"], "switch")
    variables = {"vllm_serve_recipe": "tiny-qwen3", "vllm_serve_args": {"max-model-len": 4096}}
    with pytest.raises(ServingError, match=r"^vllm_serve_args: max-model-len is decided by the role; set "):
        plan_whole(variables, cluster, nodes, lambda *_model: None)


def test_a_group_whose_head_was_renamed_is_compared_with_itself() -> None:
    """Groups that were one cluster share its name, and the other group's declaration may be the newer one."""
    hosts = ["a", "b", "x", "d"]
    first, cluster, fabric, nodes = planned_cluster.planned(hosts, "switch")
    then = {"big": (["a", "b"], 5), "small": (["c", "d"], 3)}
    called = {"x": "c"}
    for members, generation in then.values():
        for host in hosts:
            name = called.get(host, host)
            nodes[host]["machine"] = f"id of {name}"
            if name in members:
                nodes[host]["declared"] = {
                    **{"host": name, "head": members[0], "generation": generation, "seen": generation},
                    **{"cluster": cluster["id"], "hosts": members, "topology": "switch"},
                    "machines": {one: f"id of {one}" for one in members},
                }
    # a worker that came from the other group knows that one alone
    nodes["d"]["declared"] = {**nodes["b"]["declared"]}
    parts = [Part("big", ["a", "b"]), Part("small", ["x", "d"])]
    plans = plan_parts(parts, dict.fromkeys(hosts, first), nodes, fabric)
    lines = [line for line in announced(plans["small"], fabric, nodes) if " gets " not in line]
    assert lines == ["small: x is the machine that was called c: it stays, and nothing is torn down"]


def test_another_executor_is_said_with_its_reason_and_what_stops() -> None:
    world = World(MEMBERS)
    cluster = {**world.cluster, "executor": "mp", "serving": {"executor_why": "its image has no Ray"}}
    assert announced(cluster, world.fabric, world.nodes) == []
    for node in world.nodes.values():
        node["declared"]["executor"] = "ray"
    change, _cost = announced(cluster, world.fabric, world.nodes)
    assert change == "the executor changes from ray to mp (its image has no Ray): Ray stops on all hosts"
    change, _cost = announced({**cluster, "executor": "ray", "serving": {}}, world.fabric, {
        host: {**node, "declared": {**node["declared"], "executor": "mp"}} for host, node in world.nodes.items()
    })  # fmt: skip
    assert change == "the executor changes from mp to ray: the units of the workers stop, and Ray starts"
