# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kind each decoder layer is, from a list, a letter pattern or a rule in config.json.

A kind is one of attention, sliding, chunked, linear, mamba, both (attention beside Mamba), conv, moe and mlp.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    ATTENTION_FREE,
    GLM5_NEXT_TYPES,
    first_of,
    has_linear_attention,
    optional_int,
    required_int,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int

_MOST_LAYERS = 10_000
_PATTERN_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
_KIND_OF_NAME = {
    "full_attention": "attention",
    "attention": "attention",
    "self_attention": "attention",
    "global_attention": "attention",
    # sparse ones cache every token, too: vLLM's own set (config/model.py, 0.33) and DeepSeek V4's name
    "indexed_attention": "attention",
    "deepseek_sparse_attention": "attention",
    "qwen_sparse_attention": "attention",
    "compressed_sparse_attention": "attention",
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "gated_deltanet": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "recurrent": "mamba",
    "hybrid": "both",
    "conv": "conv",
    "moe": "moe",
    "mlp": "mlp",
}
#: of a layer whose kind is not known: nothing takes more of the cache
ASSUMED = "attention"
_OF_MAMBA = ("mamba_d_state", "mamba_n_heads", "n_mamba_heads")


def strange_kinds(config: Mapping[str, Any]) -> list[str]:
    """Words and letters for layers that are not known here, which are planned as attention to the whole context."""
    pattern, names = config.get("hybrid_override_pattern"), first_of(config, ("layer_types", "layers_block_type"))
    if isinstance(pattern, str) and pattern:
        return sorted(set(pattern) - set(_PATTERN_LETTERS))
    if isinstance(names, (list, tuple)):
        return sorted({str(name) for name in names} - set(_KIND_OF_NAME))
    return []


def layer_kinds(config: Mapping[str, Any]) -> list[str]:
    """The kind of each decoder layer, from whichever of the many spellings the config uses."""
    pattern = config.get("hybrid_override_pattern")
    names = first_of(config, ("layer_types", "layers_block_type"))
    count_value = first_of(config, ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))
    if isinstance(pattern, str) and pattern:
        kinds = [_PATTERN_LETTERS.get(letter, ASSUMED) for letter in pattern]
    elif isinstance(names, (list, tuple)) and names:
        kinds = [_KIND_OF_NAME.get(str(name), ASSUMED) for name in names]
        if first_of(config, _OF_MAMBA) is not None:
            # Transformers 5 writes every state as linear attention
            kinds = ["mamba" if kind == "linear" else kind for kind in kinds]
    else:
        if count_value is None:
            required_int(config, ("num_hidden_layers",))
        kinds = _kinds_by_rule(config, _count(count_value))
    count = len(kinds) if count_value is None else _count(count_value)
    if len(kinds) == count + optional_int(config, ("num_nextn_predict_layers",), 0):
        kinds = kinds[:count]  # Step 3.5 names the layers that predict more than one token as well
    if count != len(kinds):
        raise SizingError(
            "config.num_hidden_layers",
            count_value,
            f"disagrees with the {len(kinds)} layers that the layer pattern names",
            "One of the two is wrong: use the config.json of one model, unchanged.",
        )
    return kinds


def _count(value: Any) -> int:
    count = as_int("config.num_hidden_layers", value)
    if count > _MOST_LAYERS:
        what = f"is more than {_MOST_LAYERS}, which no model has"
        raise SizingError("config.num_hidden_layers", value, what, "Use the config.json of the model, unchanged.")
    return count


def _kinds_by_rule(config: Mapping[str, Any], count: int) -> list[str]:
    """Layer kinds of configs that give a rule (an interval, an offset, a list of indices) and no list."""
    interval = first_of(config, ("full_attention_interval",))
    if interval is not None and has_linear_attention(config):
        every = as_int("config.full_attention_interval", interval)
        return ["attention" if (index + 1) % every == 0 else "linear" for index in range(count)]

    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), (list, tuple)):
        full = {int(number) - 1 for number in linear["full_attn_layers"]}  # counted from one
        return ["attention" if index in full else "linear" for index in range(count)]

    if config.get("model_type") in GLM5_NEXT_TYPES:
        return ["attention" if index % 4 == 3 else "linear" for index in range(count)]

    types = config.get("attn_type_list")
    if isinstance(types, (list, tuple)) and len(types) == count:
        return ["attention" if int(number) == 1 else "linear" for number in types]

    indices = config.get("attn_layer_indices")
    if isinstance(indices, (list, tuple)):
        wanted = {int(number) for number in indices}
        return ["attention" if index in wanted else "mamba" for index in range(count)]

    full_indices = config.get("full_attn_idxs")
    if isinstance(full_indices, (list, tuple)):  # LFM2
        wanted = {int(number) for number in full_indices}
        return ["attention" if index in wanted else "conv" for index in range(count)]

    period = config.get("attn_layer_period")
    if period is not None:
        every = as_int("config.attn_layer_period", period)
        offset = optional_int(config, ("attn_layer_offset",), 0)
        return ["attention" if index % every == offset else "mamba" for index in range(count)]

    if config.get("model_type") in ("falcon_h1",):
        return ["both"] * count
    if config.get("model_type") in ATTENTION_FREE:
        return ["mamba"] * count
    return _sliding_kinds(config, count)


def _sliding_kinds(config: Mapping[str, Any], count: int) -> list[str]:
    window = config.get("sliding_window")
    chunk = config.get("attention_chunk_size")
    model_type = str(config.get("model_type", ""))
    if chunk and (config.get("no_rope_layers") or model_type.startswith("llama4")):
        # Llama 4: layers without rotary embedding see everything, the others a chunk.  Published with an empty list,
        # which stands for every fourth layer.
        every = optional_int(config, ("no_rope_layer_interval",), 4) or 4
        flags = config.get("no_rope_layers") or [(index + 1) % every for index in range(count)]
        return ["chunked" if int(flag) else "attention" for flag in flags][:count]
    numbers = config.get("hybrid_layer_pattern")
    if isinstance(numbers, (list, tuple)):
        # MiMo V2: 1 slides, 0 sees everything
        return ["sliding" if int(flag) else "attention" for flag in numbers]
    if not window or config.get("use_sliding_window") is False:
        return ["attention"] * count
    pattern = first_of(config, ("sliding_window_pattern", "_sliding_window_pattern"))
    if pattern is None and model_type.startswith(("gemma3", "gemma3n")):
        pattern = 6
    if pattern is None and model_type.startswith("gemma2"):
        pattern = 2
    if pattern is None and model_type.startswith("gpt_oss"):
        pattern = 2
    if isinstance(pattern, int) and pattern > 1:
        return ["attention" if (index + 1) % pattern == 0 else "sliding" for index in range(count)]
    if model_type.startswith("qwen") and config.get("max_window_layers") is not None:
        first = optional_int(config, ("max_window_layers",), count)
        return ["sliding" if index >= first else "attention" for index in range(count)]
    return ["sliding"] * count
