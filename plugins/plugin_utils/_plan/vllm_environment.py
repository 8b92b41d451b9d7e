# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM's environment variables: those that a recipe may set, and values with which vLLM does not start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding

#: of vLLM and its forks: choices of kernels, whose values are numbers, and no places
KERNELS = re.compile(
    r"(?!.*_(?:DIR|PATH|FOLDER|FILE|HOST|IP|PORT|URL|SERVER|PLUGIN)S?$)VLLM_(?:USE_)?"
    r"(?:AITER|B12X|CUTLASS|DCP|DEEP_?GEMM|DEEPEP|FLASHINFER|HUMMING|MARLIN|MLA|MOE|MXFP[48]|NVFP4|OINK"
    r"|ROCM|SPARSE|TRITON|V2|XGRAMMAR)(?:_[A-Z0-9_]+)?"
)
#: lets a context be longer than the model's own
LONG = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
#: what recipes set besides
OF_RECIPES: tuple[str, ...] = (
    *(
        "VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN",
        LONG,
        "VLLM_ALLREDUCE_USE_SYMM_MEM",
    ),
    *("VLLM_ALLREDUCE_USE_FLASHINFER", "VLLM_BATCH_INVARIANT", "VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER"),
    *(
        "VLLM_COMPUTE_NANS_IN_LOGITS",
        "VLLM_CPU_KVCACHE_SPACE",
        "VLLM_DEEP_GEMM_WARMUP",
        "VLLM_DISABLE_COMPILE_CACHE",
    ),
    *("VLLM_DISABLE_PYNCCL", "VLLM_DISABLE_SHARED_EXPERTS_STREAM", "VLLM_ENABLE_CUDAGRAPH_GC"),
    *("VLLM_ENABLE_FLA_PACKED_RECURRENT_DECODE", "VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING"),
    *("VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE", "VLLM_ENABLE_PREGRAD_PASSES", "VLLM_ENABLE_V1_MULTIPROCESSING"),
    *("VLLM_ENGINE_READY_TIMEOUT_S", "VLLM_FLASHINFER_ALLREDUCE_BACKEND", "VLLM_FLASHINFER_MOE_BACKEND"),
    *("VLLM_FLOAT32_MATMUL_PRECISION", "VLLM_GDN_DECODE_KERNEL", "VLLM_KV_CACHE_LAYOUT", "VLLM_LOGGING_LEVEL"),
    *("VLLM_MARLIN_INPUT_DTYPE", "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS", "VLLM_MEMORY_PROFILE_INCLUDE_ATTN"),
    *(
        "VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD",
        "VLLM_PP_LAYER_PARTITION",
        "VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD",
    ),
    *("VLLM_SLEEP_WHEN_IDLE", "VLLM_SSM_CONV_STATE_LAYOUT", "VLLM_USE_AOT_COMPILE", "VLLM_USE_BREAKABLE_CUDAGRAPH"),
    *("VLLM_USE_FASTOKENS", "VLLM_USE_MEGA_AOT_ARTIFACT", "VLLM_USE_NCCL_SYMM_MEM", "VLLM_USE_STANDALONE_COMPILE"),
    *("VLLM_WORKER_MULTIPROC_METHOD", "VLLM_XGRAMMAR_CACHE_MB"),
)
#: ``env_with_choices`` of vllm/envs.py in 0.17.1, 0.20.1, 0.26.0, 0.31.0 and 0.33.0: all that one of them takes
CHOICES: Mapping[str, tuple[str, ...]] = {
    "VLLM_COMPILE_CACHE_SAVE_FORMAT": ("binary", "unpacked"),
    "VLLM_DEEP_GEMM_WARMUP": ("skip", "full", "relax"),
    "VLLM_FLASHINFER_ALLREDUCE_BACKEND": ("auto", "trtllm", "mnnvl"),
    "VLLM_FLASHINFER_MOE_BACKEND": ("throughput", "latency", "masked_gemm"),
    "VLLM_FLOAT32_MATMUL_PRECISION": ("highest", "high", "medium"),
    "VLLM_GDN_DECODE_KERNEL": ("cuda", "triton"),
    "VLLM_GPU_SYNC_CHECK": ("warn", "error"),
    "VLLM_KV_CACHE_LAYOUT": ("NHD", "HND", "LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"),
    "VLLM_MARLIN_INPUT_DTYPE": ("int8", "fp8"),
    "VLLM_MM_HASHER_ALGORITHM": ("blake3", "sha256", "sha512"),
    "VLLM_NVFP4_GEMM_BACKEND": (
        *("flashinfer-cudnn", "flashinfer-trtllm", "flashinfer-cutlass", "cutlass", "marlin", "emulation"),
    ),
    "VLLM_SSM_CONV_STATE_LAYOUT": ("SD", "DS"),
    "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE": ("auto", "nccl", "shm"),
    "VLLM_WORKER_MULTIPROC_METHOD": ("spawn", "fork"),
}
#: of these, capitals make no difference
_ANY_CASE = ("VLLM_FLOAT32_MATMUL_PRECISION", "VLLM_GDN_DECODE_KERNEL", "VLLM_MM_HASHER_ALGORITHM")


def choice_problems(environment: Mapping[str, Any]) -> Iterator[Finding]:
    """Values that no version of vLLM takes, empty ones as well."""
    for name, choices in CHOICES.items():
        if name not in environment:
            continue
        text = str(environment[name])
        if (text.lower() if name in _ANY_CASE else text) not in choices:
            what = "is no value that vLLM knows, and it does not start with it"
            yield Finding("value", what, f"give one of {', '.join(choices)}, or leave it out", where=name, value=text)


def allows_long(environment: Mapping[str, Any]) -> bool:
    return str(environment.get(LONG, "")).strip().lower() in ("1", "true")
