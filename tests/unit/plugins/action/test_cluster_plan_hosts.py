# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import typing as t
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_plan
from ansible_collections.sparkthor.cluster.plugins.action.cluster_plan import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan

GROUPS = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
B0, B1 = "enp1s0f1np1", "enP2p1s0f1np1"


def world() -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """A plan for two hosts and host variables that agree with it."""
    fabric = fabric_plan(["a", "b"], "direct", "10.100.0.0/24")
    hostvars = {}
    for host, other in (("a", "b"), ("b", "a")):
        nics = [
            {"name": name, "up": True, "carrier": True, "mtu": 1500, "max_mtu": 9978, "addresses": []}
            for name in (B0, B1)
        ]
        ports = {name: {"present": True, "up": True, "carrier": True, "mtu": 1500} for name in (B0, B1)}
        links = [
            {"netdev": name, "device": f"mlx5_{index}", "link_layer": "Ethernet", "rate": 200, "firmware": "28"}
            for index, name in enumerate((B0, B1))
        ]
        hostvars[host] = {
            "ansible_facts": {"sparkthor_node": {"kind": "spark", "kernel": "6.17", "interfaces": nics, "routes": []}},
            "probed": {
                "probe": {
                    "ports": ports,
                    "neighbours": {name: [{"host": other, "netdev": name}] for name in (B0, B1)},
                    "rdma": {"links": links},
                    "netplan": {"findings": []},
                }
            },
        }
    return fabric, hostvars


def run(fabric: dict[str, t.Any], hostvars: dict[str, t.Any], **arguments: t.Any) -> dict[str, t.Any]:
    task = MagicMock(async_val=0, check_mode=False, diff=False)
    task.args = {"stage": "hosts", "fabric": fabric, "probes": "probed", **arguments}
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    return action.run(task_vars={"hostvars": hostvars, "groups": GROUPS})


def test_agreement_returns_the_plan_with_the_real_device_names() -> None:
    fabric, hostvars = world()
    before = copy.deepcopy(fabric)
    result = run(fabric, hostvars)
    assert (result["changed"], result["renamed"]) == (False, True)
    assert result["msg"] == "the facts of 2 hosts agree with the plan"
    assert result["fabric"]["a"]["env"]["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert fabric == before, "the given plan is not touched"
    assert run(result["fabric"], hostvars)["renamed"] is False


def test_every_problem_is_in_one_failure() -> None:
    fabric, hostvars = world()
    for host in "ab":
        hostvars[host]["probed"]["probe"]["ports"][B1]["carrier"] = False
    with pytest.raises(AnsibleActionFail) as caught:
        run(fabric, hostvars)
    message = str(caught.value)
    assert message.startswith("Nothing was changed: 2 problems to fix first.\n  - host a: NIC enP2p1s0f1np1 ")
    assert "\n  - host b: NIC enP2p1s0f1np1 " in message


def test_what_is_only_reported_is_a_warning() -> None:
    fabric, hostvars = world()
    hostvars["b"]["ansible_facts"]["sparkthor_node"]["kernel"] = "6.14"
    with pytest.raises(AnsibleActionFail, match=r"kernel is 6\.14"):
        run(fabric, hostvars)
    result = run(fabric, hostvars, accept=["parity=6.14"])
    assert len(result["warnings"]) == 1


def test_what_a_run_takes_from_somebody_is_told_before_it_starts() -> None:
    fabric, hostvars = world()
    vnc = [{"address": "0.0.0.0", "port": port, "program": "x"} for port in (5900, 9000)]
    for host in "ab":
        hostvars[host]["probed"]["compared"] = ["os_hardening", "firewall"]
        hostvars[host]["probed"]["exposure"] = {"firewall": False, "listeners": vnc, "wifi": {}}
        hostvars[host]["vllm_serve_api_port"] = 9000
    hostvars["b"]["firewall_tcp_ports"] = [5900]
    result = run(fabric, hostvars)
    told = [(item["host"], item["id"], item["value"]) for item in result["findings"]]
    assert told == [("a", "closed_ports", [5900]), ("b", "closed_ports", [9000])], "the API is the head's alone"
    assert len(result["warnings"]) == 2
    wifi = {"netdev": "wlP9s9", "uuid": "6cd4", "name": "Home", "users": ["nvidia"], "asks": True}
    hostvars["a"]["probed"]["exposure"]["wifi"] = wifi
    with pytest.raises(
        AnsibleActionFail, match=r"Nothing was changed: one problem .*\n  - host a: os_hardening_headless"
    ):
        run(fabric, hostvars)
    assert len(run(fabric, hostvars, accept=["wifi"])["warnings"]) == 3


def test_hosts_without_a_probe_are_judged_by_their_facts() -> None:
    fabric, hostvars = world()
    for host in "ab":
        del hostvars[host]["probed"]
    result = run(fabric, hostvars)
    assert result["renamed"] is False


def test_roles_that_are_converged_on_every_host_are_named() -> None:
    fabric, hostvars = world()
    for host in "ab":
        hostvars[host]["probed"].update(converged=["x", "y"], compared=["x", "y"])
    # the hosts were compared with a plan that has other device names in it
    assert run(fabric, hostvars)["converged"] == []
    fabric = run(fabric, hostvars)["fabric"]
    result = run(fabric, hostvars)
    assert (result["converged"], result["nothing_to_do"]) == (["x", "y"], True)
    hostvars["b"]["probed"]["converged"] = ["x"]
    result = run(fabric, hostvars)
    assert (result["converged"], result["nothing_to_do"]) == (["x"], False)


def test_what_roles_refuse_is_said_once_with_its_hosts() -> None:
    # a host may be named after a word of the message
    words = "vllm_serve_listen: 'x' is not an IP address; give addresses of the head"
    assert cluster_plan._placed(words, ["head", "b"]) == f"hosts head, b: {words}"
    assert cluster_plan._placed("a: port 1 is taken", ["a"]) == "a: port 1 is taken"
    assert cluster_plan._placed("host a: no model", ["a"]) == "host a: no model"
