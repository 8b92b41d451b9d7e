# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp on a host: ``llama-server`` on the head, and on workers ``ggml-rpc-server``, which knows no model.

Words, counters and ends are those of ggml-org/llama.cpp 0c1e570; ``lab/engine/llama_stand_in.py`` copies them. It says
nothing while it reads the weights, so that a load is judged by what its processes do.
"""

from __future__ import annotations

import re

from .base import COMPLETION, NEVER, WORKERS_FIRST, EngineOnHost, KnownFailure, LogForm, MetricNames, ProbeRoute, Stage

_STAGES: tuple[Stage, ...] = (
    Stage("starting", re.compile(r"initializing \.\.\.|common_params_print_info: build"), 0.02, 0.05),
    Stage("loading weights", re.compile(r"loading model '|load_tensors: "), 0.05, 0.9),
    Stage("cache", re.compile(r"llama_kv_cache|sched_reserve|initializing, n_slots"), 0.9, 0.95),
    Stage("first completion", re.compile(r"model loaded$|listening on (?:unix|http)"), 0.99, 0.99),
)
_KNOWN: tuple[KnownFailure, ...] = (
    KnownFailure(
        re.compile(r"Failed to connect to \S+:\d+"),
        "a worker's server does not listen there: look at sparkthor-vllm.service on that host",
        False,
    ),
    KnownFailure(
        re.compile(r"Remote RPC server crashed or returned malformed response"),
        "a worker's server has ended: its own log says why (sparkthor-vllm.service on the workers)",
        False,
    ),
    KnownFailure(
        re.compile(r"RPC server version mismatch|Expected HELLO command|HELLO request size mismatch"),
        "the hosts have different builds of llama.cpp: bring the same one to all of them",
        True,
    ),
    KnownFailure(
        re.compile(r"unknown model architecture"), "this llama.cpp does not know the model: use a newer build", True
    ),
    KnownFailure(
        re.compile(r"data is not within the file bounds|corrupted model|wrong number of tensors|tensors expected but"),
        "the model's files are not whole: site.yml --tags model_store",
        True,
    ),
    KnownFailure(
        re.compile(r"unable to allocate|failed to allocate (?:buffer|compute)|cudaMalloc failed|out of memory"),
        "lower vllm_serve_max_model_len or max-num-seqs, or use more hosts",
        False,
    ),
    KnownFailure(
        re.compile(
            r"error: invalid argument|Unsupported cache type|invalid value for|expected value for argument|"
            r"error while handling argument"
        ),
        "correct vllm_serve_args",
        True,
    ),
    KnownFailure(
        re.compile(r"couldn't bind HTTP server socket|Failed to create server socket"),
        "another program holds the port or socket",
        False,
    ),
    KnownFailure(
        re.compile(r"failed to open GGUF|failed to load model"),
        "check vllm_serve_model: the model is not complete on the head",
        True,
    ),
)

LLAMA_CPP = EngineOnHost(
    name="llama_cpp",
    title="llama.cpp",
    launch=WORKERS_FIRST,
    log=LogForm(
        stages=_STAGES,
        known=_KNOWN,
        # 0.01.206.159 I srv  llama_server: model loaded
        prefix=re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} [DIWE] (?:[a-z]{3,4} +[\w():<>~-]{1,14}: )?"),
        logged=re.compile(r"^\d+\.\d\d\.\d{3}\.\d{3} [IWE] "),
        dull=re.compile(
            r"^(?:\W*|.*(?:(?:GET|POST) /|print_timing|all slots are idle|print_info:|llama_model_loader: - kv|"
            r"Starting RPC server|(?:endpoint|local cache|transport) +: |Devices:|MiB free\)|Never expose the RPC|"
            r"WARNING: Host \('|This is an experimental feature|"
            r"security: no API key|(?:Accepted client|Client) connection|The UI is disabled|Use --ui/).*)$"
        ),
        error=re.compile(
            r"^(?:[\w.:]*(?:Error|error|exception)\b.*|\S*\.(?:cpp|cu|c):\d+: .*|GGML_ASSERT.*|"
            r".*\bfailed to .*|terminate called .*)"
        ),
        vague=re.compile(r"exiting due to model loading error|failed to create context|failed to load model"),
        serves=re.compile(r"model loaded$"),
        percent=NEVER,
    ),
    metrics=MetricNames(
        # tokens and prompts are counted when a request ends
        moves={"llamacpp:n_decode_total": 0},
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        prompt_tokens="llamacpp:prompt_tokens_total",
        tokens="llamacpp:tokens_predicted_total",
        drafted="llamacpp:spec_decode_num_draft_tokens_total",
        accepted="llamacpp:spec_decode_num_accepted_tokens_total",
    ),
    titles=("llama-server", "ggml-rpc-server"),
    rank_titles=("llama-server", "ggml-rpc-server"),
    program="llama-server",
    command_line=re.compile(r"(?:^|/)(?:llama-server|ggml-rpc-server)\0"),
    config="llama.yaml",
    model_key="model",
    spelled=True,
    model_option="--model",
    # one that was started for embeddings alone refuses completions
    probes=(COMPLETION, ProbeRoute("/v1/embeddings", {"input": "1"}, "data")),
    key_variable="LLAMA_API_KEY",
    packages=("llama-cpp-programs",),
    programs=("llama-server", "ggml-rpc-server"),
    ending=".gguf",
    # since its b10398; the user's own place is in the environment
    hidden=("/etc/llama.cpp",),
    # its tools/server/server-http.cpp; some builds list their model meanwhile. Beside that /slots alone may say 503.
    says_loading=True,
    # /health, /metrics and /slots say 200 beside a worker that is gone, or stopped within a request
    keeps_serving_when_worker_idle_dead=True,
)
