# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import fabric_check
from ansible_collections.sparkthor.cluster.plugins.action.fabric_check import ActionModule
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
            "looked": {
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
    task.args = {"fabric": fabric, "probes": "looked", **arguments}
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    return action.run(task_vars={"hostvars": hostvars, "groups": GROUPS})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


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
        hostvars[host]["looked"]["probe"]["ports"][B1]["carrier"] = False
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
    result = run(fabric, hostvars, accept=["parity"])
    assert len(result["warnings"]) == 1


def test_hosts_without_a_probe_are_judged_by_their_facts() -> None:
    fabric, hostvars = world()
    for host in "ab":
        del hostvars[host]["looked"]
    result = run(fabric, hostvars)
    assert result["renamed"] is False


def kept_world() -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """As planned from what an earlier run found, with what each host is now in the same answer as the ports."""
    fabric, hostvars = world()
    for variables in hostvars.values():
        node = variables["ansible_facts"]["sparkthor_node"]
        node.update(clock=1.0, mem_available_bytes=5, serving=True)
        variables["before"] = {"kept": True, "ansible_facts": {"sparkthor_node": copy.deepcopy(node)}}
        node.update(clock=2.0, mem_available_bytes=7)
        variables["looked"]["ansible_facts"] = {"sparkthor_node": node}
    return fabric, hostvars


def test_a_plan_from_kept_facts_holds_where_every_host_is_what_it_was() -> None:
    fabric, hostvars = kept_world()
    result = run(fabric, hostvars, kept="before")
    assert (result["confirmed"], result["renamed"]) == (True, True)
    hostvars["b"]["looked"]["probe"]["ports"][B1]["carrier"] = False
    with pytest.raises(AnsibleActionFail, match=f"host b: NIC {B1}"):
        run(fabric, hostvars, kept="before")


@pytest.mark.parametrize("key", ["kind", "mem_total_bytes", "boot_id", "serving"])
def test_it_does_not_hold_where_one_is_not(key: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, hostvars = kept_world()
    hostvars["b"]["looked"]["ansible_facts"]["sparkthor_node"][key] = "other"
    for planned in ({}, fabric):
        monkeypatch.setattr(ActionModule, "_planned", lambda _self, _vars, _nodes, plan=planned: plan)
        result = run(fabric, hostvars, kept="before")
        assert (result["confirmed"], "fabric" in result) == (False, False)
    assert list(own_cache.iterdir()) == []


def test_what_is_wrong_is_said_at_once_where_the_plan_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cable that was pulled is another fact of the host, and needs no second look at the ports."""
    fabric, hostvars = kept_world()
    hostvars["b"]["looked"]["ansible_facts"]["sparkthor_node"]["boot_id"] = "other"
    hostvars["a"]["looked"]["probe"]["ports"][B1]["carrier"] = False
    monkeypatch.setattr(ActionModule, "_planned", lambda _self, _vars, _nodes: copy.deepcopy(fabric))
    with pytest.raises(AnsibleActionFail, match=f"host a: NIC {B1}"):
        run(fabric, hostvars, kept="before")
    # the ports of another plan were looked at: the second look says what is wrong with this one
    monkeypatch.setattr(ActionModule, "_planned", lambda _self, _vars, _nodes: {})
    assert run(fabric, hostvars, kept="before")["confirmed"] is False


def test_facts_that_cannot_be_planned_are_for_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, hostvars = kept_world()
    hostvars["b"]["looked"]["ansible_facts"]["sparkthor_node"]["boot_id"] = "other"

    def refuse(*_arguments: t.Any) -> None:
        raise fabric_check.ClusterError("no such NIC")

    monkeypatch.setattr(fabric_check, "plan_cluster", refuse)
    assert run(fabric, hostvars, kept="before")["confirmed"] is False


def test_a_host_that_does_not_answer_is_not_what_it_was() -> None:
    fabric, hostvars = kept_world()
    hostvars["b"]["looked"] = {"unreachable": True, "msg": "timed out"}
    assert run(fabric, hostvars, kept="before")["confirmed"] is False


def test_memory_counts_while_a_model_is_to_be_served_and_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric, hostvars = kept_world()
    hostvars["a"]["sparkthor_cluster"] = {"serving": {"model": "m"}}
    assert run(fabric, hostvars, kept="before")["confirmed"] is True
    for variables in hostvars.values():
        for answer in ("before", "looked"):
            variables[answer]["ansible_facts"]["sparkthor_node"]["serving"] = False
    monkeypatch.setattr(ActionModule, "_planned", lambda _self, _vars, _nodes: {})
    assert run(fabric, hostvars, kept="before")["confirmed"] is False
    del hostvars["a"]["sparkthor_cluster"]
    assert run(fabric, hostvars, kept="before")["confirmed"] is True


def test_facts_of_sound_hosts_are_kept_for_the_next_run(own_cache: Path) -> None:
    fabric, hostvars = world()
    run(fabric, hostvars)
    (path,) = (own_cache / "sparkthor" / "nodes").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["a"] == hostvars["a"]["ansible_facts"]["sparkthor_node"]
