# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the arguments of an engine are read off a command line and out of a log."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import (
    CHECKS,
    Case,
    log_arguments,
    parse_argv,
    serve_arguments,
    without_former_jobs,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Log

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import RULES, ev, world


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vllm serve m -tp 4 --enforce-eager", {"model": "m", "tensor-parallel-size": 4, "enforce-eager": True}),
        ("python vllm serve m --gpu-memory-utilization=0.95", {"model": "m", "gpu-memory-utilization": 0.95}),
        (
            "vllm serve m --no-enable-prefix-caching --port 8000",
            {"model": "m", "enable-prefix-caching": False, "port": 8000},
        ),
        (
            "python -m vllm.entrypoints.openai.api_server --model m --seed -1",
            {"m": "vllm.entrypoints.openai.api_server", "model": "m", "seed": -1},
        ),
        ("vllm serve m --tensor_parallel_size 2", {"model": "m", "tensor-parallel-size": 2}),
        (
            "vllm serve m --served-model-name 007 --seed=-00.5",
            {"model": "m", "served-model-name": "007", "seed": "-00.5"},
        ),
    ],
)
def test_a_command_line_is_read(line: str, expected: dict[str, Any]) -> None:
    assert parse_argv(line.split()) == expected


def test_the_newest_arguments_of_a_log_count() -> None:
    old = "non-default args: {'gpu_memory_utilization': 0.95}\n"
    new = "INFO [api_server.py:1] vLLM API server version 0.11.0\nINFO non-default args: {'model': 'm'}\n"
    serve = next(log_arguments(Log("a", "x", old + new)))
    assert (dict(serve.args), serve.version) == ({"model": "m"}, "0.11.0")


@pytest.mark.parametrize(
    ("state", "serves"),
    [
        ({"state": "serving", "healthy": True, "updated": 990.0}, {"a", "b"}),
        ({"state": "serving", "healthy": True, "updated": 900.0}, set()),
        ({"state": "serving", "healthy": True, "updated": "now"}, set()),
        ({"state": "loading", "healthy": False, "updated": 990.0}, set()),
    ],
)
def test_a_group_serves_where_its_head_says_so(state: dict[str, Any], serves: set[str]) -> None:
    told = {"ended": 1000.0, "files": {"state.json": json.dumps(state)}}
    case = Case(["a", "b", "c"], {"a": told}, parts=[("x", ["a", "b"], {}), ("y", ["c"], {})])
    assert case.serving == serves


def test_workers_of_a_job_before_the_one_that_serves_say_nothing() -> None:
    folder, worker = "/var/lib/sparkthor/ray/t/session_latest/logs", "0f" * 28
    names = [f"{folder}/worker-{worker}-{job}-812.err" for job in ("02000000", "01010000", "ff000000", "ffffffff")]
    names += [f"{folder}/raylet.err", f"/tmp/ray/session_latest/logs/worker-{worker}-01000000-812.err"]
    logs = [Log(host, name, "x") for name in names for host in ("a", "b")]
    logs = [log for log in logs if "01010000" not in log.name or log.host == "a"]
    state = {"state": "serving", "healthy": True, "updated": 990.0}
    case = Case(["a", "b"], {"a": {"ended": 1000.0, "files": {"state.json": json.dumps(state)}}})
    kept = {(log.host, log.name) for log in without_former_jobs(case, logs)}
    # job 257 on the head is the newest of all; of a Ray of somebody else nothing is known
    assert kept == {("a", names[1])} | {(host, name) for host in ("a", "b") for name in names[3:]}
    case.evidence.clear()
    assert without_former_jobs(case, logs) == logs


def test_memory_that_ran_out_before_an_engine_served_is_over() -> None:
    log = Log("b", "kernel log", "NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY]\n" * 3)
    case = world()
    assert "nv-no-memory" in told(case, log)
    state = {"state": "serving", "healthy": True, "updated": ev(case, "a")["ended"]}
    ev(case, "a")["files"]["state.json"] = json.dumps(state)
    assert "nv-no-memory" not in told(case, log)


def told(case: Case, log: Log) -> set[str]:
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [log], "roce")
    return {one.rule.id for finding in findings for one in (finding, *finding.consequences)}


def test_each_group_of_a_host_has_arguments_of_its_own() -> None:
    files = {"vllm.yaml": '{"model": "/m"}', "beside/embed/vllm.yaml": '{"gpu_memory_utilization": 0.1}'}
    files |= {"beside/asleep/state.json": "{}", "beside/empty/vllm.yaml": "[]"}
    seen = list(serve_arguments("a", {"files": files, "engine": {"versions": {"vllm": "0.32.0"}}}, json.loads))
    assert [(one.where, one.group, dict(one.args), one.version) for one in seen] == [
        ("/etc/sparkthor/vllm.yaml", "", {"model": "/m"}, "0.32.0"),
        ("/etc/sparkthor/beside/embed/vllm.yaml", "embed", {"gpu-memory-utilization": 0.1}, "0.32.0"),
    ]


@pytest.mark.parametrize(("unit", "group"), [("vllm", ""), ("vllm-embed", "embed"), ("watchdog-embed", "")])
def test_the_journal_of_a_group_is_that_groups(unit: str, group: str) -> None:
    (serve,) = log_arguments(Log("a", f"journal of sparkthor-{unit}.service", "non-default args: {'model': 'm'}\n"))
    assert serve.group == group


@pytest.mark.parametrize("text", ["non-default args: {'a': ", "non-default args: {1+}", "non-default args: {'a'}", ""])
def test_a_cut_line_of_arguments_is_passed_over(text: str) -> None:
    assert list(log_arguments(Log("a", "x", text))) == []


@pytest.mark.parametrize(
    "part", ["non-default args: {} ", "non-default args: {", "non-default args: {}}", "non-default args: {'a': ("]
)
def test_a_hostile_line_of_arguments_is_read_to_an_end(part: str) -> None:
    """Megabytes of it took time with their square, which are hours."""
    text = part * (4_000_000 // len(part)) + "y"
    for line in (text, text + "}", "non-default args: {'a': 1}\n" + text):
        assert list(log_arguments(Log("h", "journal", line))) == []
