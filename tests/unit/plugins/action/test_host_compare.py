# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's side of ``host_compare``; the host's side answers as told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template
from ansible_collections.sparkthor.cluster.plugins.action import host_compare


def task(role: str) -> Any:
    named = SimpleNamespace(get_name=lambda: f"sparkthor.cluster.{role}", _role_path=f"/roles/{role}")
    return SimpleNamespace(
        _role=named,
        implicit=False,
        evaluate_tags=lambda only, skip, variables: True,
        get_search_path=lambda: [f"/roles/{role}"],
    )


def compare(
    monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], answer: dict[str, Any], **variables: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    monkeypatch.setattr(host_compare.ActionBase, "run", lambda *_args, **_kwargs: {})
    play = SimpleNamespace(tasks=[task("one"), task("engine"), task("two")], only_tags=["all"], skip_tags=[])
    given = {name: trust_as_template(value) if isinstance(value, str) else value for name, value in variables.items()}
    task_vars = {"inventory_hostname": "a", "ansible_facts": {}, "hostvars": {}, **given}
    action = object.__new__(host_compare.ActionModule)
    action._task = SimpleNamespace(args=args, get_play=lambda: play)
    action._loader = DataLoader()
    action._templar = Templar(loader=action._loader, variables=task_vars)
    calls: list[dict[str, Any]] = []

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        calls.append(module_args)
        return dict(answer)

    monkeypatch.setattr(action, "_execute_module", execute, raising=False)
    return action.run(task_vars=task_vars), calls


STATE = "{{ [{'module': 'host_state', 'arguments': {'absent': [role_path]}}] }}"


def test_roles_are_asked_in_one_call_as_in_their_own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"settled": ["one", "two"], "differs": ""}
    result, calls = compare(
        monkeypatch, {"roles": ["one", "two", "three"]}, answer, __one_looks=STATE, __two_looks=STATE
    )
    (call,) = calls
    assert [(look["role"], look["arguments"]["absent"]) for look in call["looks"]] == [
        ("one", ["/roles/one"]),
        ("two", ["/roles/two"]),
    ]
    assert (result["settled"], result["compared"]) == (["one", "two"], ["one", "two"])


def test_what_cannot_be_known_ends_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    wants = "{{ [{'holds': false, 'otherwise': 'Docker has to be asked'}] }}"
    result, calls = compare(
        monkeypatch,
        {"roles": ["one", "engine", "two"]},
        {"settled": ["one"], "differs": ""},
        __one_looks=STATE,
        __engine_looks=wants,
        __two_looks=STATE,
    )
    assert [look["role"] for look in calls[0]["looks"]] == ["one"]
    assert result["compared"] == ["one", "engine", "two"]
    assert result["differs"] == "engine: Docker has to be asked"


def test_a_role_without_looks_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = compare(monkeypatch, {"roles": ["one"]}, {})
    assert not calls
    assert (result["settled"], result["compared"]) == ([], ["one"])
    assert "__one_looks" in result["differs"]


def test_nobody_is_asked_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = compare(monkeypatch, {"roles": ["one"]}, {}, __one_looks="{{ [] }}")
    assert not calls
    assert result["settled"] == ["one"]


def test_ports_are_looked_at_without_roles(monkeypatch: pytest.MonkeyPatch) -> None:
    link = {"netdev": "p0", "peer": "b", "peer_netdev": "p0"}
    result, calls = compare(monkeypatch, {"probe": {"host": "a", "links": [link]}}, {"probe": {}, "settled": []})
    assert calls[0]["probe"]["links"] == [{**link, "peer_up": False}]
    assert result["compared"] == []


def test_the_engine_is_a_fact_where_it_is_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(role: str, looks: Any, host: str, variables: dict[str, Any]) -> list[dict[str, Any]]:
        variables["ansible_facts"] = {"sparkthor_engine": {"digest": "d"}}
        return [{"role": role, "module": "engine_venv", "arguments": {}}]

    monkeypatch.setattr(host_compare.compare, "prepare", prepare)
    for settled, expected in ((["engine"], {"sparkthor_engine": {"digest": "d"}}), ([], None)):
        answer = {"settled": settled, "differs": ""}
        result, _calls = compare(monkeypatch, {"roles": ["engine"]}, answer, __engine_looks="{{ [] }}")
        assert result.get("ansible_facts") == expected


def test_what_a_host_is_comes_with_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"settled": ["one"], "differs": "", "ansible_facts": {"sparkthor_node": {"clock": 0.0, "kind": "spark"}}}
    result, calls = compare(monkeypatch, {"roles": ["one"], "node": 10}, answer, __one_looks=STATE)
    assert calls[0]["node"] == 10
    node = result["ansible_facts"]["sparkthor_node"]
    assert (node["kind"], node["clock_offset"] < -1e9) == ("spark", True)
