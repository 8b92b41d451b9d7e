# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines and metrics as SGLang 0.5.23 wrote them on CPUs, with one rank and with two."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import progress, serving, watchdog_report
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.sglang import SGLANG

LOAD = """\
/opt/venv/lib/python3.11/site-packages/sglang/srt/layers/quantization/awq/awq.py:53: UserWarning: Only CUDA, HIP
[2026-11-26 02:21:27] Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit
[2026-11-26 02:21:27] Using default HuggingFace chat template with detected content format: string
[2026-11-26 02:24:43 TP0] Init parallel begin.
[2026-11-26 02:24:48 TP0] Init parallel ends. elapsed=4.77 s
[2026-11-26 02:21:50] Ignore import error when loading sglang.srt.models.inkling: No module named 'cutlass'
[2026-11-26 02:24:50 TP0] Load weight begin. avail mem=15.09 GB
Multi-thread loading shards:   0% Completed | 0/2 [00:00<?, ?it/s]
Multi-thread loading shards:  50% Completed | 1/2 [00:00<00:00, 127.60it/s]
[2026-11-26 02:24:51 TP0] Load weight end. elapsed=0.06 s, type=Qwen3ForCausalLM, avail mem=15.08 GB
[2026-11-26 02:24:51 TP0] KV Cache is allocated. dtype: torch.float16, #tokens: 4096, K size: 0.00 GB
[2026-11-26 02:24:51] Engine startup timings (s): load_weight=0.06, kv_cache_allocation=0.61
[2026-11-26 02:24:51] INFO:     Started server process [10563]
[2026-11-26 02:24:51] INFO:     Uvicorn running on http://127.0.0.1:31000 (Press CTRL+C to quit)
[2026-11-26 02:24:52] INFO:     127.0.0.1:51784 - "GET /health HTTP/1.1" 503 Service Unavailable
[2026-11-26 02:25:13] The server is fired up and ready to roll!
[2026-11-26 02:25:14] Decode batch, #running-req: 1, #token: 24, token usage: 0.01, #queue-req: 0
""".splitlines()


def test_a_load_is_told_by_its_log() -> None:
    told, seen = progress.Progress(), []
    for line in LOAD:
        told = progress.progress([line], told, SGLANG.log)
        if told.name and told.name not in seen:
            seen.append(told.name)
    assert seen == [stage.name for stage in SGLANG.log.stages if stage.name != "capturing graphs"]
    assert told.fraction == 0.99
    half = progress.progress(LOAD[:9], form=SGLANG.log)
    assert half.text.startswith("loading weights 50 %")
    assert half.fraction == 0.45


def test_requests_and_probes_are_no_sign_of_a_load() -> None:
    before = progress.progress(LOAD[:-3], form=SGLANG.log)
    assert progress.progress(LOAD[-3:-2], before, SGLANG.log).mark == before.mark
    assert [line for line in LOAD if SGLANG.log.serves.search(line)] == [LOAD[-2]]


@pytest.mark.parametrize(
    ("lines", "reason", "fix"),
    [
        (
            ["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.1"],
            "Not enough memory",
            "raise mem-fraction-static",
        ),
        (
            [
                "[2026-11-26 02:25:33 TP0] Scheduler hit an exception: Traceback (most recent call last):",
                "    work.wait()",
                "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:545] Read error "
                "[127.0.0.1]:34712: Connection reset by peer. This is typically caused by a remote worker hanging",
                "[2026-11-26 02:25:33] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
            ],
            "Connection reset by peer",
            "another rank ended",
        ),
        (
            ["sglang serve: error: unrecognized arguments: --no-such"],
            "unrecognized arguments",
            "correct vllm_serve_args",
        ),
    ],
)
def test_a_failure_is_told_with_what_to_do(lines: list[str], reason: str, fix: str) -> None:
    found = progress.explain(lines, SGLANG.log)
    assert reason in found.reason
    assert found.fix.startswith(fix)


def test_one_long_request_moves_what_the_watchdog_reads() -> None:
    def page(realtime: int, ended: int) -> str:
        return (
            f'sglang:realtime_tokens_total{{mode="decode",model_name="m"}} {realtime}.0\n'
            f'sglang:realtime_tokens_total{{mode="prefill_compute",model_name="m"}} 2.0\n'
            f'sglang:generation_tokens_total{{model_name="m"}} {ended}.0\nsglang:token_usage{{model_name="m"}} 0.25\n'
            'sglang:num_running_reqs{model_name="m"} 1.0\nsglang:num_running_reqs_offline_batch{model_name="m"} 0.0\n'
            'sglang:num_queue_reqs{model_name="m"} 2.0\n'
        )

    first, later = page(25, 25), page(475, 25)
    assert watchdog_report.engine_counters(first, SGLANG.metrics) == (27.0, 0.25)
    assert watchdog_report.engine_counters(later, SGLANG.metrics) == (477.0, 0.25)
    assert watchdog_report.requests_in_flight(later, SGLANG.metrics) == 3


def test_another_model_goes_before_that_of_the_file() -> None:
    command = SGLANG.load(["/opt/sglang", "serve", "--config", "/etc/sparkthor/sglang.yaml"], "/models/new")
    assert command[-2:] == ["--model-path", "/models/new"]
    assert serving.served_by(command, SGLANG) == "/models/new"
