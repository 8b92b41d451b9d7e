# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""With Ansible's default configuration facts are variables that outrank the inventory; no host's answer makes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.border.lies import FORGED, LIE

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


LOCK = str(TOP / "requirements" / "engine" / "ray-cp312-aarch64.txt")
#: what the hosts registered before one of them pulls, and before a copy from host to host ends
CHECKED: dict[str, Any] = {
    "__engine_installed": {"lacks": "own/vllm:1", "unbuilt": "sha256:" + "0" * 64},
    "__model_store_check": {"models": {}, "need": [{"sha256": "0" * 64, "size": 1, "have": 0}]},
    "__model_store_run": {"run": "0" * 16},
}
#: a call of every module that asks hosts, by which its action gets as far as asking
CALLS: dict[str, dict[str, Any]] = {
    "cluster_verify": {"stage": "serving"},
    "controller_lock": {},
    "engine_compiled": {"step": "tidy"},
    "engine_image": {"image": "own/vllm:1", "requirements": LOCK},
    "engine_image_build": {"recipe": "mine", "script": "true", "steps": [], "image": "own/vllm:1"},
    "engine_image_pull": {"image": "own/vllm:1"},
    "engine_trial": {"command": ["true"]},
    "engine_venv": {"python": "python3", "requirements": LOCK.replace("ray-", "cuda13-")},
    "evidence_info": {"ray": False},
    "fabric_neighbors": {},
    "firewall_apply": {"state": "absent"},
    "host_compare": {"probe": {"host": "one", "links": []}},
    "host_packages": {"state": "absent"},
    "host_state": {"absent": ["/nowhere"]},
    "memory_plan": {},
    "model_copy": {"models": []},
    "model_fanout": {"step": "finish", "models": [], "head": "two"},
    "model_prune": {"models": []},
    "model_switch": {"models": []},
    "nccl_conf": {"restore": True},
    "netplan_apply": {"state": "adopted", "links": []},
    "node_info": {},
    "os_update": {"state": "planned"},
    "ray_info": {},
    "rdma_info": {},
    "store_fetch": {"root": "/nowhere", "sha256": "0" * 64, "size": 1, "url": "http://127.0.0.1:1/x"},
    "store_receive": {"root": "/nowhere", "parts": []},
    "vllm_options": {},
    "vllm_service": {"state": "kept"},
}
BUILTIN: dict[str, dict[str, Any]] = {
    "command": {"argv": ["true"]},
    "file": {"path": "/nowhere", "state": "absent"},
    "lineinfile": {"path": "/nowhere", "line": "x"},
    "package": {"name": "x", "use": "apt"},
    "slurp": {"src": "/etc/hostname"},
    "stat": {"path": "/etc/hostname"},
    "systemd_service": {"name": "x", "state": "stopped"},
    "wait_for_connection": {"timeout": 10},
}
#: the module that an action of ansible.builtin sends, where it has another name
SENDS = {"package": "apt", "wait_for_connection": "ping"}
HOST_BUILTIN = "sparkthor.cluster.host_builtin"
#: ways in which one host's answer becomes the facts of others
WAYS: dict[str, dict[str, Any]] = {
    "its own": {},
    "once for all": {"run_once": True},
    "for another": {"delegate_to": "two"},
    "for itself by another": {"delegate_to": "one", "delegate_facts": True},
    "in a loop": {"loop": [1, 2]},
}


def task(module: str, arguments: dict[str, Any], way: str = "its own") -> dict[str, Any]:
    return {"name": f"{module} {way}", module: arguments, "failed_when": False, "ignore_errors": True, **WAYS[way]}


def builtin(name: str) -> dict[str, Any]:
    return task(HOST_BUILTIN, {"module": name, "arguments": BUILTIN[name]})


def kept(border: Any, **given: Any) -> dict[str, Any]:
    """What the inventory says of the same names, in whose place the forged ones would be."""
    mine = {name: f"inventory's {name}" for name in FORGED if not name.startswith(("inventory_", "sparkthor_"))}
    border.inventory({"one": {}, "two": {}}, **{**mine, **given})
    return {name: given.get(name, value) for name, value in mine.items()}


def assert_none_counts(border: Any, mine: dict[str, Any], facts: tuple[str, ...] = ()) -> None:
    found = border.variables()
    assert sorted(found) == ["one", "two"]
    for host, known in found.items():
        assert known["inventory_hostname"] == host
        assert known["inventory_dir"] == str(border.home / "inventory")
        assert {name: known[name] for name in mine} == mine
        assert set(known["facts"]) <= {*facts, "ansible_local"}, host
        assert "forged" not in known["groups"]


def lie(border: Any, tasks: list[dict[str, Any]]) -> str:
    """Play tasks on hosts that put the forged facts into every answer."""
    facts = {**FORGED, "sparkthor_node": {"kind": "generic", "clock": 1.0}, "sparkthor_engine": {"digest": "x"}}
    said = {**LIE, "ansible_facts": facts}
    for host in border.hosts:
        border.answers(host, {"*": {**said, "since": "now", "table": {}}, "ping": {"ping": "pong"}})
    playbook = border.home / "play.yml"
    play = {"hosts": "all", "gather_facts": False, "become": True, "tasks": tasks}
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    output: str = border.play(playbook, watched=tuple(FORGED))
    assert "unreachable=0" in output, output[-3000:]
    return output


def test_no_answer_of_any_module_becomes_a_variable(border: Any) -> None:
    mine = kept(border, **CHECKED)
    tasks = [task(f"sparkthor.cluster.{name}", arguments) for name, arguments in CALLS.items()]
    tasks += [builtin(name) for name in BUILTIN]
    output = lie(border, tasks)
    for name in (*CALLS, *(SENDS.get(name, name) for name in BUILTIN)):
        assert border.asked("one", name), f"{name} asked nobody: {output[-6000:]}"
    assert_none_counts(border, mine, ("sparkthor_node", "sparkthor_engine"))


def test_no_answer_becomes_a_variable_of_others(border: Any) -> None:
    mine = kept(border)
    calls = {
        "sparkthor.cluster.host_state": CALLS["host_state"],
        "sparkthor.cluster.host_builtin": builtin("slurp")[HOST_BUILTIN],
    }
    lie(border, [task(name, arguments, way) for name, arguments in calls.items() for way in WAYS])
    assert border.asked("two", "slurp")
    assert_none_counts(border, mine)


@pytest.mark.parametrize(
    ("module", "steers"),
    [
        # a folder of the controller that goes to all hosts, and where it goes
        (
            "engine_image",
            {"wheels": {"root": "/etc", "model": {"name": "cron.d", "source": "/root/.ssh", "files": ["id_rsa"]}}},
        ),
        # whom the next steps speak to, by which key, and what the plan is combined with
        ("model_copy", {"seed": "two", "run": "0" * 16, "nodes": {"two": {}}, "revisions": {"mini": "../../etc"}}),
    ],
    ids=["engine_image", "model_copy"],
)
def test_what_steers_later_tasks_is_the_controllers(border: Any, module: str, steers: dict[str, Any]) -> None:
    kept(border)
    for host in border.hosts:
        border.answers(host, {module: {**steers, "models": {}, "told": host}})
    name = f"sparkthor.cluster.{module}"
    play = {"hosts": "all", "gather_facts": False, "tasks": [{name: CALLS[module], "register": "heard"}]}
    playbook = border.home / "play.yml"
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    output = border.play(playbook, watched=("heard",))
    for host, known in border.variables().items():
        assert known["heard"]["told"] == host, output
        assert not (set(steers) - {"revisions"}) & set(known["heard"])
        # those that the controller declares
        assert known["heard"].get("revisions", {}) == {}


def test_every_module_that_asks_hosts_is_among_these() -> None:
    actions = {
        path.stem
        for path in (TOP / "plugins" / "action").glob("*.py")
        if "(ClusterAction)" not in path.read_text(encoding="utf-8")
    }
    # render_files writes on the controller; cluster_secrets reads a secret of the head and passes none of it on;
    # engine_prepare asks by engine_image
    assert actions - {"render_files", "cluster_secrets", "host_builtin", "engine_prepare"} == set(CALLS)
    # a module without an action of ours would be run by Ansible's own
    assert {path.stem for path in (TOP / "plugins" / "modules").glob("*.py")} == {
        path.stem for path in (TOP / "plugins" / "action").glob("*.py")
    }
