# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import ready

from tests.unit.plugins.module_utils.serving_head import Engine, Systemd, make_service, record, settle


def ensure(tmp_path: Path, config: str, systemd: Systemd, **more: Any) -> ready.Readiness:
    return ready.ensure(
        config_path=config,
        runner=systemd,
        state_path=str(tmp_path / "run/state.json"),
        record_path=str(tmp_path / "record.json"),
        maintenance_paths=(str(tmp_path / "maintenance"),),
        **more,
    )


def test_serving_group_without_a_change_is_ready_at_once(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    record(tmp_path)
    one, _said = make_service(tmp_path, config, systemd)
    one.round()
    settle(one)
    one.round()
    found = ensure(tmp_path, config, systemd, start=True)
    assert (found.ready, found.changed, found.line) == (True, False, "serving")
    assert systemd.calls == []


def test_the_load_that_ended_says_what_took_how_long(engine: Engine, tmp_path: Path, config: str) -> None:
    row = {"engine": "e", "model": "/m", "split": "TP=1 PP=3", "seconds": 61.0, "stages": {"compiling": 40.0}}
    kept = tmp_path / "loads.json"
    kept.write_text(json.dumps({"version": 1, "loads": [row | {"invocation": "aaa"}, row | {"invocation": "zzz"}]}))
    Path(config).write_text(json.dumps({**json.loads(Path(config).read_text()), "loads": str(kept)}))
    found = ensure(tmp_path, config, Systemd())
    assert found.ready
    assert found.loaded == "1 min 01 s: before its first line 40 s, compiling 21 s"


def test_changed_file_restarts_once(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    record(tmp_path)
    (tmp_path / "vllm.yaml").write_text("model: y\n")
    predicted = ensure(tmp_path, config, systemd, start=True, check=True)
    assert (predicted.changed, systemd.calls) == (True, [])
    found = ensure(tmp_path, config, systemd, start=True)
    assert found.changed
    assert found.stale == [str(tmp_path / "vllm.yaml")]
    assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
    count = len(systemd.calls)
    # the new start has not noted its files yet: it will read the ones that lie there
    again = ensure(tmp_path, config, systemd, start=True)
    assert (again.changed, len(systemd.calls)) == (False, count)


def test_a_restart_may_be_another_one(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd, asked = Systemd(), []

    def restart(told: str) -> str:
        asked.append(told)
        return told

    record(tmp_path)
    assert not ensure(tmp_path, config, systemd, start=True, restart=lambda: restart("early")).changed
    (tmp_path / "vllm.yaml").write_text("model: y\n")
    assert ensure(tmp_path, config, systemd, start=True, check=True, restart=lambda: restart("check")).changed
    assert ensure(tmp_path, config, systemd, start=True, restart=lambda: restart("")).changed
    assert (asked, systemd.calls) == ([""], [])
    with pytest.raises(ready.ReadyError, match="cannot be started: 2 requests are still running"):
        ensure(tmp_path, config, systemd, start=True, restart=lambda: restart("2 requests are still running"))


def test_a_rank_elsewhere_with_other_files_restarts_the_group_too(engine: Engine, tmp_path: Path, config: str) -> None:
    group = tmp_path / "group.json"
    Path(config).write_text(json.dumps({**json.loads(Path(config).read_text()), "group_state": str(group)}))
    record(tmp_path)
    slept: list[float] = []

    def report(seconds: float) -> None:
        slept.append(seconds)
        group.write_text(json.dumps({"updated": time.time(), "stale": {"spark-02": ["/etc/sparkthor/vllm.yaml"]}}))

    assert not ensure(tmp_path, config, Systemd(), start=True).changed
    systemd = Systemd()
    found = ensure(tmp_path, config, systemd, start=True, settle=4.0, sleep=report)
    assert slept == [4.0]
    assert found.changed
    assert found.stale == ["/etc/sparkthor/vllm.yaml on spark-02"]
    assert [call for call in systemd.calls if "restart" in call] == [
        ["--no-block", "restart", "sparkthor-vllm.service"]
    ]


def test_stopped_group_is_started_only_when_asked(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.unit.update(ActiveState="inactive", SubState="dead", MainPID="0")
    assert ensure(tmp_path, config, systemd).changed is False
    assert systemd.calls == []
    assert ensure(tmp_path, config, systemd, start=True).changed is True


def test_loading_group_is_not_asked(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    record(tmp_path)
    one, _said = make_service(tmp_path, config, systemd)
    engine.delay = 0.5
    one.round()
    found = ensure(tmp_path, config, systemd, start=True)
    assert (found.ready, found.state) == (False, "loading")
    settle(one)


def test_readiness_is_proved_even_without_a_watchdog(engine: Engine, tmp_path: Path, config: str) -> None:
    record(tmp_path)
    assert ensure(tmp_path, config, Systemd(), start=True).ready
    engine.status = 500
    found = ensure(tmp_path, config, Systemd(), start=True)
    assert not found.ready
    assert "answered 500" in found.line


def test_failed_start_is_explained(engine: Engine, tmp_path: Path, config: str) -> None:
    systemd = Systemd()
    systemd.log = ["vllm: error: unrecognized arguments: --swap-space"]
    systemd.unit.update(ActiveState="activating", SubState="auto-restart", MainPID="0", Result="exit-code")
    record(tmp_path)
    found = ensure(tmp_path, config, systemd)
    assert found.failure["final"] is True
    assert found.failure["invocation"] == "aaa"
    systemd.unit.update(ActiveState="active", SubState="running", InvocationID="bbb", MainPID="9", NRestarts="1")
    engine.status = 500
    seen = ensure(tmp_path, config, systemd, known_invocation="aaa")
    assert seen.failure["invocation"] == "aaa"
    systemd.unit["NRestarts"] = "0"
    assert ensure(tmp_path, config, systemd, known_invocation="aaa").failure is None


def test_virgin_host(tmp_path: Path) -> None:
    systemd = Systemd()
    missing = str(tmp_path / "none.json")
    assert ensure(tmp_path, missing, systemd, start=True, check=True).changed is True
    with pytest.raises(ready.ReadyError, match="vllm_serve role"):
        ensure(tmp_path, missing, systemd, start=True)


def test_deadline_shorter_than_a_completion_is_refused_with_the_latency() -> None:
    assert ready.deadline_problem({"latency": 0.1, "median_latency": 0.2, "deadline": 20.0}) == ""
    assert ready.deadline_problem({"latency": None, "deadline": 20.0}) == ""
    # one slow answer of a busy server is no reason
    assert ready.deadline_problem({"latency": 19.0, "median_latency": 0.2, "deadline": 20.0}) == ""
    problem = ready.deadline_problem({"latency": 2.5, "median_latency": 3.0, "deadline": 4.0})
    assert "vllm_serve_watchdog_deadline: 4 s" in problem
    assert "2.50 s" in problem
    problem = ready.deadline_problem({"latency": 2.5, "median_latency": 3.0, "deadline": 20.0, "interval": 2.0})
    assert "vllm_serve_watchdog_interval: 2 s is too short: a one-token completion takes 2.50 s" in problem
    assert problem.endswith("set at least 10")


def told(engine: Engine, tmp_path: Path, status: int, body: Any, **config: Any) -> dict[str, Any] | None:
    engine.routes["/v1/chat/completions"] = (status, body)
    path = tmp_path / "answers.json"
    path.write_text(json.dumps({"model": "m", "socket": engine.path, "answers": True, **config}))
    return ready.answers(str(path), 10.0)


def said(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"content": text}}]}


def test_a_model_that_answers_is_sound(engine: Engine, tmp_path: Path) -> None:
    found = told(engine, tmp_path, 200, said("blue harbour 4817, 42, 1, 2, 3, 4, 5, 6, 7, 8, Lyon"))
    assert found
    assert (found["asked"], found["right"]) == (4, 3)
    assert ready.answers_problem(found) == ""


def test_nonsense_is_told_with_the_fix(engine: Engine, tmp_path: Path) -> None:
    problem = ready.answers_problem(told(engine, tmp_path, 200, said("!!!")))
    assert problem.startswith("the model answers 0 of 4 simple tasks rightly (")
    assert "moe-backend: marlin" in problem


@pytest.mark.parametrize(
    ("status", "body", "config"),
    [
        (400, "no chat template", {}),
        (200, {"choices": []}, {}),
        (200, said("!!!"), {"answers": False}),
    ],
)
def test_answers_that_cannot_be_known(
    engine: Engine, tmp_path: Path, status: int, body: Any, config: dict[str, Any]
) -> None:
    assert told(engine, tmp_path, status, body, **config) is None
    assert ready.answers_problem(None) == ""


@pytest.mark.parametrize(
    ("more", "marker", "line"),
    [
        ({"on_demand": True}, "", "asleep: it starts when its model is asked for"),
        ({"on_demand_groups": {"embed": {}}}, "asleep: embed serves", "asleep: embed serves"),
        # that group is gone, or a person stopped this one
        ({}, "asleep: embed serves", ""),
        ({"on_demand_groups": {"embed": {}}}, "cables", ""),
    ],
)
def test_a_group_that_sleeps_is_as_it_should_be(
    tmp_path: Path, config: str, more: dict[str, Any], marker: str, line: str
) -> None:
    systemd = Systemd()
    systemd.unit.update(ActiveState="inactive", SubState="dead")
    Path(config).write_text(json.dumps({**json.loads(Path(config).read_text()), **more}))
    if marker:
        (tmp_path / "maintenance").write_text(marker + "\n")
    found = ensure(tmp_path, config, systemd, start=True)
    assert (found.ready, found.changed) == (bool(line), not line)
    assert found.line == line if line else systemd.calls
    one, _said = make_service(tmp_path, config, systemd)
    one.round()
    assert (json.loads((tmp_path / "run/state.json").read_text())["state"] == "asleep") == bool(line)


@pytest.mark.parametrize("stale", [5, ["x"], {"a": 5, "b": None, "c": "text", "d": [1, ["x"]]}])
def test_what_the_serving_user_says_of_other_hosts_is_a_list_of_files_or_nothing(tmp_path: Path, stale: Any) -> None:
    (tmp_path / "group.json").write_text(json.dumps({"updated": time.time(), "stale": stale}))
    assert ready.stale_elsewhere(str(tmp_path / "group.json")) == []


@pytest.mark.parametrize("value", [True, 5, "x", ["x"], {"invocation": ["x"], "median_latency": "x"}])
def test_a_state_of_another_form_is_none(engine: Engine, tmp_path: Path, config: str, value: Any) -> None:
    state = tmp_path / "run/state.json"
    state.parent.mkdir()
    for name in ("memory", "completion", "updated"):
        text = json.dumps({"updated": time.time(), "memory": {"invocation": "zzz", "served": True}, name: value})
        state.write_text(text)
        found = ensure(tmp_path, config, Systemd())
        assert found.ready
        assert ready.deadline_problem({"latency": found.latency, "median_latency": found.median_latency}) == ""
