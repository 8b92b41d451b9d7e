# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""TensorRT-LLM on a host: what its log says to a person who waits, its metrics, its processes, and how it is asked.

By its source, its issues and others' logs: no image of it has been run here. ``lab/engine/trt_stand_in.py`` copies
what they say.
"""

from __future__ import annotations

import re

from .base import LAUNCHER, PYTHON_ERROR, EngineOnHost, KnownFailure, LogForm, MetricNames, Stage

_STAGES: tuple[Stage, ...] = (
    Stage("starting", re.compile(r"TensorRT-LLM version: "), 0.02, 0.1),
    Stage("loading weights", re.compile(r"Loading (?:safetensors )?weights"), 0.1, 0.7),
    Stage("KV cache", re.compile(r"in paged KV cache \(\d+\)"), 0.7, 0.76),
    Stage("warming up", re.compile(r"Running autotuner warmup|Run warmup with|CUDA graph capture"), 0.76, 0.92),
    Stage("engine ready", re.compile(r"max_seq_len=\d+, max_num_requests="), 0.92, 0.94),
    # its port is bound before the load, and answers only now
    Stage("API server starts", re.compile(r"Started server process|Waiting for application startup"), 0.94, 0.98),
    Stage("first completion", re.compile(r"Application startup complete"), 0.99, 0.99),
)
_KNOWN: tuple[KnownFailure, ...] = (
    KnownFailure(
        re.compile(r"ptxas fatal"),
        "set TRITON_PTXAS_PATH in vllm_serve_env to the ptxas of the image's CUDA",
        True,
    ),
    KnownFailure(
        re.compile(r"CUDA out of memory|OutOfMemoryError|out of memory"),
        "shorten vllm_serve_max_model_len, lower max_batch_size in vllm_serve_args, or set "
        "TRT_LLM_DISABLE_LOAD_WEIGHTS_IN_PARALLEL: 1 in vllm_serve_env",
        False,
    ),
    KnownFailure(
        re.compile(r"No such option: |Invalid value for '|Extra inputs are not permitted"),
        "correct vllm_serve_args",
        True,
    ),
    KnownFailure(
        re.compile(r"Failed to bind socket to "),
        "another program of the host holds the port: set vllm_serve_engine_port to a free one",
        False,
    ),
    KnownFailure(re.compile(r"No space left on device"), "free the disk of this host", False),
)

TENSORRT_LLM = EngineOnHost(
    name="tensorrt_llm",
    title="TensorRT-LLM",
    launch=LAUNCHER,
    log=LogForm(
        stages=_STAGES,
        known=_KNOWN,
        # [01/31/2026-09:38:53] [TRT-LLM] [I] or, of its C++ part, [TensorRT-LLM][INFO]
        prefix=re.compile(
            r"^(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?(?:\[TRT-LLM\] \[[A-Z]\]|\[TensorRT-LLM\]\[[A-Z]+\]"
            r"|(?:DEBUG|INFO|WARNING|ERROR):)\s+"
        ),
        logged=re.compile(r"^(?:\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] )?\[(?:TRT-LLM|TensorRT-LLM)\] ?\["),
        dull=re.compile(
            r"^(?:\W*|.*(?:\"?(?:GET|POST) /|FutureWarning|UserWarning|DeprecationWarning|warnings\.warn).*)$"
        ),
        error=PYTHON_ERROR,
        serves=re.compile(r"Application startup complete"),
        percent=re.compile(r"(\d{1,3})%\|"),
    ),
    metrics=MetricNames(
        # its own /metrics is JSON that each reader takes away from the next
        target="/prometheus/metrics",
        # the tokens are counted when a request ends, pages of its cache while it runs
        moves={
            "trtllm_generation_tokens_total": 0,
            "trtllm_kv_cache_gen_alloc_blocks_total": 0,
            "trtllm_kv_cache_utilization": 1,
        },
        running=("trtllm_num_requests_running",),
        waiting=("trtllm_num_requests_waiting",),
        cache_share=("trtllm_kv_cache_utilization",),
        prompt_tokens="trtllm_prompt_tokens_total",
        tokens="trtllm_generation_tokens_total",
        first_token="trtllm_time_to_first_token_seconds",
        token_time="trtllm_time_per_output_token_seconds",
    ),
    titles=("trtllm-serve",),
    rank_titles=("trtllm-serve",),
    program="trtllm-serve serve",
    command_line=re.compile(r"(?:^|/)trtllm-serve\0"),
    config="trtllm.yaml",
    model_key="model",
    after="serve",
    # it takes no start without, although its file goes before its command line
    names_model=True,
    packages=("tensorrt-llm",),
    no_reports={"TRTLLM_NO_USAGE_STATS": "1"},
    alike={
        "max_seq_len": "max-model-len",
        "tensor_parallel_size": "tensor-parallel-size",
        "pipeline_parallel_size": "pipeline-parallel-size",
    },
)
