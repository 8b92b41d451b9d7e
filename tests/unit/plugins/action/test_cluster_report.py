# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status in its forms, and the diagnosis that a report takes in."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_report

STATUS = {"hosts": {"a": {"reachable": True}}, "problems": []}


def screen(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> tuple[dict[str, Any], list[str]]:
    task = MagicMock(async_val=0, check_mode=False, diff=False, args={"nodes": "read", **arguments}, run_once=True)
    action = cluster_report.ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    monkeypatch.setattr(cluster_report.results, "see", lambda _variables, _nodes: SimpleNamespace(status=STATUS))
    monkeypatch.setattr(cluster_report.screen, "render", lambda _status: "one screen")
    shown: list[str] = []
    monkeypatch.setattr(action, "tell", shown.append)
    outcome: dict[str, Any] = action.run(task_vars={"inventory_hostname": "a"})
    return outcome, shown


def test_each_form_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, shown = screen(monkeypatch)
    assert (outcome["status"], shown, outcome["changed"]) == (STATUS, ["one screen"], False)
    assert json.loads(screen(monkeypatch, format="json")[1][0]) == STATUS
    assert screen(monkeypatch, format="none")[1] == []


def test_a_report_about_nobody_fails_once_it_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(STATUS, "hosts", {"a": {"reachable": False}})
    with pytest.raises(AnsibleActionFail, match="No host could be read"):
        screen(monkeypatch, path=str(tmp_path / "status.json"))
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8")) == STATUS
    assert screen(monkeypatch, format="none")[0]["status"] == STATUS


def test_the_status_goes_into_a_file_as_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    screen(monkeypatch, path=str(tmp_path / "status.json"))
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8")) == STATUS


def test_a_part_of_the_status_is_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, shown = screen(monkeypatch, format="json", query="hosts.a.reachable")
    assert outcome["picked"] is True
    assert len(shown) == 1


def test_a_diagnosis_is_taken_in_where_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "doctor.json"
    read = cluster_report.ActionModule._doctor
    assert read(str(path), wanted=False) is None
    with pytest.raises(AnsibleActionFail, match=r"report_doctor: .*doctor\.json cannot be read"):
        read(str(path), wanted=True)
    path.write_text('{"findings": [', encoding="utf-8")
    with pytest.raises(AnsibleActionFail, match="cannot be read"):
        read(str(path), wanted=False)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(AnsibleActionFail, match=r"is not a diagnosis of playbooks/doctor\.yml"):
        read(str(path), wanted=False)
    path.write_text('{"findings": []}', encoding="utf-8")
    assert read(str(path), wanted=False) == {"findings": []}


def test_the_newer_diagnosis_is_shown() -> None:
    newest = cluster_report.ActionModule._newest
    kept = {"taken": "2026-11-21T08:00:00Z", "findings": []}
    status = {"serving": {"checks": {"doctor": kept, "drift": None}}}
    for older in (None, {"time": "2026-11-20T08:00:00Z"}, {}):
        assert newest(older, status) == {**kept, "time": kept["taken"]}
    newer = {"time": "2026-11-22T08:00:00Z"}
    assert newest(newer, status) == newer
    for nothing in ({"serving": {}}, {"serving": {"checks": {"doctor": None, "drift": None}}}):
        assert newest(None, nothing) is None
        assert newest(newer, nothing) == newer
