# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    ray_config,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ray_node
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import installed_engine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import read_settings

GOOD = {"ports": {}, "worker_ports": ray_config.WORKER_PORTS, "cpus": 20, "gpus": 1, "object_store_bytes": 1 << 30}


def test_defaults_are_valid():
    assert ray_node.validate_node(**GOOD, memory_bytes=100 << 30, ray_version="2.60.0") == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ports": {"gcs": 6380}}, "port 6380 is wanted by ray_node_ports.gcs and by ray_node_ports.node_manager"),
        ({"ports": {"gcs": 8000}, "reserved": {"vllm_serve_port": 8000}}, "ray_node_ports.gcs and by vllm_serve_port"),
        ({"ports": {"gcs": 44217}}, "autoscaler metrics"),
        ({"ports": {"gcs": 20500}}, "inside the worker range 20000-20999"),
        ({"ports": {"gcs": 80}}, "not a port from 1024"),
        ({"ports": {"gcs": "6379"}}, "not a port from 1024"),
        ({"ports": {"gsc": 6379}}, "'gsc' is not a port of Ray"),
        ({"reserved": {"vllm_serve_rendezvous_port": 20001}}, "vllm_serve_rendezvous_port) lies inside"),
        (
            {"worker_ports": (20000, 20010)},
            "holds 11 ports, a node with 20 CPUs needs 72: widen it to at least 20000-20071",
        ),
        ({"worker_ports": (20999, 20000)}, "is not a range"),
        ({"worker_ports": (20000,)}, "is not a range"),
        ({"gpus": -1}, "ray_node_num_gpus: -1"),
        ({"gpus": "two"}, "ray_node_num_gpus: 'two'"),
        ({"object_store_bytes": 1024}, "less than Ray's minimum"),
        ({"object_store_bytes": "1G"}, "not a number of bytes"),
        (
            {"object_store_bytes": 2 << 30, "memory_bytes": 1 << 30},
            "2,048 MiB is more than the 1,024 MiB that this host has",
        ),
        ({"temp_dir": "/var/lib/" + "x" * 60}, "ray_node_temp_dir"),
        ({"ray_version": "2.53.1"}, "Ray 2.53.1 is older than 2.54"),
        ({"ray_version": "new"}, "not a version number"),
    ],
)
def test_bad_input_names_variable_and_fix(changes, words):
    problems = ray_node.validate_node(**{**GOOD, **changes})
    assert len(problems) == 1, problems
    assert words in problems[0]


def test_every_port_is_pinned_once():
    head = ray_node.start_arguments(
        head=True,
        address="10.0.0.1",
        gcs_address="10.0.0.1:6379",
        ports={"gcs": 7000},
        worker_ports=(20000, 20999),
        gpus=1,
        object_store_bytes=1 << 30,
        temp_dir="/var/lib/sparkthor/ray",
    )
    worker = ray_node.start_arguments(
        head=False,
        address="10.0.0.2",
        gcs_address="10.0.0.1:7000",
        ports={"gcs": 7000},
        worker_ports=(20000, 20999),
        gpus=2,
        object_store_bytes=1 << 30,
        temp_dir="/var/lib/sparkthor/ray",
        cpus=4,
        resources={"big": 1},
        labels={"kind": "spark"},
    )
    for port in ray_config.PORTS:
        number = 7000 if port.key == "gcs" else port.default
        assert head.count(f"{port.flag}={number}") == 1
        assert worker.count(f"{port.flag}={number}") == (1 if port.where == "all" else 0)
    assert "--head" in head
    assert "--dashboard-host=127.0.0.1" in head
    assert "--address=10.0.0.1:7000" in worker
    assert '--resources={"big":1}' in worker
    assert {"--num-gpus=2", "--num-cpus=4", "--labels=kind=spark"} < set(worker)
    for arguments in (head, worker):
        assert {"--block", "--disable-usage-stats", "--object-store-memory=1073741824"} < set(arguments)
        assert not any(" " in word for word in arguments)


def test_expected_nodes_keep_the_plan_s_order():
    nodes = ray_node.expected_nodes(["b", "a"], {"a": "10.0.0.2", "b": "10.0.0.1"}, {"a": 1, "b": 2}, "b")
    assert nodes == [
        {"name": "b", "address": "10.0.0.1", "gpus": 2, "role": "head"},
        {"name": "a", "address": "10.0.0.2", "gpus": 1, "role": "worker"},
    ]
    assert ray_config.Config.from_mapping({"nodes": nodes}).head_address == "10.0.0.1"


CLUSTER = {"head": "a", "head_address": "10.0.0.1", "hosts": ["a", "b"], "gpus": {"a": 1, "b": 2}}
ENV = {"RAY_ADDRESS": "10.0.0.1:6379"}
FABRIC = {"a": {"control_address": "10.0.0.1", "env": ENV}, "b": {"control_address": "10.0.0.2", "env": ENV}}
ENGINE = installed_engine({"path": "/opt/sparkthor/venv", "digest": "abc"}, "venv", "")


def node_plan(variables, host, facts=None, **given):
    settings = read_settings(ray_node.RaySettings, {**variables, **given})
    return ray_node.node_plan(settings, ENGINE, CLUSTER, FABRIC, host, facts)


def test_node_plan_of_a_worker(variables):
    plan = node_plan(variables, "b", {"cpus": 20, "mem_total_bytes": 100 << 30})
    assert plan["problems"] == []
    assert plan["head"] is False
    assert {"--address=10.0.0.1:6379", "--node-ip-address=10.0.0.2", "--num-gpus=2"} < set(plan["arguments"])
    assert "--temp-dir=/var/lib/sparkthor/ray/t" in plan["arguments"]
    made = ray_config.Config.from_mapping(plan["config"])
    assert (made.head_address, made.node_address, made.expected_gpus, made.user) == (
        "10.0.0.1",
        "10.0.0.2",
        3,
        "sparkthor",
    )
    assert not made.on_head
    assert plan["config"]["inputs"] == {"engine": "abc", "fabric": ENV}
    assert (plan["config"]["worker_ports"], plan["config"]["object_store_memory"]) == ([20000, 20999], 1 << 30)


def test_node_plan_of_the_head(variables):
    plan = node_plan(variables, "a", ray_node_num_cpus=4, ray_node_ports={"gcs": 7000})
    assert plan["head"] is True
    assert {"--head", "--port=7000", "--num-cpus=4"} < set(plan["arguments"])
    assert ray_config.Config.from_mapping(plan["config"]).on_head


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ray_node_ports": {"gcs": 8000}, "vllm_serve_api_port": "8000"}, "b: port 8000 is wanted by"),
        ({"ray_node_worker_port_max": 20010}, "b: ray_node_worker_port_min/max"),
        ({"ray_node_object_store_memory": 1 << 50}, "b: ray_node_object_store_memory"),
        ({"ray_node_temp_dir": ""}, "b: ray_node_temp_dir"),
    ],
)
def test_node_plan_refuses_before_anything_is_rendered(variables, changes, words):
    plan = node_plan(variables, "b", {"cpus": 20, "mem_total_bytes": 1 << 40}, **changes)
    assert plan["problems"][0].startswith(words)
    assert plan["arguments"] == []


def test_ports_of_groups_beside_are_not_rays(variables, monkeypatch):
    given = {"vllm_serve_door_port": 8002, "vllm_serve_group_port": 20005}
    monkeypatch.setitem(CLUSTER, "beside", {"embed": {"given": given}})
    [problem] = node_plan(variables, "a", {"cpus": 20, "mem_total_bytes": 1 << 40})["problems"]
    assert "20005 (vllm_serve_group_port of group embed) lies inside" in problem
