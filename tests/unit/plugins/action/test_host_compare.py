# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of ``host_compare``; the host's side answers as told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.action import host_compare
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks, role_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles


@pytest.fixture(autouse=True)
def engine_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests say themselves what the role engine wants."""
    state = host_compare.role_tasks.state
    monkeypatch.setattr(
        host_compare.role_tasks, "state", lambda role, *given: None if role == "engine" else state(role, *given)
    )


def compare(
    monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], answer: dict[str, Any], **variables: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    given = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in variables.items()}
    task_vars = {
        "inventory_hostname": "a",
        "role_path": "/roles/preflight",
        "ansible_facts": {},
        "hostvars": {},
        "ansible_play_role_names": [f"sparkthor.cluster.{role}" for role in ("one", "engine", "two")],
        "ansible_run_tags": ["all"],
        "ansible_skip_tags": [],
        **given,
    }
    task = MagicMock(async_val=0, check_mode=False, diff=False, args=args)
    loader = DataLoader()
    templar = Templar(loader=loader, variables=task_vars)
    action = host_compare.ActionModule(task, MagicMock(), MagicMock(), loader, templar, MagicMock())
    calls: list[dict[str, Any]] = []

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        calls.append(module_args)
        return dict(answer)

    monkeypatch.setattr(action, "_execute_module", execute, raising=False)
    result = action.run(task_vars=task_vars)
    assert templar.available_variables is task_vars, "the task's own variables are back"
    return result, calls


ONE = {"absent": ["{{ role_path }}"]}


@pytest.fixture(autouse=True)
def roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Roles of one, by their names the tasks; each other one has no task."""

    def write(**tasks: list[dict[str, Any]]) -> None:
        for role in ("one", "engine", "two"):
            folder = tmp_path / role / "tasks"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "main.yml").write_text(yaml.safe_dump(tasks.get(role, [])))
        role_tasks.read.cache_clear()

    monkeypatch.setattr(role_tasks, "ROLES", tmp_path)
    monkeypatch.setattr(role_values, "ROLES", tmp_path)
    write()
    return write


def state(**arguments: Any) -> list[dict[str, Any]]:
    return [{"name": "Do it", "sparkthor.cluster.host_state": arguments}]


UNKNOWN = [{"name": "Ask Docker", "ansible.builtin.command": "docker"}]


def test_roles_are_asked_in_one_call_as_in_their_own_tasks(
    monkeypatch: pytest.MonkeyPatch, roles: Callable[..., None], tmp_path: Path
) -> None:
    roles(one=state(**ONE), two=state(**ONE))
    answer = {"converged": ["one", "two"], "drift": ""}
    result, calls = compare(monkeypatch, {"roles": ["one", "two"]}, answer)
    (call,) = calls
    assert [(item["role"], item["arguments"]["absent"]) for item in call["comparisons"]] == [
        ("one", [str(tmp_path / "one")]),
        ("two", [str(tmp_path / "two")]),
    ]
    assert (result["converged"], result["compared"]) == (["one", "two"], ["one", "two"])


def test_files_are_compared_with_their_texts(monkeypatch: pytest.MonkeyPatch, roles: Callable[..., None]) -> None:
    files = [{"path": "/etc/x", "content": "x"}, {"path": "/etc/y", "content": "y", "when": False}]
    roles(one=state(files=files))
    _result, calls = compare(monkeypatch, {"roles": ["one"]}, {"converged": ["one"]})
    assert calls[0]["comparisons"][0]["arguments"]["files"] == files[:1]


def test_what_cannot_be_known_ends_the_comparison(monkeypatch: pytest.MonkeyPatch, roles: Callable[..., None]) -> None:
    roles(one=state(**ONE), engine=UNKNOWN, two=state(**ONE))
    result, calls = compare(monkeypatch, {"roles": ["one", "engine", "two"]}, {"converged": ["one"], "drift": ""})
    assert [item["role"] for item in calls[0]["comparisons"]] == ["one"]
    assert result["compared"] == ["one", "engine", "two"]
    assert result["drift"] == result["unknown"] == "engine: Ask Docker"


def test_a_role_that_wants_nothing_of_the_host_is_named_in_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    _result, calls = compare(monkeypatch, {"roles": ["one"]}, {})
    assert [call["comparisons"] for call in calls] == [[{"role": "one"}]]


def test_all_are_the_roles_of_the_play_in_the_order_of_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play_roles, "IMPORTS", dict.fromkeys(("two", "three", "one"), (frozenset(("network",)),)))
    result, _calls = compare(monkeypatch, {"roles": ["all"]}, {})
    assert result["compared"] == ["two", "one"]


@pytest.mark.parametrize(("executor", "asked"), [("ray", ["ray_info"]), ("mp", [])])
def test_the_head_is_asked_for_all_nodes(monkeypatch: pytest.MonkeyPatch, executor: str, asked: list[str]) -> None:
    monkeypatch.setattr(host_compare.role_tasks, "calls", lambda *_given: [])
    monkeypatch.setattr(host_compare.roles, "ROLES", ())
    given = {"sparkthor_cluster": {"head": "a", "executor": executor}}
    names = ["sparkthor.cluster.ray_node"]
    _result, calls = compare(
        monkeypatch, {"roles": ["ray_node"]}, {"converged": []}, ansible_play_role_names=names, **given
    )
    assert [item["module"] for call in calls for item in call["comparisons"] if "module" in item] == asked


def test_ports_are_probed_without_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"netdev": "p0", "peer": "b", "peer_netdev": "p0"}
    result, calls = compare(monkeypatch, {"probe": {"host": "a", "links": [link]}}, {"probe": {}, "converged": []})
    assert calls[0]["probe"]["links"] == [{**link, "peer_up": False}]
    assert result["compared"] == []


@pytest.mark.parametrize(("forks", "heard"), [(2, ["b"]), (1, None)])
def test_hosts_of_a_switch_are_listened_for_where_all_probe_at_once(
    monkeypatch: pytest.MonkeyPatch, forks: int, heard: list[str] | None
) -> None:
    link = {"netdev": "p0", "peer": "", "subnet": "10.0.0.0/24"}
    fabric = {name: {"links": [link]} for name in "abc"}
    given = {"sparkthor_fabric": fabric, "ansible_play_hosts": ["a", "b"], "ansible_forks": forks}
    answer = {"probe": {}, "converged": []}
    _result, calls = compare(monkeypatch, {"probe": {"host": "a", "links": [link]}}, answer, **given)
    assert calls[0]["probe"]["links"][0].get("hosts") == heard


def test_the_engine_is_a_fact_where_it_is_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(role: str, _calls: Any, variables: dict[str, Any]) -> list[dict[str, Any]]:
        variables["ansible_facts"] = {"sparkthor_engine": {"digest": "d"}}
        return [{"role": role, "module": "engine_venv", "arguments": {}}]

    monkeypatch.setattr(host_compare.compare, "prepare", prepare)
    for converged, expected in ((["engine"], {"sparkthor_engine": {"digest": "d"}}), ([], None)):
        answer = {"converged": converged, "drift": ""}
        result, _calls = compare(monkeypatch, {"roles": ["engine"]}, answer)
        assert result.get("ansible_facts") == expected


def test_a_role_that_the_tags_leave_out_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    args = {"roles": ["one", "engine"]}
    result, _calls = compare(monkeypatch, args, {}, ansible_run_tags=["network"])
    assert result["compared"] == ["one"]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role two has a plan, made of the variable two_port."""

    def plan(_role: str, known: Any) -> dict[str, Any]:
        if known["two_port"] != 1:
            raise ValueError(f"two_port: {known['two_port']} is not 1")
        return {"files": [{"path": "/etc/x", "content": "port 1"}]}

    monkeypatch.setattr(host_compare.roles, "ROLES", ("two",))
    monkeypatch.setattr(host_compare.roles, "plan", plan)


@pytest.mark.usefixtures("planned")
def test_what_a_later_role_refuses_is_refused_although_an_earlier_one_is_not_known(
    monkeypatch: pytest.MonkeyPatch, roles: Callable[..., None]
) -> None:
    roles(one=UNKNOWN)
    result, calls = compare(monkeypatch, {"roles": ["one", "two"]}, {"drift": ""}, two_port=2)
    assert [call["comparisons"] for call in calls] == [[]]
    assert "Ask Docker" in result["drift"]
    assert result["refused"] == ["two_port: 2 is not 1"]


@pytest.mark.usefixtures("planned")
def test_a_plan_that_stands_is_what_the_comparison_reads(
    monkeypatch: pytest.MonkeyPatch, roles: Callable[..., None]
) -> None:
    # the lookup is not asked a second time: it would find no variables of the role here
    roles(two=[{"name": "Do it", "sparkthor.cluster.host_state": "{{ {'files': __two_plan.files} }}"}])
    answer = {"converged": ["two"], "drift": "", "refused": []}
    result, calls = compare(monkeypatch, {"roles": ["two"]}, answer, two_port=1)
    assert result["refused"] == []
    assert calls[0]["comparisons"][0]["arguments"]["files"][0]["content"] == "port 1"


def test_folders_that_variables_name_are_looked_at_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"converged": [], "drift": "", "refused": ["engine_cache_dir: '/srv/x': it is not a folder; ..."]}
    result, calls = compare(
        monkeypatch, {"roles": ["engine"]}, answer, engine_cache_dir="/srv/x", ray_node_temp_dir="/srv/{{ 'ray' }}"
    )
    assert calls[0]["folders"] == {"engine_cache_dir": "/srv/x", "ray_node_temp_dir": "/srv/ray"}
    assert answer["refused"][0] in result["refused"]


def test_a_host_that_was_renamed_by_hand_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"hostname": "kitchen", "declared": {"hostname": "spark-02"}}
    result, _calls = compare(monkeypatch, {"roles": ["one"]}, {}, ansible_facts={"sparkthor_node": node})
    assert result["renamed"] == "its host name is kitchen; it was spark-02 when site.yml last set the host up"
