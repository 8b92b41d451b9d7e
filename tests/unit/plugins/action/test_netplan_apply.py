# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.sparkthor.cluster.plugins.action import netplan_apply as action

Answer = dict[str, Any] | Exception


class Script(action.ActionModule):
    """The plugin with a host that answers by script."""

    def __init__(self, answers: list[Answer], check: bool = False, args: dict[str, Any] | None = None) -> None:
        self._task = SimpleNamespace(args=args or {"links": []}, check_mode=check)
        self._connection = SimpleNamespace(reset=lambda: self.log.append("reset"), close=lambda: None)
        self.answers, self.log, self.tokens = answers, [], []

    def _module(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self.log.append(arguments.get("step", "only"))
        self.tokens.append(arguments.get("token"))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(action.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(action.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr(action.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})


def play(*answers: Answer, **options: Any) -> tuple[dict[str, Any], Script]:
    script = Script(list(answers), **options)
    return script.run(task_vars={"inventory_hostname": "spark-02"}), script


LOST = AnsibleConnectionFailure("no route to host")


def done(status: str, reason: str = "", **more: Any) -> dict[str, Any]:
    return {"changed": status == "confirmed", "rollback": {"status": status, "reason": reason, "steps": []}, **more}


STARTED = {"changed": True, "started": True, "diff": [{"after": "x"}]}


def test_nothing_to_change_is_one_call() -> None:
    result, script = play({"changed": False, "started": False, "verified": True})
    assert script.log == ["start"]
    assert result == {"changed": False, "verified": True}


@pytest.mark.parametrize("state", ["inspected", "verified", "adopted"])
def test_looking_needs_no_token(state: str) -> None:
    _result, script = play({"changed": False}, args={"state": state, "token": "forged", "step": "confirm"})
    assert (script.log, script.tokens) == (["only"], [None])


def test_confirmation_comes_over_a_new_connection_and_keeps_the_diff() -> None:
    result, script = play(STARTED, done("confirmed", verified=True))
    assert script.log == ["start", "reset", "confirm"]
    assert len(set(script.tokens)) == 1
    assert result["changed"] is True
    assert result["verified"] is True
    assert result["diff"] == [{"after": "x"}]
    assert not result.get("failed")


def test_host_that_took_its_change_back_is_a_failure_with_the_reason() -> None:
    result, script = play(STARTED, LOST, LOST, done("rolled_back", "no confirmation within 60 s"))
    assert result["failed"]
    assert result["changed"] is False
    assert result["msg"] == (
        "spark-02: the network change was taken back by the host: no confirmation within 60 s"
        " (connection meanwhile: no route to host)"
    )
    assert script.log.count("reset") == 3


def test_unreachable_as_a_result_is_tried_again_too() -> None:
    result, _script = play(STARTED, {"unreachable": True, "msg": "gone"}, done("confirmed"))
    assert not result.get("failed")


def test_host_that_never_answers_again_is_named() -> None:
    result, _script = play(STARTED, LOST)
    assert result["failed"]
    assert result["msg"].startswith("spark-02: not reachable since its network was changed")


def test_connection_lost_at_the_start_asks_the_host_whether_it_started() -> None:
    result, _script = play(LOST, done("confirmed"))
    assert result["changed"] is True
    with pytest.raises(AnsibleConnectionFailure, match="no route"):
        play(LOST, done("unknown"))


def test_unreachable_in_check_mode_stays_unreachable_at_once() -> None:
    with pytest.raises(AnsibleConnectionFailure):
        play(LOST, check=True)


def test_a_failing_start_names_the_host_once() -> None:
    assert play({"failed": True, "msg": "pending edit"})[0]["msg"] == "spark-02: pending edit"
    assert play({"failed": True, "msg": "spark-02: pending edit"})[0]["msg"] == "spark-02: pending edit"


def test_a_confirmation_that_breaks_is_a_failure() -> None:
    result, _script = play(STARTED, {"failed": True, "msg": "traceback"})
    assert result["failed"]
    assert result["msg"] == "spark-02: traceback"


def test_orphaned_worker_does_not_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([4711, 1])
    monkeypatch.setattr(action.os, "getppid", lambda: next(parents))
    script = Script([STARTED, done("confirmed")])
    with pytest.raises(AnsibleError, match="controller process is gone"):
        script.run(task_vars={"inventory_hostname": "spark-02"})
    assert script.log == ["start"]


def test_a_connection_that_cannot_be_reset_is_closed() -> None:
    closed: list[bool] = []
    script = Script([STARTED, done("confirmed")])
    script._connection = SimpleNamespace(close=lambda: closed.append(True))
    script.run(task_vars={})
    assert closed == [True]
