# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which stage runs where, and what of the plan a host is given."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action.cluster_verify import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results

PLAN = {
    "nonce": "n",
    "port": 29600,
    "tests": {"a": [{"id": "a-b"}], "b": []},
    "addresses": {"a": ["10.0.0.1"], "b": ["10.0.0.2"]},
    "ranks": {"a": 0, "b": 1},
    "world": 2,
    "master": "10.0.0.1",
    "python": {"a": ["/opt/python"]},
    "in_container": ["b"],
}


def run(monkeypatch: pytest.MonkeyPatch, host: str, run_once: bool = False, **arguments: Any) -> dict[str, Any]:
    """What the module on the host is given."""
    task = MagicMock(async_val=0, check_mode=False, diff=False, args=arguments, run_once=run_once)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    monkeypatch.setattr(action, "_execute_module", lambda **given: {"given": given}, raising=False)
    given: dict[str, Any] = action.run(task_vars={"inventory_hostname": host})["given"]
    assert given["module_name"] == "sparkthor.cluster.cluster_verify"
    return given["module_args"]


def test_a_host_is_given_its_part_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "b", stage="links", plan=PLAN, streams=2) == {
        "stage": "links",
        "streams": 2,
        "plan": {
            **{"nonce": "n", "port": 29600, "world": 2, "master": "10.0.0.1"},
            **{"addresses": ["10.0.0.2"], "tests": [], "rank": 1, "python": [], "container": True},
        },
    }
    assert run(monkeypatch, "a", stage="collective", plan=PLAN)["plan"]["python"] == ["/opt/python"]


def test_the_api_is_measured_without_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "a", stage="serving", port=8000) == {"stage": "serving", "port": 8000, "plan": {}}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stage": "agent"}, "plan: the stage agent needs what the stage plan returned"),
        ({"stage": "plan"}, "nodes: name the variable"),
        ({"stage": "verdict", "nodes": "read"}, "the stage verdict is for all hosts together: add run_once: true"),
    ],
)
def test_what_a_stage_needs_is_said(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(AnsibleActionFail, match=words):
        run(monkeypatch, "a", **arguments)


@pytest.mark.parametrize(("given", "group", "serves"), [({}, "", True), ({"given": {}}, "embed", False)])
def test_the_group_whose_api_is_measured(given: dict[str, Any], group: str, serves: bool) -> None:
    cluster = {"hosts": ["a"], "head": "a", "head_address": "10.0.0.1", "group": "embed", **given}
    serving = {"model": "big", "beside": {"embed": {"model": ""}}}
    facts = {"rdma": {"links": []}, "serving": serving, "versions": {}, "engine": {"runtime": "venv", "path": "/e"}}
    plan = ActionModule._plan(cluster, {"a": {"links": []}}, {"a": facts})
    assert (plan["group"], plan["serves"]) == (group, serves)
    assert ActionModule._plan(cluster, {}, {})["serves"] is False


@pytest.mark.parametrize(
    ("named", "active", "wanted"), [(True, "active", True), (False, "active", False), (False, "inactive", True)]
)
def test_the_gpus_of_a_cluster_that_serves_are_loaded_only_by_name(
    monkeypatch: pytest.MonkeyPatch, named: bool, active: str, wanted: bool
) -> None:
    facts = {
        **{"rdma": {"links": []}, "serving": {"model": ""}, "versions": {}},
        **{"engine": {"runtime": "venv", "path": "/e"}, "units": {"sparkthor-vllm": {"active": active}}},
    }
    cluster = {"hosts": ["a"], "head": "a", "head_address": "10.0.0.1"}
    seen = results.Seen({}, {"a": facts}, cluster, {"a": {"links": []}}, "")
    monkeypatch.setattr(results, "see", lambda _vars, _name: seen)
    task = MagicMock(
        async_val=0,
        check_mode=False,
        diff=False,
        args={"stage": "plan", "nodes": "read", "parts": ["ray", "burn"], "named": named},
        run_once=True,
    )
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    assert action.run(task_vars={"inventory_hostname": "a"})["plan"]["burn"] is wanted
