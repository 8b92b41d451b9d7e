# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.template import trust_as_template
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import measured as recipe_rows
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench


def metric(*values: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return {"mean": mean, "std": max(values) - mean, "values": list(values)}


def measured(prompt: int, streams: int, speed: float) -> dict[str, Any]:
    """A row as llama-benchy 0.4.0 writes it."""
    return {
        "concurrency": streams, "context_size": 0, "prompt_size": prompt, "response_size": 128,
        "is_context_prefill_phase": False, "pp_throughput": metric(900.0), "tg_throughput": metric(speed, speed),
        "tg_req_throughput": metric(speed / streams), "e2e_ttft": metric(250.0), "ttfr": metric(240.0),
    }  # fmt: skip


def document(speed: float, **used: str) -> dict[str, Any]:
    rows = bench.rows({"benchmarks": [measured(2048, 1, speed)]}, {}, {})
    return {"version": bench.VERSION, "taken": "2026-01-01T00:00:00Z", "rows": rows, "with": used}


# --- what is asked ---------------------------------------------------------------------------------------------------


def test_lengths_with_one_stream_and_streams_with_one_length() -> None:
    assert bench.sweeps([128, 2048], [1, 8, 64], 2048, 8000) == [([128, 2048], [1]), ([2048], [8, 64])]
    assert bench.sweeps([128], [1], 128, 0) == [([128], [1])]
    assert bench.sweeps([128], [4], 128, 0) == [([128], [4])]


def test_a_prompt_that_the_context_has_no_room_for_is_left_out() -> None:
    assert bench.sweeps([128, 32768], [1], 128, 4000) == [([128], [1])]


@pytest.mark.parametrize(
    ("prompts", "streams", "prompt", "room", "message"),
    [
        ([], [1], 1, 0, r"bench_prompts: \[\]"),
        ([1], [0], 1, 0, r"bench_streams: \[0\]"),
        ([9000], [1], 9000, 4000, "room for 4000 tokens"),
        ([128], [1, 2], 9000, 4000, "room for 4000 tokens"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(
    prompts: list[int], streams: list[int], prompt: int, room: int, message: str
) -> None:
    with pytest.raises(bench.BenchError, match=message) as error:
        bench.sweeps(prompts, streams, prompt, room)
    assert "\n" not in str(error.value)


def test_the_key_is_no_argument() -> None:
    argv = bench.arguments("http://head:8000/v1", "qwen", "/tokenizer", [128], [1, 8], 64, 3)
    assert "--api-key" not in argv
    assert argv[argv.index("--concurrency") + 1 : argv.index("--runs")] == ["1", "8"]
    assert "sys.stdin" in bench.LAUNCH


def test_two_reports_are_one() -> None:
    one = bench.merged([{"version": "0.4.0", "max_concurrency": 1, "benchmarks": [measured(128, 1, 50)]},
                        {"version": "0.4.0", "max_concurrency": 8, "benchmarks": [measured(2048, 8, 90)]}])  # fmt: skip
    assert (one["max_concurrency"], len(one["benchmarks"])) == (8, 2)


# --- power -----------------------------------------------------------------------------------------------------------


def event(kind: str, request: int, moment: float, **more: Any) -> str:
    return json.dumps({"type": kind, "ts": moment, "request_id": request, **more})


START = {"prompt_size": 128, "response_size": 32, "concurrency": 2}
PROGRESS = "\n".join([
    event("request_start", 1, 100.0, run_index=0, **START), event("request_start", 2, 100.5, run_index=0, **START),
    event("request_end", 1, 102.0, total_tokens=32), "torn {", event("request_end", 2, 104.0, total_tokens=32),
    event("request_start", 3, 110.0, run_index=1, **START), event("request_end", 3, 114.0, total_tokens=16),
    event("request_end", 9, 120.0, total_tokens=99),
])  # fmt: skip


def test_runs_last_from_the_first_request_to_the_end_of_the_last() -> None:
    assert bench.windows(PROGRESS) == {(128, 32, 2): [(100.0, 104.0, 64), (110.0, 114.0, 16)]}


def test_energy_is_that_of_all_hosts_while_requests_were_open() -> None:
    spans = bench.windows(PROGRESS)[128, 32, 2]
    hosts = {
        "a": bench.samples("101.0 30\n107.0 500\n111 50\n"),
        "b": bench.samples("101 20+20\nnonsense\n112 40+20\n"),
    }
    watts = (30 + 50) / 2 + (40 + 60) / 2
    assert bench.energy(hosts, spans) == (watts, round(watts * 8 / 80, 3))


def test_a_host_that_tells_no_power_leaves_no_energy() -> None:
    spans = bench.windows(PROGRESS)[128, 32, 2]
    assert bench.energy({"a": [(101.0, 30.0)], "b": bench.samples("101 [N/A]\n")}, spans) is None
    assert bench.energy({}, spans) is None


# --- the result ------------------------------------------------------------------------------------------------------


def test_a_row_has_what_the_field_compares() -> None:
    spans = {(2048, 128, 8): [(0.0, 10.0, 1024)]}
    [row] = bench.rows({"benchmarks": [measured(2048, 8, 80.0)]}, spans, {"a": [(1.0, 100.0)]})
    assert row == {
        "prompt": 2048, "answer": 128, "streams": 8, "runs": 2, "prefill": 900.0, "throughput": 80.0, "spread": 0.0,
        "ttft_ms": 250.0, "tpot_ms": 100.0, "watts": 100.0, "joules_per_token": 0.977,
    }  # fmt: skip


def test_a_speed_that_fell_names_what_changed() -> None:
    before, after = document(100.0, kernel="6.8", driver="580"), document(94.0, kernel="6.14", driver="580")
    speed, changed = bench.slower(after, before)
    assert speed == "throughput with prompt 2048, 1 stream: 94 tokens/s, 6 % below 100"
    assert changed == "changed since then: kernel: 6.8 -> 6.14"
    assert bench.slower(document(94.0), document(100.0))[-1].endswith("nothing that is recorded")


def test_a_speed_within_five_percent_is_no_news() -> None:
    assert bench.slower(document(95.5), document(100.0)) == []
    assert bench.slower(document(1.0), None) == []


def test_earlier_runs_come_in_order_and_torn_files_are_passed_over() -> None:
    late = {**document(1.0), "taken": "2026-02-01T00:00:00Z"}
    texts = [json.dumps(late), "{", json.dumps({"version": 99, "rows": []}), json.dumps(document(2.0))]
    assert [one["taken"][:7] for one in bench.history(texts)] == ["2026-01", "2026-02"]


def test_the_screen_shows_the_bound_and_what_fell() -> None:
    shown = bench.text({**document(50.0), "bound": 61.5, "slower": ["fell"]}).splitlines()
    assert shown[0].split()[:2] == ["PROMPT", "STREAMS"]
    assert shown[1].split()[:4] == ["2048", "1", "900", "50"]
    assert shown[1].split()[-2:] == ["-", "-"]
    assert shown[2:] == ["memory bandwidth allows one stream 62 tokens/s", "fell"]


# --- rows for the catalogue ------------------------------------------------------------------------------------------


def test_what_was_measured_is_a_row_that_a_recipe_takes() -> None:
    used = {"vllm of spark-01": "0.33.0", "vllm of spark-02": "0.33.0", "option speculative-config": "mtp, 3 tokens"}
    one = document(50.0, **used)
    one["rows"].append({**one["rows"][0], "throughput": None, "streams": 64})
    rows = bench.catalogue_rows(one, 2, "spark-01", "https://example.org/mine")
    assert rows == [
        {
            "hosts": 2,
            "tokens_per_second": 50.0,
            "streams": 1,
            "prompt": "llama-benchy, 2,048 tokens in, 128 out",
            "engine": "vLLM 0.33.0",
            "note": "with a drafter, mtp, 3 tokens",
            "date": "2026-01-01",
            "source": "https://example.org/mine",
        }
    ]
    written = yaml.safe_load(bench.catalogue_text(rows))["measured"]
    assert written == rows
    assert recipe_rows.problem(written) == ("", "")


def test_a_row_that_nobody_published_is_none_of_the_catalogue() -> None:
    # as a playbook gives it: text that Ansible has marked
    rows = bench.catalogue_rows(document(50.0, **{"vllm of a": "0.33.0"}), 1, "a", trust_as_template(""))
    assert recipe_rows.problem(rows)[0] == "measured, row 1: source is missing"
    assert yaml.safe_load(bench.catalogue_text(rows))["measured"] == rows
    assert "note" not in rows[0]
    unknown = bench.catalogue_rows(document(50.0), 1, "a", "https://example.org/mine")
    assert recipe_rows.problem(unknown)[0] == "measured, row 1: engine is missing"


def test_an_address_is_looked_at_before_anything_is_measured() -> None:
    bench.check_source("")
    bench.check_source("https://example.org/mine")
    with pytest.raises(bench.BenchError, match="bench_source: my notes is no address"):
        bench.check_source("my notes")


@pytest.mark.parametrize(("length", "room"), [("8192", 8064), ("", 0), ("32k", 0)])
def test_what_a_prompt_may_have_beside_the_answer(length: str, room: int) -> None:
    assert bench.room({"max-model-len": length}, 128) == room


def test_a_context_that_the_answer_fills_is_no_unknown_one() -> None:
    with pytest.raises(bench.BenchError, match="bench_tokens: 128: the context has 128 tokens"):
        bench.room({"max-model-len": "128"}, 128)
