# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every topology with every executor has its files, or is refused with the reason that is true."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleError
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import TOPOLOGIES

from tests.unit import rendered_hosts

#: topology, hosts, more variables; how many ports the head has a planned address on
CLUSTERS: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "direct": ("direct", "ab", {}, 2),
    "direct, two cages": ("direct", "ab", {"fabric_cages": [0, 1]}, 4),
    "switch": ("switch", "abc", {}, 2),
    "switch, two cages": ("switch", "abcd", {"fabric_cages": [0, 1]}, 4),
    "ring of three": ("ring", "abc", {}, 4),
    "ring of four": ("ring", "abcd", {}, 4),
    "ring of five, 100 Gb/s": ("ring", "abcde", {"fabric_speed": 100}, 4),
    "thors, two lanes": ("direct", "tu", {"fabric_lanes": [0, 1]}, 2),
    "thors, switch": ("switch", "tuv", {}, 4),
    "line": ("line", "abc", {}, 2),
    "lan": ("lan", "ab", {}, 0),
}
ROLES = ("roce_network", "ray_node", "vllm_serve")


def rendered(name: str, executor: str) -> dict[str, str]:
    topology, hosts, more, _ports = CLUSTERS[name]
    given = {
        **{"fabric_topology": topology, "vllm_serve_model": "/models/m", "vllm_serve_executor": executor},
        **{"vllm_serve_tensor_parallel_size": 1, "vllm_serve_pipeline_parallel_size": len(hosts)},
        **({} if topology == "lan" else {"fabric_cidr": "10.100.0.0/16"}),
        **more,
    }
    return rendered_hosts.files(given, ROLES, list(hosts), "thor" if "thors" in name else "spark")


def test_no_topology_is_left_out() -> None:
    assert {topology for topology, *_rest in CLUSTERS.values()} == set(TOPOLOGIES)


@pytest.mark.parametrize("executor", ["mp", "ray"])
@pytest.mark.parametrize("name", CLUSTERS)
def test_each_cluster_has_the_files_of_its_executor(name: str, executor: str) -> None:
    if name.startswith("ring of f") and executor == "ray":
        with pytest.raises(AnsibleError, match=r"vllm_serve_executor: ray gives ranks .* Set vllm_serve_executor: mp"):
            rendered(name, executor)
        return
    files = rendered(name, executor)
    config = yaml.safe_load(files["/etc/sparkthor/vllm.yaml"])
    assert config["pipeline-parallel-size"] == len(CLUSTERS[name][1])
    environment = environment_file.parse(files["/etc/sparkthor/fabric.env"])
    assert environment["NCCL_NET"] == (
        "Socket" if {"lan", "line", "thors"} & set(name.replace(",", "").split()) else "IB"
    )
    netplan = yaml.safe_load(files.get("/etc/netplan/40-cx7.yaml", "{network: {ethernets: {}}}"))
    assert len(netplan["network"]["ethernets"]) == CLUSTERS[name][3]
    assert ("/etc/sparkthor/ray.json" in files) is (executor == "ray")
    assert ("/etc/sparkthor/group.json" in files) is (executor == "mp")
    if executor == "mp":
        assert json.loads(files["/etc/sparkthor/group.json"])["command"]


@pytest.mark.parametrize("speed", ["fast", 50, 400])
def test_a_speed_that_no_link_has_is_refused_by_name(speed: Any) -> None:
    given = {"fabric_topology": "direct", "fabric_cidr": "10.100.0.0/16", "fabric_speed": speed}
    with pytest.raises(AnsibleError, match=rf"Nothing was changed: .*\n.*hosts a, b: fabric_speed: '{speed}'"):
        rendered_hosts.files({**given, "vllm_serve_model": "/models/m"}, ROLES)
