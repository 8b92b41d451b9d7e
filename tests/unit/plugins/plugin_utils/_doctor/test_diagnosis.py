# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import case as _case
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import checks as _doctor_checks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import (
    diagnosis as _doctor,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit, Log, RuleError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
FIXTURES = TOP / "tests" / "fixtures" / "doctor"
LINES = yaml.safe_load((FIXTURES / "logs.yml").read_text())
RULES = load_rules(_doctor_checks.CHECKS)


def judge(logs: list[Log], profile: str = "roce") -> list[str]:
    case = _case.Case(hosts=[], logs_only=True)
    for log in logs:
        case.serves += _case.log_arguments(log)
    findings, notes = _doctor.diagnose(RULES, _doctor_checks.CHECKS, case, logs, profile, planned=False)
    assert notes == []
    return sorted(finding.rule.id for finding in findings)


ROW = " 17179869184    4294967296     float     sum      -1  1533918   11.20   11.20       0\n"


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("", []),
        ("NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [RO]; OOB enP7s7:192.168.1.11<0>", []),
        ("mpirun -np 2 -x NCCL_IB_HCA=rocep1s0f1 ./all_reduce_perf", []),
        ("NCCL INFO NET/IB : Using [0]rocep1s0f1:1/RoCE [1]roceP2p1s0f1:1/RoCE [RO]", ["busbw-half"]),
        ("mpirun -np 2 -x NCCL_IB_HCA==rocep1s0f1,roceP2p1s0f1 ./all_reduce_perf", ["busbw-half"]),
        ("NCCL INFO NCCL_IB_HCA set by environment to =rocep1s0f1,roceP2p1s0f1", ["busbw-half"]),
    ],
)
def test_a_bus_bandwidth_is_judged_by_the_devices_that_the_run_used(named: str, found: list[str]) -> None:
    findings, notes = _doctor.diagnose(
        RULES, _doctor_checks.CHECKS, None, [Log("", "run.log", f"{named}\n{ROW}")], "roce", False
    )
    assert [item.rule.id for item in findings] == found
    assert [note.split(": ")[0] for note in notes] == ([] if found else ["rule busbw-half is unknown for run.log"])


@cache
def noise(lines: int, seed: int = 1) -> str:
    """A healthy cluster's log, as long as asked for: its lines in order of their time, repeated as a server does."""
    start, serving = (FIXTURES / "healthy.log").read_text().split("=== from here on again and again ===\n")
    chosen = random.Random(seed)
    again = serving.splitlines()
    body = [chosen.choice(again) for _number in range(max(0, lines - start.count("\n")))]
    return start + "\n".join(body) + "\n"


# --- real lines -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", LINES, ids=[case["name"] for case in LINES])
def test_a_real_line_is_named_and_nothing_else(case: dict[str, Any]) -> None:
    assert judge([Log("spark-02", case["name"], case["text"])]) == case["rules"]
    assert case["source"]


@pytest.mark.parametrize("case", LINES, ids=[case["name"] for case in LINES])
def test_a_real_line_is_found_behind_ten_thousand_healthy_ones(case: dict[str, Any]) -> None:
    # the trouble comes after the noise: a server that starts after it has got over it
    text = noise(10_000) + case["text"]
    assert judge([Log("spark-02", "vllm.log", text)]) == case["rules"]


def test_nothing_in_a_healthy_log() -> None:
    assert judge([Log("spark-01", "vllm.log", noise(100_000))]) == []


def test_nothing_in_a_healthy_log_of_a_mixed_cluster() -> None:
    text = noise(2_000).replace("NET/IB : Using", "NET/Socket : Using").replace("network IB", "network Socket")
    assert judge([Log("thor-01", "vllm.log", text)], "tcp") == []


def test_a_failed_start_that_was_followed_by_a_good_one_is_over() -> None:
    failed = next(case for case in LINES if case["name"] == "free_memory_below_utilization")["text"]
    assert judge([Log("spark-01", "vllm.log", failed + noise(500))]) == []


def test_each_log_rule_has_a_real_line() -> None:
    shown = {rule for case in LINES for rule in case["rules"]}
    only_logs = {rule.id for rule in RULES if rule.log and not rule.check}
    assert only_logs <= shown, sorted(only_logs - shown)


def test_the_line_among_a_hundred_thousand_is_found() -> None:
    text = noise(100_000) + LINES[0]["text"]
    assert judge([Log("spark-01", "vllm.log", text)]) == LINES[0]["rules"]


# --- rules as data ----------------------------------------------------------------------------------------------------


def test_there_are_enough_rules_and_each_is_complete() -> None:
    assert len(RULES) >= 40
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert all(item["title"] for item in rule.source), rule.id
        assert any(item["url"].startswith("https://") or "sparkthor.cluster" in item["title"] for item in rule.source)
        assert rule.cause != rule.fix


def test_every_check_has_a_rule() -> None:
    assert {rule.check for rule in RULES if rule.check} == set(_doctor_checks.CHECKS)


GOOD = {
    "id": "a-b",
    "area": "host",
    "title": "t",
    "symptom": "s",
    "cause": "c",
    "fix": "m",
    "log": ["some text"],
    "source": [{"title": "x"}],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "A B"}, "id is small letters"),
        ({"fix": ""}, "fix is missing"),
        ({"severity": "fatal"}, "neither error nor warning"),
        ({"source": []}, "source"),
        ({"source": [{"url": "x"}]}, "needs a title"),
        ({"log": []}, "neither check nor log"),
        ({"log": [{"has": "x"}]}, "three characters"),
        ({"log": [{"has": "xxx", "re": "("}]}, "log 1"),
        ({"log": [{"has": "xxx", "between": [1, 2]}]}, "group named value"),
        ({"log": [{"has": "xxx", "regex": "a"}]}, "unknown field regex"),
        ({"log": [7]}, "a text or a mapping"),
        ({"check": "no_such"}, "none named no_such"),
        ({"colour": "red"}, "unknown field colour"),
        ({"explains": ["zz"]}, "which is not a rule"),
        ({"profile": "ib"}, "profile is roce or tcp"),
    ],
)
def test_a_wrong_rule_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        _doctor.read_rules({"x.yml": [{**GOOD, **change}]}, [])


def test_a_rule_twice_and_a_file_that_is_no_list_are_refused() -> None:
    with pytest.raises(RuleError, match=r"b\.yml: a-b is already in a\.yml"):
        _doctor.read_rules({"a.yml": [GOOD], "b.yml": [GOOD]}, [])
    with pytest.raises(RuleError, match="a list of rules"):
        _doctor.read_rules({"a.yml": {"id": "x"}}, [])


# --- folding ----------------------------------------------------------------------------------------------------------


def rules(*changes: dict[str, Any]) -> list[_doctor.Rule]:
    return _doctor.read_rules({"x.yml": [{**GOOD, **change} for change in changes]}, ["one", "two", "three"])


def ask(found: list[_doctor.Rule], **hits: list[Hit]) -> list[dict[str, Any]]:
    checks = {name: (lambda case, name=name: hits.get(name, [])) for name in ("one", "two", "three")}
    findings, _notes = _doctor.diagnose(found, checks, object(), [])
    return [finding.public() for finding in findings]


CHAIN = [
    {"id": "root", "check": "one", "log": [], "explains": ["middle"]},
    {"id": "middle", "check": "two", "log": [], "explains": ["leaf", "root"]},
    {"id": "leaf", "check": "three", "log": []},
]


def test_what_a_finding_explains_goes_under_it_through_all_steps() -> None:
    found = ask(rules(*CHAIN), one=[Hit("a", ["1"])], two=[Hit("a", ["2"])], three=[Hit("a", ["3"])])
    assert [item["rule"] for item in found] == ["root"]
    assert [item["rule"] for item in found[0]["consequences"]] == ["middle", "leaf"]


def test_a_finding_on_another_host_is_not_explained() -> None:
    found = ask(rules(*CHAIN), one=[Hit("a", ["1"])], two=[Hit("b", ["2"])])
    assert [(item["rule"], item["host"]) for item in found] == [("root", "a"), ("middle", "b")]


def test_an_xid_explains_the_cuda_fault_of_its_host() -> None:
    kernel = Log("a", "kernel log", "[ 9.1] NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.\n")
    engine = "RuntimeError: CUDA error: unspecified launch failure\n"
    told = {}
    for host in ("a", "b"):
        logs = [kernel, Log(host, "journal", engine)]
        found, _notes = _doctor.diagnose(RULES, _doctor_checks.CHECKS, None, logs, "roce", False)
        told[host] = [(item.rule.id, [one.rule.id for one in item.consequences]) for item in found]
    assert told == {"a": [("gpu-error", ["cuda-fault"])], "b": [("cuda-fault", []), ("gpu-error", [])]}


@pytest.mark.parametrize(
    "line",
    [
        "INFO:     Application startup complete.",
        "[2026-11-20 03:12:01] The server is fired up and ready to roll!",
        "0.01.206.159 I srv  llama_server: model loaded",
    ],
)
def test_an_engine_that_serves_again_has_no_fault_any_more(line: str) -> None:
    fault = "CUDA error: an illegal memory access was encountered\n"
    assert judge([Log("spark-01", "journal", fault)]) == ["cuda-fault"]
    assert judge([Log("spark-01", "journal", f"{fault}{line}\n")]) == []


def test_a_cable_is_explained_by_the_host_at_its_other_end_only() -> None:
    chain = rules(*CHAIN)
    cables = [Hit("a", ["to c"], hosts=("a", "c")), Hit("a", ["to b"], hosts=("a", "b"))]
    found = ask(chain, one=[Hit("c", ["off"])], two=cables)
    assert [(item["rule"], item["evidence"]) for item in found] == [("root", ["off"]), ("middle", ["to b"])]


def test_a_last_resort_gives_way_to_any_error_and_stays_alone_otherwise() -> None:
    found = rules({"id": "x", "check": "one", "log": [], "last_resort": True}, {"id": "y", "check": "two", "log": []})
    assert [item["rule"] for item in ask(found, one=[Hit("a")], two=[Hit("b")])] == ["y"]
    assert [item["rule"] for item in ask(found, one=[Hit("a")])] == ["x"]


def test_what_several_places_show_of_one_host_is_one_finding() -> None:
    found = ask(rules({"id": "x", "check": "one", "log": []}), one=[Hit("a", ["1"], "f"), Hit("a", ["2"], "g")])
    assert [(item["evidence"], item["where"], item["count"]) for item in found] == [(["1", "2"], "f, g", 2)]


def test_a_check_that_trips_is_a_note() -> None:
    def broken(_case: object) -> list[Hit]:
        raise KeyError("interfaces")

    found = rules({"id": "x", "check": "one", "log": []}, {"id": "y", "check": "two", "log": []})
    findings, notes = _doctor.diagnose(found, {"one": broken, "two": lambda _case: [Hit("a")]}, object(), [])
    assert [finding.rule.id for finding in findings] == ["y"]
    assert notes == ["rule x could not be judged: KeyError: 'interfaces'"]


def test_rules_of_the_other_transport_and_without_a_plan_are_left_out() -> None:
    found = rules(
        {"id": "x", "check": "one", "log": [], "profile": "roce"},
        {"id": "y", "check": "two", "log": [], "needs_plan": True},
    )
    checks = {"one": lambda _case: [Hit("a")], "two": lambda _case: [Hit("a")]}
    findings, _notes = _doctor.diagnose(found, checks, object(), [], "tcp", planned=False)
    assert findings == []


# --- secrets and words ------------------------------------------------------------------------------------------------


def test_the_report_has_evidence_cause_fix_and_source() -> None:
    case = next(item for item in LINES if item["name"] == "fp8_block")
    findings, _notes = _doctor.diagnose(
        RULES, {}, None, [Log("spark-01", "vllm.log", case["text"] * 5)], "roce", planned=False
    )
    public = [finding.public() for finding in findings]
    summary = {"errors": 1, "warnings": 0, "rules": 80, "hosts": 0, "lines": 5, "seconds": 0.1}
    text = "\n".join(_doctor.render(public, ["a note"], summary))
    assert "[fp8-block-indivisible] on spark-01" in text
    for word in ("seen ", "5 times in all", "cause ", "fix ", "vllm/issues/17569", "note: a note", "1 errors"):
        assert word in text
    assert "nothing found" in _doctor.render([], [], summary)[-1]


def test_the_same_words_without_what_must_be_beside_them_mean_nothing() -> None:
    line = "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0\n"
    assert judge([Log("a", "x", line)]) == []
    assert judge([Log("a", "x", "vllm/layers/fused_moe/layer.py\n" + line)]) == ["expert-parallel-shape"]


@pytest.mark.parametrize("word", sorted({pattern.has for rule in RULES for pattern in rule.log if pattern.regex}))
def test_lines_made_to_cost_much_do_not(word: str) -> None:
    line = (
        f"{'socket connect ray moe fp4 gloo 127.0.0.1 fe80: ' * 40}{word}{' 127.0.0.1 connect fe80: 7.7 (a) ' * 40}\n"
    )
    begun = time.process_time()
    judge([Log("a", "x", line * 50)])
    assert time.process_time() - begun < 1


def test_a_line_of_megabytes_is_cut_and_costs_nothing() -> None:
    begun = time.process_time()
    assert judge([Log("a", "x", "CUDA out of memory " * 300_000 + "\n")]) == []
    assert time.process_time() - begun < 3
