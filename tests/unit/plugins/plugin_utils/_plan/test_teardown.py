# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a role puts on a host, the teardown knows; and it does nothing that was not asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.teardown import TeardownSettings, plan_teardown

from tests.unit import role_state
from tests.unit.plugins.plugin_utils._plan.conftest import CLUSTER
from tests.unit.plugins.plugin_utils._plan.vllm_plan import secret_files
from tests.unit.simulated_host import FakeHost, snapshot

#: ways in which hosts differ in what they get
WAYS: list[dict[str, Any]] = [
    {},
    {"inventory_hostname": "b"},
    {"sparkthor_cluster": {**CLUSTER, "executor": "mp"}},
    {
        "sparkthor_cluster": {**CLUSTER, "executor": "mp"},
        **{"inventory_hostname": "b", "vllm_serve_hf_token": "hf_0123456789"},
    },
    {"vllm_serve_tls": "self_signed"},
    {"engine_runtime": "container"},
    {"ray_node_tls": True},
]


def planned(parts: Any = "all", check: bool = False, **given: Any) -> dict[str, Any]:
    return plan_teardown(TeardownSettings(teardown_parts=parts, teardown_acknowledged=True, **given), check=check)


def taken(*parts: str, beside: dict[str, Any] | None = None, **given: Any) -> list[dict[str, Any]]:
    """What ``host_state`` is told, task by task, for these parts or all of those below, as the playbook does it."""
    [*_first, play] = yaml.safe_load((role_state.ROLES.parent / "playbooks/teardown.yml").read_text())
    found: list[dict[str, Any]] = []
    for task in play["tasks"]:
        part = next((name for name in parts or SERVE if f"'{name}' in __teardown.parts" in str(task.get("when"))), "")
        if not part:
            continue
        if role := (task.get("ansible.builtin.import_role") or {}).get("name", "").removeprefix("sparkthor.cluster."):
            more = {"__vllm_serve_groups": planned(serving_beside=beside or {})["serving"]}
            found += role_state.states_of(role, "teardown.yml", **given, **(more if role == "vllm_serve" else {}))
        else:
            found.append(task["sparkthor.cluster.host_state"])
    for state in found:
        Wanted.parse(state)
    return found


#: the parts with which a cluster serves
SERVE = ("serving", "engine", "models", "users")


def of_role(role: str, variables: dict[str, Any]) -> dict[str, Any]:
    """What a role puts on a host, secrets included."""
    if role_tasks.declared(role_state.ROLES / role):
        found = role_state.state(role, secrets=False, **variables)
        return {**found, "files": [*found["files"], *secret_files(variables, secret, role).values()]}
    return dict(roles.plan(role, variables)["state"])


def secret(_name: str) -> str:
    return "a-secret-of-32-characters-0123456"


def together(states: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [item for state in states for item in state.get(name, ())] for name in ("absent", "restore", "units")}


def covered(path: str, gone: set[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in gone)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_the_roles_put_on_a_host_is_taken_back(variables: dict[str, Any], way: dict[str, Any]) -> None:
    state = together(taken())
    gone = {*state["absent"], *state["restore"]}
    stopped = {unit["name"] for unit in state["units"]}
    found = 0
    for role in ("engine", "ray_node", "vllm_serve"):
        made = of_role(role, {**variables, **way})
        for item in made["files"]:
            found += 1
            assert covered(item["path"], gone), item["path"]
        for user in made.get("users", ()):
            assert f"user {user['name']}" in gone
        for group in made.get("groups", ()):
            assert f"group {group['name']}" in gone
        for unit in made.get("units", ()):
            assert unit["name"] in stopped
        # a folder goes with what is in it, except those in which nothing else is left
        empty = {item["path"] for item in made["directories"] if not item["path"].startswith(("/etc/", "/usr/"))}
        assert {path for path in empty if not covered(path, gone)} <= {"/var/lib/sparkthor"}
    assert found > 10


def test_what_restarts_others_is_stopped_before_them() -> None:
    names = [unit["name"] for unit in together(taken("serving"))["units"]]
    # the page restarts what a person asks it to, and the guard switches hosts' power
    assert names[:3] == [f"sparkthor-{name}.service" for name in ("console", "power-guard", "watchdog")]
    assert names.index("sparkthor-vllm.service") < names.index("sparkthor-ray.service")


def test_what_still_brings_something_is_stopped() -> None:
    names = {unit["name"] for unit in together(taken())["units"]}
    assert {"sparkthor-pull.service", "sparkthor-fanout.service"} <= names


def test_docker_is_given_back_without_a_restart_for_files_of_ours() -> None:
    [docker] = [state for state in taken("engine") if "docker.service" in state.get("restore", ())]
    assert docker["restore"] == ["docker.service"]


def test_a_part_takes_nothing_of_another() -> None:
    parts = {name: together(taken(name)) for name in SERVE}
    serving = {*parts["serving"]["absent"], *parts["serving"]["restore"]}
    assert not covered("/var/lib/sparkthor/models", serving)
    assert not covered("/var/lib/sparkthor/cache", serving)
    engine = {*parts["engine"]["absent"], *parts["engine"]["restore"]}
    assert not covered("/etc/sparkthor/fabric.env", engine)
    assert not covered("/var/lib/sparkthor/models", engine)
    assert "/opt/sparkthor" not in parts["models"]["absent"]


def test_folders_elsewhere_go_only_if_we_made_them() -> None:
    folders = {"model_store_root": "/data/models", "engine_cache_dir": "/data/cache", "ray_node_temp_dir": "/data/ray"}
    state = together(taken(**folders))
    assert {*folders.values()} <= set(state["restore"])
    assert not [path for path in state["absent"] if path.startswith("/data")]
    usual = together(taken())
    assert {f"/var/lib/sparkthor/{name}" for name in ("models", "cache", "ray")} <= set(usual["absent"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "teardown_parts: '': it says nothing; choose from serving, "),
        ([], "teardown_parts: '': it says nothing; choose from serving, "),
        ("serving,kernel", "teardown_parts: 'serving,kernel': kernel: there is no such part; choose from serving, "),
        ("engine", "teardown_parts: 'engine': serving, monitoring cannot stay without engine; name them as well"),
        (["users", "serving"], "monitoring, engine cannot stay without users; name them as well"),
    ],
)
def test_a_request_that_cannot_be_met(given: Any, words: str) -> None:
    found = planned(given)
    (problem,) = found["problems"]
    assert words in problem
    assert found["parts"] == []


def test_it_asks_before_and_only_shows_in_check_mode() -> None:
    asked = plan_teardown(TeardownSettings(teardown_parts="serving, monitoring"), check=False)
    (problem,) = asked["problems"]
    assert "takes away serving, monitoring, and the API with them" in problem
    assert "-e teardown_acknowledged=true" in problem
    assert plan_teardown(TeardownSettings(teardown_parts="serving"), check=True)["problems"] == []
    known = {"teardown_parts": "hardening", "teardown_acknowledged": "yes"}
    assert roles.plan("teardown", known) == {**planned("hardening"), "problems": []}


def test_a_host_with_everything_on_it_is_empty_afterwards(variables: dict[str, Any], tmp_path: Path) -> None:
    """The roles' own arguments, and then the teardown's, on a host in a folder."""
    host = FakeHost(tmp_path)
    for folder in ("etc/systemd/system", "etc/tmpfiles.d", "opt", "run", "usr/local/lib", "var/lib"):
        (tmp_path / folder).mkdir(parents=True)
    host.accounts.groups |= {"video", "render"}
    before, accounts = snapshot(tmp_path), (dict(host.accounts.users), set(host.accounts.groups))
    for role in ("engine", "ray_node", "vllm_serve"):
        host.apply(**of_role(role, variables))
    assert len(snapshot(tmp_path)) > len(before) + 30
    # what the engine and the store made
    for name in ("var/lib/sparkthor/cache/vllm", "var/lib/sparkthor/models/tiny", "opt/sparkthor/venvs/1"):
        (tmp_path / name).mkdir(parents=True)
    for state in taken():
        host.apply(**state)
    record = tmp_path / "var/lib/sparkthor/host_state.json"
    assert not record.exists(), record.read_text()
    assert snapshot(tmp_path) == before
    assert (host.accounts.users, host.accounts.groups) == accounts


def test_groups_beside_the_hosts_own_one_go_with_serving() -> None:
    state = together(taken("serving", beside={"embed": {"host": "a"}}))
    stopped = [unit["name"] for unit in state["units"]]
    # the watchdog would start the engine again
    assert stopped.index("sparkthor-watchdog-embed.service") < stopped.index("sparkthor-vllm-embed.service")
    assert "/etc/systemd/system/sparkthor-vllm-embed.service" in state["restore"]
    assert {"/etc/sparkthor/beside", "/var/lib/sparkthor/beside"} <= set(state["absent"])


def test_a_group_that_has_left_the_inventory_goes_as_well() -> None:
    settings = TeardownSettings(teardown_parts="serving", serving_beside={"small": {}})
    groups = plan_teardown(settings, True, ["embed", "small"])["serving"]
    assert [group["name"] for group in groups] == ["small", "embed", ""]
