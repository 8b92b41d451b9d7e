# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's wait for a serving group: what it shows, when it gives up, and what it hands on."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.sparkthor.cluster.plugins.action.vllm_service import POLL, ActionModule

LOADING = {"changed": True, "ready": False, "active": True, "invocation": "one", "line": "loading the weights"}
READY = {"changed": False, "ready": True, "active": True, "loaded": "40 s", "invocation": "one"}


def wait(
    monkeypatch: pytest.MonkeyPatch, answers: list[dict[str, Any]], check: bool = False, **given: Any
) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """What the task returns, what the module on the host was asked, and what was shown; no second passes in truth."""
    task = MagicMock(async_val=0, check_mode=check, diff=False, args={"state": "serving", **given}, run_once=False)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    told, asked, now = list(answers), [], [0.0]
    shown: list[str] = []

    def answer(_name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append(dict(arguments))
        return dict(told.pop(0) if len(told) > 1 else told[0])

    monkeypatch.setattr(action, "execute", answer)
    monkeypatch.setattr(action, "_clock", lambda: now[0])
    monkeypatch.setattr(action, "_sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(action, "_show", lambda text, *_more, **_named: shown.append(text))
    monkeypatch.setattr(action, "_terminal", lambda: False)
    outcome: dict[str, Any] = action.run(task_vars={"inventory_hostname": "spark-01"})
    return outcome, asked, shown


def test_what_serves_already_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, asked, shown = wait(monkeypatch, [READY])
    assert (outcome["changed"], outcome["waited"], len(asked), shown) == (False, 0.0, 1, [])
    assert "invocation" not in outcome


def test_a_prediction_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, asked, _shown = wait(monkeypatch, [LOADING], check=True)
    assert (outcome["changed"], len(asked)) == (True, 1)


def test_a_load_is_followed_to_its_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, asked, shown = wait(monkeypatch, [LOADING, LOADING, READY], start=True)
    assert (outcome["changed"], outcome["waited"]) == (True, 2 * POLL)
    assert [one.get("known_invocation") for one in asked] == [None, "", "one"]
    # it is started once
    assert [one.get("start") for one in asked] == [True, None, None]
    assert any("spark-01" in line for line in shown)
    assert "spark-01: serves after 8 s; loaded in 40 s" in shown[-1]


def test_a_load_that_takes_too_long_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, asked, _shown = wait(monkeypatch, [LOADING], timeout=20)
    assert outcome["failed"] is True
    assert outcome["changed"] is True
    assert "20 s" in outcome["msg"]
    assert len(asked) <= 20 / POLL + 2


def test_a_head_that_gives_no_answer_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, _asked, _shown = wait(monkeypatch, [LOADING, {"failed": True, "msg": "timed out"}, READY])
    assert not outcome.get("failed")
    assert outcome["ready"] is True


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (AnsibleConnectionFailure("no route"), {"away": True}),
        (AnsibleError("no become"), {"away": False, "failed": True, "msg": "no become"}),
        (None, {"changed": True}),
    ],
)
def test_a_head_that_is_away_keeps_nobody_from_a_rollback_and_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, expected: dict[str, Any]
) -> None:
    def answer(_name: str, _arguments: dict[str, Any]) -> dict[str, Any]:
        if error:
            raise error
        return {"changed": True}

    task = MagicMock(async_val=0, check_mode=False, args={"state": "told"}, delegate_to="b", ignore_unreachable=True)
    action = ActionModule(task, MagicMock(), MagicMock(), MagicMock(), MagicMock(), MagicMock())
    monkeypatch.setattr(action, "execute", answer)
    outcome = action.run(task_vars={"inventory_hostname": "a"})
    assert outcome.items() >= expected.items()
    told = ["b is away, and its door does not know what is served again: run site.yml when it is back"]
    assert outcome.get("warnings") == (told if outcome.get("away") else None)


def test_answers_that_are_nonsense_are_a_warning_and_a_missed_deadline_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome, _asked, _shown = wait(monkeypatch, [{**READY, "answers_problem": "it repeats one word"}])
    assert outcome["warnings"] == ["spark-01: it repeats one word"]
    late, _asked, _shown = wait(monkeypatch, [{**READY, "deadline_problem": "it took longer than it may"}])
    assert (late["failed"], late["msg"]) == (True, "it took longer than it may")
