# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of environment variables with which vLLM does not start, because it knows all that may be given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding

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
