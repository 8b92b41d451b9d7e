# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An SGLang command line as others wrote it, and what sparkrun makes of a recipe for SGLang without one.

The installed release's own table decides later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import sglang_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.open_command import read_open
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import ServedModel

#: options that a recipe states as fields, by the names of those
_FIELDS = {
    **dict.fromkeys(("tp-size", "tensor-parallel-size", "tp"), "tensor-parallel-size"),
    **dict.fromkeys(("pp-size", "pipeline-parallel-size", "pp"), "pipeline-parallel-size"),
    "context-length": "max-model-len",
    "served-model-name": "served-model-name",
}
#: what the role decides, so that a recipe of others cannot bring it
DECIDED = frozenset(sglang_args.OWNED) - frozenset(_FIELDS)
_STARTS = re.compile(r"sglang serve|python3? -m sglang\.launch_server")
#: sparkrun's names that are not SGLang's with underscores
_PASSED = {
    "tensor_parallel": "tp-size",
    "pipeline_parallel": "pp-size",
    "data_parallel": "dp-size",
    "gpu_memory_utilization": "mem-fraction-static",
    "max_model_len": "context-length",
    "max_num_seqs": "max-running-requests",
    "chunked_prefill": "chunked-prefill-size",
    **{
        name: name.replace("_", "-")
        for name in (
            *("port", "host", "served_model_name", "dtype", "quantization", "trust_remote_code", "kv_cache_dtype"),
            *("tokenizer_path", "api_key", "attention_backend", "load_format", "reasoning_parser", "tool_call_parser"),
            *("mm_feature_transport", "speculative_algorithm", "speculative_draft_model_path", "enable_dp_attention"),
            *("speculative_draft_model_revision", "speculative_num_steps", "speculative_eagle_topk"),
            *("speculative_num_draft_tokens", "speculative_dspark_block_size", "cuda_graph_bs", "cuda_graph_max_bs"),
            *("cuda_graph_max_bs_decode", "torch_compile_max_bs", "num_continuous_decode_steps", "fp8_gemm_backend"),
            *("fp4_gemm_backend", "moe_runner_backend", "mamba_ssm_dtype", "mamba_full_memory_ratio"),
            *("enable_torch_compile", "disable_radix_cache", "disable_prefill_cuda_graph"),
        )
    },
}


def read_sglang(text: str, called: str) -> ServedModel:
    """The start of SGLang in a shell command; what stands before and after it is named in the notes."""
    served, options = read_open(text, called, _STARTS, "sglang serve")
    for name, values in options:
        _put(served, name, values)
    return served


def from_sparkrun(defaults: Mapping[str, Any]) -> ServedModel:
    """What sparkrun passes on of ``defaults`` where a recipe has no command."""
    served = ServedModel()
    for key, value in defaults.items():
        if key not in _PASSED:
            served.notes.append(f"defaults.{key} (the original tool does not pass it on without a command)")
        elif value not in (None, False):
            _put(served, _PASSED[key], [] if value is True else value if isinstance(value, list) else [value])
    return served


def _put(served: ServedModel, name: str, values: list[Any]) -> None:
    if name in ("model-path", "model"):
        served.model = str(values[0]) if values else ""
        return
    # what comes last counts, as in SGLang
    served.flags[_FIELDS.get(name, name)] = values[0] if len(values) == 1 else values or True
