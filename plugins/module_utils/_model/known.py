# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models the plan knows, and what their classes in the engine do that no field of config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    DEEPSEEK_V41_TYPES,
    GATED_DELTA_TYPES,
    GLM5_NEXT_TYPES,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layer_kinds import strange_kinds

#: Model types whose class makes the embedding on every pipeline stage (vLLM 0.32's sources); those after it make the
#: head on every stage as well.
EMBEDDING_EVERYWHERE = ("lfm2", "lfm2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text")
BOTH_EVERYWHERE = (
    *("chatglm", "cohere", "cohere2", "falcon", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"),
    *("gemma4", "gemma4_text", "gpt_oss", "gptj", "granitemoe", "granitemoehybrid", "internlm2", "jamba", "mamba2"),
    *("minicpm", "mixtral", "nemotron_h", "olmoe", "orion", "phimoe", "qwen2_moe", "qwen3_moe", "qwen3_next"),
    *("qwen3_vl_moe", "qwen3_vl_moe_text", "stablelm"),
)

#: Model types with a learned table of positions beside the embedding.
LEARNED_POSITIONS = ("gpt2", "opt")

#: Model types whose attention the other fields describe; of a nested config the text model's type counts.
TYPES = frozenset(
    (
        *("afmoe", "apertus", "arcee", "aria_text", "axk1", "baichuan", "bailing_moe", "bamba", "bloom"),
        *("chatglm", "cohere", "cohere2", "cohere2_moe", "cwm", "dbrx", "deepseek", "deepseek_v2", "deepseek_v3"),
        *("deepseek_v32", "deepseek_v4", *DEEPSEEK_V41_TYPES, "dots1", "ernie4_5", "ernie4_5_moe", "ernie4_5_moe_vl"),
        *("ernie4_5_moe_vl_text", "exaone", "exaone4", "exaone_moe", "falcon", "falcon_h1", "falcon_mamba"),
        *("flex_olmo", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "gemma4"),
        *("gemma4_text", "gemma4_unified", "gemma4_unified_text", "glm", "glm4", "glm4_moe", "glm4_moe_lite"),
        *(
            "glm4v",
            "glm4v_text",
            "glm5_next",
            "glm5_next_text",
            "glm_moe_dsa",
            "gpt2",
            "gpt_neox",
            "gpt_oss",
            "gptj",
            "granite",
            "granitemoe",
        ),
        *("granitemoehybrid", "granitemoeshared", "helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "hyperclovax"),
        *("internlm2", "internlm3", "jais2", "jamba", "kimi_k2", "kimi_k25", "kimi_k3", "kimi_linear", "laguna"),
        *("lfm2", "lfm2_moe", "llama", "llama4", "llama4_text", "longcat_flash", "mamba", "mamba2", "mellum"),
        *("mimo", "mimo_v2", "mimo_v2_flash", "minicpm", "minicpm3", "minimax", "minimax_m1", "minimax_m2"),
        "minimax_m3",
        *("minimax_m3_vl", "minimax_text_01", "ministral", "ministral3", "mistral", "mistral3", "mixtral", "mpt"),
        *("nemotron", "nemotron-nas", "nemotron_h", "olmo", "olmo2", "olmo3", "olmoe", "opt", "orion", "phi"),
        *("phi3", "phimoe", "qwen2", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_moe", "qwen2_vl", "qwen2_vl_text"),
        *("qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next"),
        *("qwen3_vl", "qwen3_vl_moe", "qwen3_vl_moe_text", "qwen3_vl_text", "qwen4_exp", "qwen4_exp_text"),
        *("seed_oss", "smollm3", "solar", "solar_open", "stablelm", "starcoder2", "step3p5", "step3p7"),
        *("vaultgemma", "xverse", "youtu"),
    )
)

#: Fields that change what is cached, and the model types whose use of them is known.
_FIELDS: dict[str, tuple[str, ...]] = {
    "compress_ratios": ("deepseek_v4", *DEEPSEEK_V41_TYPES),
    "sparse_attention_config": ("minimax_m3", "minimax_m3_vl"),
    "index_head_dim": ("deepseek_v32", "glm_moe_dsa", "deepseek_v4", *DEEPSEEK_V41_TYPES, *GLM5_NEXT_TYPES),
    "kv_source_layers": (),
    "index_source_layers": (),
    "engram_layer_ids": DEEPSEEK_V41_TYPES,
    "linear_attn_config": ("kimi_linear", "kimi_k3", *GLM5_NEXT_TYPES),
    "full_attention_interval": GATED_DELTA_TYPES,
}


def unknown_of(text: Mapping[str, Any]) -> list[str]:
    """What in a config changes the cache in a way that the plan does not know; empty for known models."""
    kind = str(text.get("model_type") or "")
    unknown = [
        f"config.{field} of model_type {kind!r}"
        for field, models in _FIELDS.items()
        if text.get(field) not in (None, {}, [], 0) and kind not in models
    ]
    unknown += [
        f"layers of type {word!r} (planned as attention that keeps the whole context)" for word in strange_kinds(text)
    ]
    if kind and kind not in TYPES:
        unknown.append(f"model_type {kind!r} (its attention is planned as the fields that are known say)")
    return unknown
