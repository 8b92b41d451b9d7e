# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of a model's config.json, whatever their spelling: text part, context, quantization, KV cache type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int

_GEMMA3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
QWEN4_TYPES = ("qwen4_exp", "qwen4_exp_text")
GLM5_NEXT_TYPES = ("glm5_next", "glm5_next_text")
DEEPSEEK_V41_TYPES = ("deepseek_v41", "deepseek_v41_text")
GATED_DELTA_TYPES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", *QWEN4_TYPES)
_GATED_DELTA = {
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}
#: types whose head is the embedding's table unless the file says otherwise (classes of Transformers 5.19)
_TIED = (
    *("bloom", "cohere", "cohere2", "ernie4_5", "ernie4_5_moe", "falcon_mamba", "gemma", "gemma2", "gemma3n"),
    *("gemma3n_text", "gemma4", "gemma4_text", "gpt2", "gpt_bigcode", "lfm2", "lfm2_moe", "mamba", "minicpm3", "opt"),
    *("smollm3", "starcoder2"),
)
#: What a model's class assumes where its config.json says nothing: published files leave out what equals it.
_CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    **{kind: {"tie_word_embeddings": True} for kind in _TIED},
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "falcon": {"max_position_embeddings": 2048, "tie_word_embeddings": True},
    **dict.fromkeys(GATED_DELTA_TYPES, _GATED_DELTA),
    # its checkpoints hold the gate, whatever their field says
    **{kind: {**_GATED_DELTA, "attn_output_gate": True} for kind in QWEN4_TYPES},
}
_NESTED = ("text_config", "llm_config", "language_config", "language_model_config")
#: spellings of which one counts
_ROPE = ("rope_scaling", "rope_parameters")


def first_of(config: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        value = config.get(name)
        if value is not None:
            return value
    return None


def int_or_none(config: Mapping[str, Any], names: Iterable[str]) -> Any:
    """What is written for each layer (Gemma 3n, Hunyuan) or each kind of expert (ERNIE-VL) counts as its largest."""
    value = first_of(config, names)
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    ):
        return max(value)
    return value


def required_int(config: Mapping[str, Any], names: Sequence[str]) -> int:
    value = int_or_none(config, names)
    if value is None:
        raise SizingError(
            f"config.{names[0]}",
            None,
            "is missing from the model's config",
            "Give the complete config.json of the model, or the field in the recipe's config.",
        )
    return as_int(f"config.{names[0]}", value)


def optional_int(config: Mapping[str, Any], names: Sequence[str], default: int) -> int:
    value = int_or_none(config, names)
    return default if value is None else as_int(f"config.{names[0]}", value, minimum=0)


def text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The decoder's part of a (possibly multimodal) config, with what only the outer level says added.

    Quantization, dtype and tied embeddings are written at either level, depending on the model and on the tool
    that quantized it.
    """
    if not isinstance(config, Mapping):
        raise SizingError("config", type(config).__name__, "is not a mapping", "Give the parsed config.json.")
    outer = dict(config)
    inner: Mapping[str, Any] | None = None
    thinker = outer.get("thinker_config")
    if isinstance(thinker, Mapping):
        outer = {**outer, **thinker}
    for key in _NESTED:
        if isinstance(outer.get(key), Mapping):
            inner = outer[key]
            break
    if inner is None:
        nested = outer.get("ffn_config")  # DBRX
        more = nested if isinstance(nested, Mapping) else {}
        outer.update({key: more[key] for key in ("ffn_hidden_size", "moe_num_experts", "moe_top_k") if key in more})
        return _with_class_defaults(outer)
    merged = dict(inner)
    for key in (
        "torch_dtype",
        "dtype",
        "quantization_config",
        "tie_word_embeddings",
        "model_type",
        "vocab_size",
        "num_key_value_heads",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
    ):
        if merged.get(key) is None and outer.get(key) is not None:
            merged[key] = outer[key]
    if "vision_config" in outer:
        merged["vision_config"] = outer["vision_config"]
    return _with_class_defaults(merged)


def _with_class_defaults(config: dict[str, Any]) -> dict[str, Any]:
    defaults = _CLASS_DEFAULTS.get(str(config.get("model_type")), {})
    return {**config, **{key: value for key, value in defaults.items() if config.get(key) is None}}


def with_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config as ``--hf-overrides`` changes it: parts of a nested config by field, all else as a whole."""
    changed = dict(config)
    for name, value in (overrides or {}).items():
        former = changed.get(name)
        nested = str(name).endswith("_config") and name != "quantization_config"
        if nested and isinstance(former, Mapping) and isinstance(value, Mapping):
            changed[name] = with_overrides(former, value)
        else:
            changed[name] = value
        if name in _ROPE:
            for other in _ROPE:
                if other not in (overrides or {}):
                    changed.pop(other, None)
    return changed


def stored_dtype(config: Mapping[str, Any]) -> str:
    return str(first_of(config, ("dtype", "torch_dtype")) or "bfloat16").removeprefix("torch.")


def run_dtype(config: Mapping[str, Any], asked: str = "auto") -> str:
    """The dtype that the engine computes in: the one asked for, else the model's, but half of it for float32."""
    name = asked.strip().lower()
    if name == "auto":
        name = stored_dtype(config)
        return "bfloat16" if name == "float32" else name
    return {"half": "float16", "float": "float32"}.get(name, name)


#: types of states alone, without any attention
ATTENTION_FREE = ("mamba", "mamba2", "falcon_mamba")


def has_linear_attention(config: Mapping[str, Any]) -> bool:
    return config.get("linear_num_value_heads") is not None or config.get("linear_num_key_heads") is not None


EXPANDED_LATENT = ("minicpm3",)


def is_latent(config: Mapping[str, Any]) -> bool:
    return (
        config.get("kv_lora_rank") is not None
        and config.get("qk_rope_head_dim") is not None
        and config.get("model_type") not in EXPANDED_LATENT
    )


def kv_from_checkpoint(quant: Mapping[str, Any]) -> str | None:
    """The KV dtype that a quantized checkpoint asks for, which the engine obeys when asked for `auto`."""
    scheme = quant.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type", "float") == "float" else "int8"
    nested = quant.get("quantization")
    algorithm = quant.get("kv_cache_quant_algo")
    if algorithm is None and isinstance(nested, Mapping):
        algorithm = nested.get("kv_cache_quant_algo")
    if isinstance(algorithm, str) and algorithm:
        low = algorithm.lower()
        return {"fp8": "fp8", "nvfp4": "nvfp4", "int8": "int8"}.get(low)
    return None


def quantization_name(config: Mapping[str, Any]) -> str:
    """A short name of how the checkpoint's linear layers are stored: none, fp8, nvfp4, mxfp4, int4 or int8."""
    quant = config.get("quantization_config") or config.get("compression_config") or {}
    if not isinstance(quant, Mapping) or not quant:
        return "none"
    method = str(quant.get("quant_method", "")).lower()
    algorithm = str(quant.get("quant_algo") or (quant.get("quantization") or {}).get("quant_algo") or "").lower()
    if method in ("fp8", "fbgemm_fp8") or algorithm in ("fp8", "fp8_pb_wo", "fp8_per_channel_per_token"):
        return "fp8"
    if "nvfp4" in algorithm or method in ("nvfp4", "modelopt_fp4") or algorithm == "mixed_precision":
        return "nvfp4"
    if method == "mxfp4" or "mxfp4" in algorithm:
        return "mxfp4"
    if method in ("awq", "gptq", "awq_marlin", "gptq_marlin", "auto-round", "quark"):
        return "int8" if quant.get("bits", quant.get("w_bit", 4)) == 8 else "int4"
    if method == "compressed-tensors":
        groups = quant.get("config_groups") or {}
        bits: list[tuple[int, str]] = []
        for group in groups.values():
            weights = (group or {}).get("weights") or {}
            if weights.get("num_bits"):
                bits.append((int(weights["num_bits"]), str(weights.get("type", "int"))))
        if bits:
            number, kind = min(bits)
            if number == 8:
                return "fp8" if kind == "float" else "int8"
            return "nvfp4" if kind == "float" else "int4"
    if method == "bitsandbytes":
        return "int4" if quant.get("load_in_4bit") else "int8"
    return method or "none"


def block_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """The weight block of a block-quantized FP8 checkpoint, such as (128, 128)."""
    quant = text_config(config).get("quantization_config")
    if not isinstance(quant, Mapping):
        return None
    blocks = quant.get("weight_block_size")
    if isinstance(blocks, (list, tuple)) and len(blocks) == 2:
        return as_int("config.weight_block_size", blocks[0]), as_int("config.weight_block_size", blocks[1])
    return None


def max_context(config: Mapping[str, Any]) -> int | None:
    """The longest context the model's positions allow, the way the engine derives it, or None if it has no limit."""
    text = text_config(config)
    limit = first_of(
        text,
        (
            "max_position_embeddings",
            "n_positions",
            "max_seq_len",
            "seq_length",
            "model_max_length",
            "max_sequence_length",
            "max_target_positions",
        ),
    )
    if limit is None:
        return None
    longest = as_int("config.max_position_embeddings", limit)
    rope = text.get("rope_parameters")
    if not isinstance(rope, Mapping) or not rope.get("factor"):
        rope = text.get("rope_scaling") or rope
    # Gemma 3 writes its limit with the scaling already in it
    if isinstance(rope, Mapping) and not str(text.get("model_type", "")).startswith("gemma3"):
        kind = rope.get("rope_type", rope.get("type"))
        factor = rope.get("factor")
        if kind in ("yarn", "linear", "dynamic", "ntk") and factor:
            if kind == "yarn" and rope.get("original_max_position_embeddings"):
                longest = as_int("config.original_max_position_embeddings", rope["original_max_position_embeddings"])
            longest = int(longest * float(factor))
    return longest
