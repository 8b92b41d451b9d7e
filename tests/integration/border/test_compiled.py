# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's steps by which a host gets what another compiled, and that no run ends for a host that fails in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

ENTRY = ["compiled.tar", 7, "7" * 64]
NEED = [{"sha256": "7" * 64, "size": 7, "have": 0}]
#: what each host says when nothing goes wrong: the first gives, the second takes, the third has its own
SAID: dict[str, dict[str, Any]] = {
    "one": {
        "engine_compiled": {"changed": False, "saved": ENTRY},
        "model_copy": {"changed": False, "models": {}},
        "model_fanout": {"changed": False, "parts": {"7" * 64: ["9" * 64]}},
    },
    "two": {
        "engine_compiled": {"changed": True, "files": 3, "bytes": 7},
        "model_copy": {"changed": True, "models": {}, "need": NEED},
        "model_fanout": {"changed": True, "models": {}},
    },
    "three": {},
}


def share(border: Any, *arguments: str, **said: dict[str, Any]) -> str:
    """The output of a play with these steps and one more task."""
    fabric = {name: {"links": [{"address": f"10.100.0.{at}/17"}]} for at, name in enumerate(SAID, 1)}
    hosts = {name: {"__preflight_probe": {"compiled": name != "two"}} for name in SAID}
    cluster = {"hosts": list(SAID), "head": "one"}
    border.inventory(hosts, sparkthor_fabric=fabric, sparkthor_cluster=cluster, model_store_root="/nowhere")
    for host, known in SAID.items():
        border.answers(host, {**known, **said.get(host, {})})
    facts = {
        **{"sparkthor_node": {"kind": "spark", "os": {}}, "sparkthor_engine": {"digest": "3f6f"}},
        "cacheable": True,
    }
    role = {"name": "sparkthor.cluster.engine", "tasks_from": "compiled.yml", "rolespec_validate": False}
    tasks = [
        {"ansible.builtin.set_fact": facts},
        {"ansible.builtin.import_role": role},
        {"ansible.builtin.debug": {"msg": "{{ inventory_hostname }} goes on"}},
    ]
    playbook = border.home / "play.yml"
    play = {"hosts": "all", "gather_facts": False, "any_errors_fatal": True, "tasks": tasks}
    playbook.write_text(yaml.safe_dump([play]), encoding="utf-8")
    output: str = border.play(playbook, *arguments)
    for host in SAID:
        assert f"{host} goes on" in output, output[-6000:]
    assert "failed=1" not in output, output[-6000:]
    return output


def steps(border: Any, host: str) -> list[str]:
    return [call["step"] for call in border.asked(host, "engine_compiled")]


def test_one_gives_and_one_takes(border: Any) -> None:
    output = share(border)
    assert "sparkthor: two: 3 files (7 B) that one compiled" in output
    assert {host: steps(border, host) for host in SAID} == {"one": ["give", "tidy"], "two": ["take"], "three": []}
    started = [json.loads(call["job"]) for call in border.asked("two", "model_fanout") if call["step"] == "start"]
    assert [(job["seconds"], job["patience"], job["upstreams"][0]["node"]) for job in started] == [(240, 20, "one")]
    # who has no part in it is asked nothing
    assert border.asked("three", "model_fanout") == []
    assert "rescued=1" not in output


def test_check_mode_says_who_would_take_what(border: Any) -> None:
    output = share(border, "--check")
    assert "sparkthor: two: would take what one compiled" in output
    assert {host: steps(border, host) for host in SAID} == {"one": ["tidy"], "two": [], "three": []}
    assert border.asked("two", "model_copy") == []


@pytest.mark.parametrize(
    ("host", "module"),
    [("one", "engine_compiled"), ("two", "model_copy"), ("two", "model_fanout"), ("two", "engine_compiled")],
)
def test_the_run_goes_on_whoever_fails(border: Any, host: str, module: str) -> None:
    output = share(border, **{host: {module: {"failed": True, "msg": "disk on fire"}}})
    assert f"{host}: kernels of another host were not taken, so the first start compiles" in output
    assert "disk on fire" in output
    assert "that one compiled" not in output
    assert steps(border, host)[-1] == "tidy"
