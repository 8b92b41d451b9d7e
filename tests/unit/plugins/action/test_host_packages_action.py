# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible's own installation stands between what was there and what came."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import host_packages

from tests.unit.delivery import Calls, act

ARGUMENTS = {"names": ["nginx"]}


def install(
    monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]], installed: dict[str, Any]
) -> tuple[dict[str, Any], Calls, list[Any]]:
    asked: list[Any] = []

    def builtin(self: Any, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append((module, arguments))
        return dict(installed)

    monkeypatch.setattr(host_packages.ActionModule, "builtin", builtin)
    result, calls = act(host_packages, monkeypatch, ARGUMENTS, answers)
    return result, calls, asked


def test_an_installation_is_noted_before_and_recorded_after(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"changed": False, "packages": []}, {"changed": False, "packages": ["libpcre", "nginx"]}]
    result, calls, asked = install(monkeypatch, answers, {"changed": True, "stdout": "done"})
    assert [call["step"] for call in calls] == ["note", "record"]
    assert asked == [("package", {"name": ["nginx"], "state": "present"})]
    assert (result["changed"], result["packages"]) == (True, ["libpcre", "nginx"])


def test_what_came_with_a_failed_installation_stays_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls, _asked = install(monkeypatch, [{"changed": False}], {"failed": True, "msg": "no such package"})
    assert (result["failed"], result["msg"]) == (True, "no such package")
    assert [call["step"] for call in calls] == ["note"]


def test_without_a_note_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _calls, asked = install(monkeypatch, [{"failed": True, "msg": "the disk is full"}], {"changed": True})
    assert (result["msg"], asked) == ("the disk is full", [])


def test_taking_back_is_the_modules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    result, calls = act(host_packages, monkeypatch, {"state": "absent"}, [{"changed": True, "packages": ["nginx"]}])
    assert result["changed"] is True
    assert [dict(call) for call in calls] == [{"state": "absent"}]
