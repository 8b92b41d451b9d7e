# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The judges of the fault table: a miss must show as one."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tools import marked
from tools.faults import __main__ as command
from tools.faults import busy, controller, observe, table
from tools.faults.faults import FAULTS
from tools.faults.site import differing

ENGINE = table.BY_NAME["engine"]
GOOD = table.Run(noticed=4.0, again=100.0, clients=[5.0, 12.0], clean_start=80.0)


def test_every_row_can_be_laid() -> None:
    assert set(FAULTS) == set(table.BY_NAME)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"noticed": 16.0}, "noticed after 16.0 s, allowed 15 s"),
        ({"noticed": None}, "not noticed in 1 of 1 runs"),
        ({"again": 165.0}, "serving again after 165.0 s, allowed 164.0 s"),
        ({"again": None}, "not serving again in 1 of 1 runs"),
        ({"clean_start": 0.0}, "no clean start was measured in the same run"),
        ({"hanging": 1}, "1 clients in flight never got an answer"),
        ({"clients": [3.0, 14.5]}, "a client in flight heard of it after 14.5 s, noticed after 4.0 s"),
        ({"troubles": ["2 ranks on spark-02"]}, "2 ranks on spark-02"),
    ],
)
def test_what_misses_is_said(change: dict, words: str) -> None:
    assert table.misses(ENGINE, [dataclasses.replace(GOOD, **change)]) == ([words] if words else [])


def test_medians_decide_and_one_lost_run_does_not_hide() -> None:
    slow = dataclasses.replace(GOOD, again=900.0)
    assert table.misses(ENGINE, [GOOD, slow, GOOD]) == []
    lost = dataclasses.replace(GOOD, again=None)
    assert table.misses(ENGINE, [GOOD, lost, GOOD]) == ["not serving again in 1 of 3 runs"]
    assert table.misses(ENGINE, []) == ["never run"]


def test_a_dead_watchdog_may_cost_no_request() -> None:
    row = table.BY_NAME["watchdog"]
    assert table.misses(row, [table.Run(noticed=3.0)]) == []
    assert table.misses(row, [table.Run(noticed=3.0, failed=2)]) == ["2 requests failed, none may"]
    assert table.misses(row, [table.Run(noticed=31.0)]) == ["noticed after 31.0 s, allowed 30 s"]


def test_the_table_names_limits_and_misses() -> None:
    text = table.lines({"engine": [GOOD, dataclasses.replace(GOOD, noticed=40.0), GOOD]})
    assert len(text) == 3
    assert "| vLLM's engine core killed | 3 | 80.0 | 4.0 (≤ 15) | 100.0 (≤ 164.0; 100.0, 100.0, 100.0)" in text[2]
    assert text[2].endswith("| yes |")
    assert "NO: noticed after 40.0 s" in table.lines({"engine": [dataclasses.replace(GOOD, noticed=40.0)]})[2]


def test_results_are_kept_and_the_table_goes_between_its_marks(tmp_path: Path) -> None:
    command.keep("engine", [GOOD], tmp_path)
    assert command.kept("engine", tmp_path) == [GOOD]
    document = tmp_path / "doc.md"
    document.write_text(f"before\n{marked.begin(command.PART)}\nformer lines\n{marked.end(command.PART)}\nafter\n")
    command.write_table(document, tmp_path)
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "former lines" not in text
    assert "vLLM's engine core killed" in text


def test_an_answer_that_broke_off_is_no_answer() -> None:
    assert observe.stream_problem('data: {"choices": []}\n\ndata: [DONE]\n\n') == ""
    assert observe.stream_problem('data: {"choices": []}\n\n') == "the stream broke off"
    assert "gone" in observe.stream_problem('data: {"error": {"message": "gone"}}\n\ndata: [DONE]\n')
    assert observe.answer_problem('{"choices": [{"text": "a"}]}') == ""
    assert observe.answer_problem('{"choices": []}') != ""
    assert observe.answer_problem("<html>") == "no JSON: <html>"


def test_requests_that_were_caught_by_a_fault() -> None:
    clients = observe.Clients(observe.Endpoint("127.0.0.1", 1, "k", "m"))
    clients.requests = [
        observe.Request(1.0, 5.0, ok=True),  # over before
        observe.Request(8.0, 12.0, ok=True),  # open, and answered all the same
        observe.Request(9.0, 15.0, error="503"),  # open, failed
        observe.Request(11.0),  # begun before it was noticed, still open
        observe.Request(20.0, 21.0, error="503"),  # begun when it was known
    ]
    caught = clients.caught(10.0, 14.0)
    assert [one.begun for one in caught] == [9.0, 11.0]
    assert clients.first_success(7.0) == 12.0
    assert [one.begun for one in clients.in_flight(10.0)] == [8.0, 9.0]


def test_files_that_differ_include_what_was_left_over() -> None:
    assert differing({"/a": "1", "/b": "2"}, {"/a": "1", "/b": "3", "/.b.tmp": "4"}) == ["/.b.tmp", "/b"]


def test_a_killed_run_holds_only_when_the_next_finishes_and_the_third_changes_nothing(tmp_path: Path) -> None:
    recap = "spark-01 : ok=3 changed=0 unreachable=0\nspark-02 : ok=3 changed=1 unreachable=0\n"
    assert controller.changed("spark-01 : ok=3    changed=2 \n") == {"spark-01": 2}
    kill = controller.Kill("host", 7, 3.5, rc=0, again=0, changed=controller.changed(recap))
    assert kill.changed == {"spark-01": 0, "spark-02": 1}
    assert not kill.holds
    assert dataclasses.replace(kill, changed={"spark-01": 0, "spark-02": 0}).holds
    assert not dataclasses.replace(kill, changed={}).holds
    assert not dataclasses.replace(kill, rc=2, changed={"spark-01": 0}).holds
    controller.keep([kill], tmp_path / "controller.json")
    assert controller.read(tmp_path / "controller.json") == [kill]
    assert controller.last_task("TASK [a : one] ***\nok\nTASK [b : two] ***\n") == "b : two"


def test_a_controller_that_never_begins_is_ended_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "TOP", tmp_path)
    monkeypatch.setattr(controller, "FIRST_TASK", 0.3)
    monkeypatch.setattr(controller.Ground, "command", lambda _self: ["sh", "-c", "echo loading; exec sleep 600"])
    ground = controller.Ground(SimpleNamespace(name="lab"), tmp_path, "")  # type: ignore[arg-type]  # a stand-in
    assert ground.killed_play(0.2) == "loading\n"
    enough = threading.Event()
    enough.set()
    monkeypatch.setattr(controller, "FIRST_TASK", 600.0)
    assert ground.killed_play(600.0, enough) in ("", "loading\n")


METRICS = """vllm:num_requests_waiting{engine="0",model_name="m"} 3.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="1.0"} 2.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="5.0"} 4.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="7.5"} 6.0
vllm:request_prefill_time_seconds_bucket{engine="0",le="+Inf"} 9.0
vllm:request_prefill_time_seconds_count{engine="0"} 9.0
vllm:request_prefill_time_seconds_sum{engine="0"} 60.5
"""


def test_prefills_longer_than_the_deadline_are_counted_from_the_engines_histogram() -> None:
    name = "vllm:request_prefill_time_seconds"
    assert busy.total(METRICS, "vllm:num_requests_waiting") == 3
    assert busy.total(METRICS, f"{name}_sum") == 60.5
    assert busy.longer_than(METRICS, name, 5.0) == 5
    # the bucket that 6 s falls into may hold shorter ones: it does not count
    assert busy.longer_than(METRICS, name, 6.0) == 3
    assert busy.longer_than("", name, 5.0) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, []),
        ({"idle": 2}, ["nobody waited in 2 of 400 samples"]),
        ({"samples": 0}, ["nobody waited in 0 of 0 samples"]),
        ({"longer": 0.0}, ["no prefill took longer than 5 s: nothing was proved"]),
        ({"restarts": {"completion": 1}}, ["restarts: {'completion': 1}"]),
        ({"states": ["serving", "degraded: completion timed out"]}, ["states: ['degraded: completion timed out']"]),
        ({"failed": ["503: x"]}, ["1 requests failed, the first with 503: x"]),
    ],
)
def test_a_false_alarm_shows(change: dict, words: list[str]) -> None:
    states = ["serving", "serving: busy: a completion waited 5 s while the engine's counters moved"]
    good = busy.Busy(30, 5.0, samples=400, longer=30.0, states=states)
    assert busy.judge(dataclasses.replace(good, **change)) == words
