# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An answer to a module of Ansible's own is as little believed as one to ours."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.sparkthor.cluster.plugins.action.host_builtin import ActionModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench


def said(monkeypatch: pytest.MonkeyPatch, module: str, answer: dict[str, Any]) -> dict[str, Any]:
    task = MagicMock(async_val=0, check_mode=False, diff=False, delegate_to=None, run_once=False)
    task.args = {"module": module, "arguments": {}}
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    monkeypatch.setattr(action, "builtin", lambda _module, _arguments: answer)
    found: dict[str, Any] = action.run(task_vars={"inventory_hostname": "a"})
    return found


@pytest.mark.parametrize(
    ("module", "answer", "field"),
    [
        ("slurp", {"content": 5}, "content"),
        ("slurp", {"content": ["YQ=="]}, "content"),
        ("slurp", {"content": "%%%"}, "content"),
        ("slurp", {"content": "YQ"}, "content"),
        ("command", {"stdout": {"a": 1}}, "stdout"),
        ("command", {"stdout_lines": [1]}, "stdout_lines[0]"),
        ("stat", {"changed": "no"}, "the answer.changed"),
        ("stat", {"stat": {"size": float("nan")}}, "the answer"),
    ],
)
def test_what_nobody_could_read_is_its_own_host_s_failure(
    monkeypatch: pytest.MonkeyPatch, module: str, answer: dict[str, Any], field: str
) -> None:
    found = said(monkeypatch, module, {"changed": False, **answer})
    assert found["failed"] is True
    assert found["msg"].startswith(f"host a: what it answered to {module} cannot be used: {field} is ")


def test_what_was_asked_for_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, answer in (
        ("slurp", {"content": "YQ=="}),
        ("command", {"stdout": "a", "stdout_lines": ["a"], "rc": 0}),
    ):
        assert said(monkeypatch, module, {"changed": False, **answer}).items() >= answer.items()
    # what went wrong there has another form
    assert said(monkeypatch, "slurp", {"failed": True, "msg": "no such file"})["msg"] == "no such file"


def test_no_sample_of_power_is_beyond_all_bounds() -> None:
    text = "1 50+50\n2 nan\n3 inf\n4 1e308+1e308\n5 -1\n6 100\n7 " + "9" * 5000
    assert bench.samples(text) == [(1.0, 100.0), (6.0, 100.0)]
