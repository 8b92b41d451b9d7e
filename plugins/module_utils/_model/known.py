# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which models the plan knows, and what their classes in vLLM do that no field of config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Model types whose class makes the embedding and the head on every pipeline stage.
EVERYWHERE = ("qwen3_moe", "nemotron_h")

#: Fields that change what is cached, and the model types whose use of them is known.
_FIELDS: dict[str, tuple[str, ...]] = {
    "compress_ratios": ("deepseek_v4",),
    "sparse_attention_config": ("minimax_m3", "minimax_m3_vl"),
    "index_head_dim": ("deepseek_v32", "glm_moe_dsa", "deepseek_v4"),
    "kv_source_layers": (),
    "index_source_layers": (),
    "engram_layer_ids": (),
    "linear_attn_config": ("kimi_linear", "kimi_k3"),
}


def unknown_of(text: Mapping[str, Any]) -> list[str]:
    """What in a config changes the cache in a way that the plan does not know; empty for known models."""
    kind = str(text.get("model_type", ""))
    return [
        f"config.{field} of model_type {kind!r}"
        for field, models in _FIELDS.items()
        if text.get(field) not in (None, {}, [], 0) and kind not in models
    ]
