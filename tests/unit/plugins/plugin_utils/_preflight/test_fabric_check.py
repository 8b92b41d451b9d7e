# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import time

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import fabric_check
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.fabric_check import check_facts

from tests.unit.plugins.plugin_utils._preflight.planned_world import DEVICES, World


@pytest.mark.parametrize(("topology", "count"), [("direct", 2), ("ring", 3), ("switch", 4), ("lan", 3)])
def test_hosts_as_planned_have_no_problem(topology: str, count: int) -> None:
    world = World(topology, list("abcd")[:count])
    assert world.check() == []
    # a converged host: the planned addresses and their routes are there, which is no overlap with the plan
    for host, entry in world.plan.items():
        for link in entry["links"]:
            if topology != "lan":
                world.interface(host, link["netdev"])["addresses"].append(
                    {"address": link["address"], "family": "inet", "scope": "global"}
                )
                world.nodes[host]["routes"].append(world.route(link["subnet"], "", link["netdev"], "kernel"))
    assert world.check() == []


def test_device_names_for_the_plan() -> None:
    world = World("direct", ["a", "b"])
    assert fabric_check.devices(world.probes)["b"] == DEVICES
    assert fabric_check.devices({"a": {}}) == {"a": {}}


def test_256_hosts_are_judged_within_two_seconds() -> None:
    base = World("switch", ["a", "b"])
    hosts = [f"h{index:03d}" for index in range(256)]
    plan = fabric.fabric_plan(hosts, "switch", "10.96.0.0/16")
    nodes = {host: copy.deepcopy(base.nodes["a"]) for host in hosts}
    started = time.process_time()
    assert check_facts(plan, nodes, dict.fromkeys(hosts, base.probes["a"])) == []
    assert time.process_time() - started < 2
