# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import node_info
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import (
    clock as _clock,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import (
    kept_nodes,
)

from tests.unit.clock import Clock


@pytest.mark.parametrize(
    ("clock", "offset"), [(99.0, -1.0), (100.0, 0.0), (101.5, 0.0), (102.0, 0.0), (162.5, 60.5), (0.0, -100.0)]
)
def test_only_what_the_call_cannot_explain_counts(clock: float, offset: float) -> None:
    assert _clock.offset(clock, 100.0, 102.0) == offset


@pytest.mark.parametrize(
    ("answer", "offset"),
    [({"ansible_facts": {"sparkthor_node": {"clock": 3600.0}}}, 3600.0), ({"failed": True, "msg": "no python"}, None)],
)
def test_the_facts_say_how_far_it_is_off(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, answer: dict[str, Any], offset: float | None
) -> None:
    monkeypatch.setattr(node_info.ActionBase, "run", lambda *_args, **_kwargs: {})
    monkeypatch.setattr(node_info, "time", clock)
    monkeypatch.setattr(_clock, "time", clock)
    action = object.__new__(node_info.ActionModule)
    action._task = SimpleNamespace(args={})
    monkeypatch.setattr(action, "_execute_module", lambda **_given: answer, raising=False)
    node = action.run().get("ansible_facts", {}).get("sparkthor_node", {})
    assert node.get("clock_offset") == offset


def test_kept_facts_are_returned_without_asking_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(node_info.ActionBase, "run", lambda *_args, **_kwargs: {})
    hostvars = {"a": {"ansible_host": "192.0.2.1", "inventory_dir": "/inventory"}, "b": {}}
    groups = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
    task_vars = {"hostvars": hostvars, "groups": groups, "inventory_hostname": "b"}
    action = object.__new__(node_info.ActionModule)
    action._task = SimpleNamespace(args={"kept": True})
    assert action.run(task_vars=task_vars) == {"changed": False, "kept": False}
    path, _nothing = kept_nodes.of_run(task_vars)
    kept_nodes.write(path, {"a": {"kind": "spark"}, "b": {"kind": "thor"}})
    found = action.run(task_vars=task_vars)
    assert (found["kept"], found["ansible_facts"]) == (True, {"sparkthor_node": {"kind": "thor"}})
    hostvars["a"]["ansible_host"] = "192.0.2.9"
    assert action.run(task_vars=task_vars)["kept"] is False, "another machine may have the name"
