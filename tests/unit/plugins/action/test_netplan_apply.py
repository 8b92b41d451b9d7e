# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible_collections.sparkthor.cluster.plugins.action import netplan_apply as action
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import base

from tests.unit.clock import Clock

Answer = dict[str, Any] | Exception


class Script(action.ActionModule):
    """The plugin with a host that answers by script."""

    def __init__(self, answers: list[Answer], check: bool = False, args: dict[str, Any] | None = None) -> None:
        self._task = SimpleNamespace(
            action="netplan_apply", args=args or {"links": []}, check_mode=check, run_once=True
        )
        self._connection = SimpleNamespace(reset=lambda: self.log.append("reset"), close=lambda: None)
        self.answers, self.log, self.tokens, self.arguments = answers, [], [], []

    def _module(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        self.log.append(arguments.get("step", "only"))
        self.arguments.append(arguments)
        self.tokens.append(arguments.get("token"))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    for module in (action, deadline):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(base.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})


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
def test_inspecting_needs_no_token(state: str) -> None:
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
        "spark-02: the network change was rolled back by the host: no confirmation within 60 s"
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


# --- all hosts or none ---

HOLD = {"links": [], "confirm": False}
KEEP = {"links": [], "outcomes": "change"}


def keep(outcomes: dict[str, Any], *answers: Answer, hosts: list[str] | None = None) -> tuple[dict[str, Any], Script]:
    script = Script(list(answers), args=dict(KEEP))
    hostvars = {host: {"change": outcome} for host, outcome in outcomes.items()}
    hostvars.update({host: {} for host in hosts or () if host not in outcomes})
    variables = {"inventory_hostname": "spark-02", "hostvars": hostvars, "ansible_play_hosts_all": list(hostvars)}
    return script.run(task_vars=variables), script


HELD = {"changed": True, "held": True, "token": "mine"}
BAD = {"changed": False, "held": False, "msg": "spark-03: the network change was rolled back by the host: lost"}
TAKEN = {"changed": False, "rollback": {"status": "rolled_back", "reason": "another host failed", "steps": []}}


def test_a_proven_change_is_held_with_its_token() -> None:
    result, script = play(STARTED, done("held"), args=dict(HOLD))
    assert script.log == ["start", "reset", "check"]
    assert (result["held"], result["changed"]) == (True, True)
    assert result["token"] == script.tokens[0]


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([STARTED, done("rolled_back", "enP7s7 lost 10.0.0.1/24")], "rolled back by the host: enP7s7 lost"),
        ([{"failed": True, "msg": "somebody's edit is pending"}], "spark-02: somebody's edit is pending"),
        ([LOST, done("unknown")], "spark-02: not reachable: no route to host"),
        ([STARTED, LOST], "not reachable since its network was changed"),
    ],
)
def test_a_failure_is_left_to_the_second_task(answers: list[Answer], words: str) -> None:
    result, _script = play(*answers, args=dict(HOLD))
    assert result["failed"] is False, "or the second task would not run on the others"
    assert (result["held"], result["changed"]) == (False, False)
    assert words in result["msg"]


def test_nothing_to_change_is_nothing_to_hold() -> None:
    result, _script = play({"changed": False, "started": False}, args=dict(HOLD))
    assert "held" not in result
    assert "held" not in play({"changed": True, "deferred": True}, check=True, args=dict(HOLD))[0]


@pytest.mark.parametrize(
    ("hosts", "forks", "seconds"), [(3, 5, 60), (5, 5, 60), (6, 5, 80), (64, 5, 300), (999, 5, 600)]
)
def test_armed_until_the_last_host_is_proven(hosts: int, forks: int, seconds: int) -> None:
    script = Script([STARTED, done("held")], args=dict(HOLD))
    variables = {"ansible_play_hosts": [str(number) for number in range(hosts)], "ansible_forks": forks}
    script.run(task_vars={"inventory_hostname": "spark-02", **variables})
    assert script.arguments[0]["rollback_timeout"] == seconds


def test_all_sound_is_kept_over_a_new_connection_and_counts_once() -> None:
    result, script = keep({"spark-02": HELD, "spark-03": {"skipped": True}}, done("confirmed", verified=True))
    assert script.log == ["reset", "confirm"]
    assert script.tokens == ["mine"]
    assert (result["changed"], result["verified"]) == (False, True)
    assert not result.get("failed")


def test_one_that_failed_takes_all_back() -> None:
    result, script = keep({"spark-02": HELD, "spark-03": BAD}, TAKEN)
    assert script.log == ["reset", "take_back"]
    assert script.arguments[0]["reason"].startswith("another host failed: spark-03")
    assert (result["failed"], result["changed"]) == (True, False)
    assert result["msg"] == (
        "spark-02: its network change was rolled back as well, because spark-03: the network change was rolled back by"
        " the host: lost"
    )


def test_the_one_that_failed_says_why() -> None:
    result, script = keep({"spark-02": {**BAD, "msg": "spark-02: lost"}, "spark-03": HELD}, TAKEN)
    assert script.log == []
    assert (result["failed"], result["msg"]) == (True, "spark-02: lost")


def test_a_host_that_took_no_part_counts_as_failed() -> None:
    result, script = keep({"spark-02": HELD}, TAKEN, hosts=["spark-03"])
    assert script.log == ["reset", "take_back"]
    assert "spark-03 took no part in the change" in result["msg"]


def test_what_cannot_be_taken_back_now_is_left_to_the_timer() -> None:
    result, _script = keep({"spark-02": HELD, "spark-03": BAD}, done("failed", "x"))
    assert "is rolled back when its time is up" in result["msg"]


def test_files_alone_are_written_with_the_others_or_not_at_all() -> None:
    deferred = {**HELD, "deferred": True}
    result, script = keep({"spark-02": deferred, "spark-03": HELD}, {"changed": True, "started": False})
    assert (script.log, result["changed"]) == (["start"], False)
    assert script.arguments[0]["confirm"] is True
    result, script = keep({"spark-02": deferred, "spark-03": BAD}, TAKEN)
    assert script.log == []
    assert result["msg"].startswith("spark-02: nothing was changed, because spark-03")


def test_a_confirmation_that_fails_says_what_the_others_did() -> None:
    result, _script = keep({"spark-02": HELD, "spark-03": HELD}, done("rolled_back", "enP7s7 is down"))
    assert result["failed"] is True
    assert "hosts that were confirmed at the same moment keep theirs, so run this again" in result["msg"]


def test_in_check_mode_there_is_nothing_to_keep() -> None:
    assert play(done("confirmed"), check=True, args=dict(KEEP))[0]["skipped"] is True
