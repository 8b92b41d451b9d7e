# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stage that runs the tool, with a stand-in for llama-benchy that writes down how it was called."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.action import cluster_bench
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench, results, tune

TOOL = """
import json, os, sys
def main():
    words = sys.argv
    path = {word: words[words.index(word) + 1] for word in ("--save-result", "--emit-progress", "--tokenizer")}
    with open("/proc/self/cmdline") as line, open(os.environ["TOLD"], "a") as told:
        told.write(json.dumps({"argv": words, "cmdline": line.read(), "home": os.environ.get("HOME"),
            "kept": [os.path.join(at, name) for at, _, names in os.walk(path["--tokenizer"]) for name in names],
            "certificate": os.environ.get("SSL_CERT_FILE")}) + "\\n")
    if "--fail" in words:
        sys.exit("no such model")
    if "--hang" in words:
        import time
        time.sleep(20)
    if "--slow" in words:
        import time
        for _number in range(8):
            time.sleep(0.3)
            with open(path["--emit-progress"], "a") as file:
                file.write("{}\\n")
    with open(path["--save-result"], "w") as file:
        json.dump({"version": "0", "benchmarks": [{"concurrency": int(words[words.index("--concurrency") + 1])}]}, file)
    open(path["--emit-progress"], "w").close()
"""
PLAN = {
    "url": "http://10.0.0.1:8000/v1", "model": "qwen", "certificate": "", "head": "spark-01",
    "tokenizer": "/models/qwen/tokenizer.json", "sweeps": [[[128], [1]], [[128], [8]]],
    "slurped": {"content": base64.b64encode(b'{"model": {}}').decode()},
}  # fmt: skip


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "tool" / "llama_benchy"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(TOOL)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("TOLD", str(tmp_path / "told"))
    return tmp_path / "told"


def run(**given: Any) -> dict[str, Any]:
    action = cluster_bench.ActionModule.__new__(cluster_bench.ActionModule)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    action._display = types.SimpleNamespace(display=lambda _text: None)
    action.vars = {"vllm_serve_api_key": "a-key-that-nobody-may-see"}
    usual = {"plan": PLAN, "python": sys.executable, "tokenizer": None, "book": "http://book", "tokens": 8, "runs": 2}
    return action._run_stage({**usual, "extra": [], **given})


def test_the_tool_has_the_key_and_no_process_list_shows_it(told: Path) -> None:
    found = run()
    calls = [json.loads(line) for line in told.read_text().splitlines()]
    assert [row["concurrency"] for row in found["report"]["benchmarks"]] == [1, 8]
    for call in calls:
        assert call["argv"][call["argv"].index("--api-key") + 1] == "a-key-that-nobody-may-see"
        assert "a-key-that-nobody-may-see" not in call["cmdline"]
        assert any(path.endswith("/tokenizer.json") for path in call["kept"])
        assert call["certificate"] is None


def test_a_text_of_ones_own_is_where_the_tool_keeps_a_fetched_one(told: Path, tmp_path: Path) -> None:
    book = tmp_path / "book.txt"
    book.write_text("one two three")
    run(book=str(book))
    call = json.loads(told.read_text().splitlines()[0])
    name = hashlib.md5(str(book).encode(), usedforsecurity=False).hexdigest()
    assert f"{call['home']}/.cache/llama-benchy/{name}.txt" in call["kept"]
    assert call["argv"][call["argv"].index("--book-url") + 1] == str(book)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"extra": ["--fail"]}, "llama-benchy ended with 1 and no result: no such model"),
        ({"book": "/nowhere"}, "bench_book: /nowhere cannot be read"),
        ({"plan": {**PLAN, "slurped": {}}}, "bench_tokenizer: /models/qwen/tokenizer.json is not on spark-01"),
    ],
)
def test_what_is_missing_is_said_in_one_line(told: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(bench.BenchError, match=message) as error:
        run(**given)
    assert "\n" not in str(error.value)


def test_a_tool_that_falls_silent_is_ended(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_bench, "SILENCE_LIMIT", 1.5)
    monkeypatch.setattr(cluster_bench, "INTERVAL", 0.1)
    # one that goes on telling takes as long as it takes
    assert len(run(extra=["--slow"])["report"]["benchmarks"]) == 2
    begun = time.monotonic()
    message = r"told nothing for 1\.5 s while it measured prompts of \[128\] tokens with \[1\] streams"
    with pytest.raises(bench.BenchError, match=message):
        run(extra=["--hang"])
    assert time.monotonic() - begun < 15


def test_the_python_that_runs_this_has_the_tool_unless_another_is_named(told: Path) -> None:
    # nothing is made of a template that this collection writes itself
    assert len(run(python="")["report"]["benchmarks"]) == 2


def test_a_python_without_the_tool_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(bench.BenchError, match=r"bench_python: .* has no llama-benchy: install it there"):
        run()


def report(speed: float) -> dict[str, Any]:
    """What llama-benchy 0.4.0 says of one test."""
    row = {"concurrency": 1, "prompt_size": 2048, "response_size": 128}
    return {"version": "0.4.0", "benchmarks": [row | {"tg_throughput": {"mean": speed, "std": 0.0, "values": [speed]}}]}


def test_a_run_that_is_slower_than_the_kept_one_names_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"hosts": ["spark-01", "spark-02"], "head": "spark-01"}
    seen = types.SimpleNamespace(facts_by_host={}, plan_error="none here", cluster=cluster)
    monkeypatch.setattr(cluster_bench.results, "see", lambda _vars, _nodes: seen)
    moments = iter([datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (1, 2)])
    clock = types.SimpleNamespace(now=lambda _zone: next(moments))
    monkeypatch.setattr(cluster_bench, "datetime", types.SimpleNamespace(datetime=clock, UTC=datetime.UTC))
    shown: list[str] = []
    action = cluster_bench.ActionModule.__new__(cluster_bench.ActionModule)
    action._display = types.SimpleNamespace(display=shown.append)
    action.vars = {"hostvars": {}, "inventory_dir": str(tmp_path)}
    found = [
        action._result_stage({
            "nodes": "", "power": "", "folder": str(tmp_path / "kept"), "source": "https://example.org/mine",
            "measured": {"report": report(speed), "spans": []},
            "plan": {"model": "qwen", "with": {"driver of spark-01": driver}},
        })["bench"]["slower"]
        for speed, driver in ((50.0, "580.95"), (47.0, "580.142"))
    ]  # fmt: skip
    fell = [
        "throughput with prompt 2048, 1 stream: 47 tokens/s, 6 % below 50",
        "changed since then: driver of spark-01: 580.95 -> 580.142",
    ]
    assert found == [[], fell]
    assert "\n".join(fell) in shown[2]
    assert len(list((tmp_path / "kept").rglob("*.llama-benchy"))) == 2
    written = sorted((tmp_path / "kept").rglob("*.measured.yml"))
    assert [yaml.safe_load(path.read_text())["measured"][0]["tokens_per_second"] for path in written] == [50.0, 47.0]


def whole(**args: Any) -> dict[str, Any]:
    """A task, as Ansible runs it."""
    task = types.SimpleNamespace(
        args={"nodes": "__nodes", **args},
        check_mode=False,
        diff=False,
        async_val=0,
        action="cluster_bench",
        run_once=True,
    )
    connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    action = cluster_bench.ActionModule(task, connection, types.SimpleNamespace(), None, None, None)
    return action.run(task_vars={"hostvars": {}})


def test_a_task_gets_to_its_stage() -> None:
    tried = [
        {"split": [1, 2], "rows": [{"streams": 1, "throughput": 10.0}], "kept": "first"},
        {"split": [2, 1], "rows": [{"streams": 1, "throughput": 20.0}]},
    ]
    assert whole(stage="best", goal="latency", tried=tried)["best"] == 1
    choice = {"tensor": 2, "pipeline": 1, "next": [(1, 2)], "uncompared": [], "others": []}
    used = {"with": {"option pipeline-parallel-size": "2"}, "sweeps": [[[128], [1]]]}
    assert whole(stage="splits", choice=choice, plan=used)["splits"] == [[1, 2], [2, 1]]
    with pytest.raises(AnsibleActionFail, match=r"^bench_streams: latency is compared by the tokens/s of one stream"):
        whole(stage="splits", goal="latency", choice=choice, plan={**used, "sweeps": [[[128], [8]]]})
    # no stage takes the place of what the base of all actions has
    for stage in cluster_bench.ActionModule.ARGUMENTS["stage"]["choices"]:
        assert f"_{stage}_stage" in vars(cluster_bench.ActionModule)
    assert "_run" not in vars(cluster_bench.ActionModule)


def test_sglangs_own_names_say_model_context_and_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its split was taken for none, so that tune.yml measured the one that serves as another one."""
    options = {"model-path": "/models/qwen", "context-length": "4224", "tp-size": "2", "pp-size": "1"}
    serving = {"model": "qwen", "options": options, "tls": False, "certificate": ""}
    facts = {"spark-01": {"serving": serving, "versions": {}, "node": {}}}
    seen = types.SimpleNamespace(cluster={"head": "spark-01"}, facts_by_host=facts)
    monkeypatch.setattr(results, "see", lambda *_: seen)
    action = cluster_bench.ActionModule.__new__(cluster_bench.ActionModule)
    action.vars = {}
    given = {"nodes": "n", "source": "", "tokenizer": None, "tokens": 128, "url": "http://x", "prompt": 2048}
    plan = action._plan_stage({**given, "prompts": [128, 8192], "streams": [1]})["plan"]
    assert plan["tokenizer"] == "/models/qwen/tokenizer.json"
    assert plan["sweeps"] == [([128], [1])]
    assert tune.used(plan["with"]) == (2, 1)
