# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang on a host: what its log says to a person who waits, its metrics, its processes, and how it is asked.

By the log, the metrics and the endings of 0.5.23 on CPUs and 0.5.17 on GPUs, with one and two ranks.
"""

from __future__ import annotations

import re

from .base import HEAD_FIRST, PYTHON_ERROR, EngineOnHost, KnownFailure, LogForm, MetricNames, Stage

_STAGES = (
    Stage("starting", re.compile(r"server_args=|Using default HuggingFace chat template"), 0.02, 0.06),
    Stage("connecting the ranks", re.compile(r"Init (?:parallel|torch distributed) begin|is using nccl=="), 0.06, 0.15),
    Stage("ranks connected", re.compile(r"Init (?:parallel|torch distributed) ends"), 0.15, 0.2),
    Stage("loading weights", re.compile(r"Load weight begin|[Ll]oading (?:safetensors|shards|.*checkpoint)"), 0.2, 0.7),
    Stage("weights loaded", re.compile(r"Load weight end"), 0.7, 0.72),
    Stage("KV cache", re.compile(r"KV Cache is allocated|Memory pool end|max_total_num_tokens="), 0.72, 0.76),
    Stage("capturing graphs", re.compile(r"[Cc]apture (?:cuda|CUDA) graph|Capturing batches"), 0.76, 0.92),
    Stage("engine ready", re.compile(r"Engine startup timings"), 0.92, 0.94),
    # its HTTP server opens only now, and its /health says 503 until a request of its own has been served
    Stage("API server starts", re.compile(r"Started server process|Waiting for application startup"), 0.94, 0.96),
    Stage("warming up", re.compile(r"Application startup complete|Uvicorn running"), 0.96, 0.98),
    Stage("first completion", re.compile(r"The server is fired up and ready to roll!"), 0.99, 0.99),
)
_KNOWN = (
    KnownFailure(
        re.compile(r"Not enough memory\. Please try to increase --mem-fraction-static"),
        "raise mem-fraction-static in vllm_serve_args, shorten vllm_serve_max_model_len or use more hosts",
        False,
    ),
    KnownFailure(
        re.compile(r"memory capacity is unbalanced"),
        "free memory on the host that has less, or set SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK: 0 in vllm_serve_env",
        False,
    ),
    KnownFailure(
        re.compile(r"CUDA out of memory|OutOfMemoryError"), "lower mem-fraction-static or use more hosts", False
    ),
    KnownFailure(
        re.compile(r"unrecognized arguments|invalid choice|error: argument|expected one argument"),
        "correct vllm_serve_args",
        True,
    ),
    KnownFailure(
        re.compile(r"[Pp]ort \d+ is already in use|Address already in use"),
        "another program of the host holds the port: set vllm_serve_engine_port to a free one",
        False,
    ),
    KnownFailure(
        re.compile(r"does not appear to have a file named|Repo id must be in the form|is not a local folder"),
        "check vllm_serve_model: the model is not complete on this host",
        True,
    ),
    KnownFailure(
        re.compile(r"Model architectures? .* (?:are|is) not supported|Unsupported architectures"),
        "this SGLang does not know the model: use a newer engine",
        True,
    ),
    KnownFailure(re.compile(r"No space left on device"), "free the disk of this host", False),
    KnownFailure(
        re.compile(r"Scheduler watchdog timeout"),
        "a rank gave no answer: see the log of each host for the first that stopped",
        False,
    ),
    KnownFailure(
        re.compile(r"gloo/transport/tcp/.*(?:Connection (?:reset|closed)|[Tt]imed? out)"),
        "another rank ended or cannot be reached: see its host's log, which says why",
        False,
    ),
)

SGLANG = EngineOnHost(
    name="sglang",
    title="SGLang",
    launch=HEAD_FIRST,
    log=LogForm(
        stages=_STAGES,
        known=_KNOWN,
        prefix=re.compile(
            r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [A-Z]+\d+)*\]\s*(?:(?:DEBUG|INFO|WARNING|ERROR):\s+)?"
        ),
        logged=re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"),
        dull=re.compile(
            # what it says of requests, its own probes among them, and of modules that this model does not need
            r"^(?:\W*|.*(?:(?:Prefill|Decode) batch, |\"(?:GET|POST) /|Ignore import error when loading|"
            r"FutureWarning|UserWarning|DeprecationWarning|warnings\.warn|Fail to set RLIMIT_NOFILE|"
            r"Triton is not supported|Cannot detect CUDA|No CUDA runtime is found).*)$"
        ),
        error=PYTHON_ERROR,
        vague=re.compile(r"Rank \d+ scheduler (?:died|is dead)|exit code: "),
        serves=re.compile(r"The server is fired up and ready to roll!"),
        percent=re.compile(r"(\d{1,3})%(?:\s*(?:Completed|\|))"),
    ),
    metrics=MetricNames(
        # the totals of prompts and answers move at a request's end alone, this one every few steps of it
        moves={"sglang:realtime_tokens_total": 0, "sglang:token_usage": 1},
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        cache_share=("sglang:token_usage",),
        prompt_tokens="sglang:prompt_tokens_total",
        tokens="sglang:generation_tokens_total",
        first_token="sglang:time_to_first_token_seconds",
        token_time="sglang:inter_token_latency_seconds",
    ),
    titles=("sglang::",),
    # the kernel keeps 15 characters of sglang::scheduler
    rank_titles=("sglang::schedul",),
    program="sglang serve",
    command_line=re.compile(r"(?:^|/)sglang\0serve\0|\0sglang\.launch_server\0"),
    config="sglang.yaml",
    model_key="model-path",
    # an option on the command line goes before the same in its file
    model_option="--model-path",
    # ``sglang serve`` chooses what serves by the model, before it reads its file, and ends without one
    names_model=True,
    packages=("sglang", "sglang-kernel"),
    caches={
        "SGLANG_CACHE_DIR": "sglang",
        "SGLANG_JIT_CACHE_DIR": "sglang/jit",
        "TILELANG_CACHE_DIR": "tilelang",
        "TVM_FFI_CACHE_DIR": "tvm-ffi",
        "CUTE_DSL_CACHE_DIR": "cute-dsl",
    },
    compiled=("sglang/jit", "tilelang", "tvm-ffi", "cute-dsl"),
    alike={
        "model-path": "model",
        "context-length": "max-model-len",
        "tp-size": "tensor-parallel-size",
        "pp-size": "pipeline-parallel-size",
    },
    nonsense=(
        "NVFP4 experts on GB10 compute nonsense with some kernels: choose others by vllm_serve_args "
        "{moe-runner-backend: triton}"
    ),
)
