# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's config.json in one vocabulary: its layers, what each caches, and how many parameters each holds.

Pure and standard library only. The many spellings of the hub (nested text configs, layer lists, intervals, letter
patterns, latent attention) end here; everything after this file sees a Shape.

Words used below: a *layer* caches either keys and values of the whole context (full attention), of a window
(sliding or chunked attention), a state of constant size per sequence (Mamba, linear attention, short
convolution), or nothing (a feed-forward block of its own, as in Nemotron-H).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

FULL, WINDOW, STATE, NONE = "full", "window", "state", "none"


class SizingError(ValueError):
    """An input that cannot be planned: which variable, which value, and what to do about it."""

    def __init__(self, variable: str, value: Any, problem: str, mend: str) -> None:
        self.variable = variable
        self.value = value
        self.problem = problem
        self.mend = mend
        super().__init__(f"{variable}={value!r}: {problem}. {mend}")


# --------------------------------------------------------------------------------------------------------------
# Reading values that come from YAML, Jinja and JSON


def as_int(variable: str, value: Any, *, minimum: int = 1) -> int:
    """An integer of at least `minimum`; strings of digits count, because templates make them."""
    number = value
    if isinstance(value, str) and value.strip().lstrip("+").isdigit():
        number = int(value.strip())
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise SizingError(variable, value, "is not an integer", f"Give a whole number of at least {minimum}.")
    if number < minimum:
        raise SizingError(variable, value, f"is below {minimum}", f"Give a whole number of at least {minimum}.")
    return number


def as_fraction(variable: str, value: Any) -> float:
    """A share of memory, above 0 and at most 1."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise SizingError(variable, value, "is not a number", "Give a share between 0 and 1, such as 0.85.") from None
    if not 0.0 < number <= 1.0:
        raise SizingError(variable, value, "is not between 0 and 1", "Give a share of memory such as 0.85.")
    return number


def parse_length(variable: str, value: Any) -> int:
    """A number as vLLM reads it: 32768, 32k (thousands) or 32K (1024s)."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", value.strip())
        if match:
            power = "kmgt".index(match.group(2).lower()) + 1
            return int(Fraction(match.group(1)) * (1000 if match.group(2).islower() else 1024) ** power)
    return as_int(variable, value)


# --------------------------------------------------------------------------------------------------------------
# Element sizes

_DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}


def dtype_bytes(variable: str, name: Any) -> int:
    """Bytes of one element of a torch dtype name, with or without the `torch.` prefix."""
    key = str(name).removeprefix("torch.")
    if key not in _DTYPE_BYTES:
        raise SizingError(variable, name, "is not a known dtype", f"Known: {', '.join(sorted(_DTYPE_BYTES))}.")
    return _DTYPE_BYTES[key]


# --------------------------------------------------------------------------------------------------------------
# The model's shape


@dataclass(frozen=True)
class Layer:
    """What one decoder layer caches and how many parameters it holds."""

    cache: str  # FULL, WINDOW, STATE or NONE
    window: int = 0
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    latent: bool = False
    #: bytes per token and layer that are added to the latent cache (the sparse-attention indexer)
    extra_bytes: int = 0
    #: state elements that divide by TP: (convolution, recurrent)
    conv_state: int = 0
    ssm_state: int = 0
    #: caches of the same layer beside the above (Falcon-H1 runs attention and Mamba side by side)
    caches_per_layer: int = 1
    attention_params: int = 0
    kv_params: int = 0
    dense_params: int = 0
    expert_params: int = 0
    active_expert_params: int = 0
    replicated_params: int = 0


@dataclass(frozen=True)
class Shape:
    """The part of a config.json that sizing needs, in one vocabulary."""

    model_type: str
    hidden: int
    layers: tuple[Layer, ...]
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    dtype: str
    kv_auto: str
    ssm_dtype: str
    max_position: int | None
    experts: int
    experts_per_token: int
    moe_intermediate: int
    intermediate: int
    latent: bool
    quantization: str
    quant_config: Mapping[str, Any] = field(default_factory=dict)
    vision_params: int = 0

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def count(self, cache: str) -> int:
        return sum(1 for layer in self.layers if layer.cache == cache)


_GEMMA3 = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": True,
}
#: What a model's class assumes where its config.json says nothing: published files leave out what equals it.
_CLASS_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "falcon": {"max_position_embeddings": 2048},
}

_NESTED = ("text_config", "llm_config", "language_config", "language_model_config")


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


def _first(config: Mapping[str, Any], names: Iterable[str]) -> Any:
    for name in names:
        value = config.get(name)
        if value is not None:
            return value
    return None


#: spellings of which one counts
_ROPE = ("rope_scaling", "rope_parameters")


def with_overrides(config: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config as vLLM's ``--hf-overrides`` changes it: parts of a nested config by field, all else as a whole."""
    changed = dict(config)
    for name, value in (overrides or {}).items():
        former = changed.get(name)
        nested = name.endswith("_config") and name != "quantization_config"
        if nested and isinstance(former, Mapping) and isinstance(value, Mapping):
            changed[name] = with_overrides(former, value)
        else:
            changed[name] = value
        if name in _ROPE:
            for other in _ROPE:
                if other not in (overrides or {}):
                    changed.pop(other, None)
    return changed


def _number(config: Mapping[str, Any], names: Iterable[str]) -> Any:
    """What is written for each layer (Gemma 3n, Hunyuan) or each kind of expert (ERNIE-VL) counts as its largest."""
    value = _first(config, names)
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    ):
        return max(value)
    return value


def _need(config: Mapping[str, Any], names: Sequence[str]) -> int:
    value = _number(config, names)
    if value is None:
        raise SizingError(
            f"config.{names[0]}",
            None,
            "is missing from the model's config",
            "Give the complete config.json of the model, or the field in the recipe's config.",
        )
    return as_int(f"config.{names[0]}", value)


def _optional(config: Mapping[str, Any], names: Sequence[str], default: int) -> int:
    value = _number(config, names)
    return default if value is None else as_int(f"config.{names[0]}", value, minimum=0)


_PATTERN_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}

_KIND_OF_NAME = {
    "full_attention": "attention",
    "attention": "attention",
    "self_attention": "attention",
    "global_attention": "attention",
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


def layer_kinds(config: Mapping[str, Any]) -> list[str]:
    """The kind of each decoder layer, from whichever of the many spellings the config uses."""
    pattern = config.get("hybrid_override_pattern")
    names = _first(config, ("layer_types", "layers_block_type"))
    count_value = _first(config, ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))
    if isinstance(pattern, str) and pattern:
        unknown = sorted(set(pattern) - set(_PATTERN_LETTERS))
        if unknown:
            raise SizingError(
                "config.hybrid_override_pattern",
                pattern,
                f"has unknown letters {unknown}",
                f"Known are {', '.join(f'{k} ({v})' for k, v in _PATTERN_LETTERS.items())}.",
            )
        kinds = [_PATTERN_LETTERS[letter] for letter in pattern]
    elif isinstance(names, (list, tuple)) and names:
        kinds = []
        for name in names:
            if name not in _KIND_OF_NAME:
                raise SizingError(
                    "config.layer_types",
                    name,
                    "is not a known layer type",
                    f"Known: {', '.join(sorted(_KIND_OF_NAME))}.",
                )
            kinds.append(_KIND_OF_NAME[name])
    else:
        if count_value is None:
            _need(config, ("num_hidden_layers",))
        kinds = _kinds_by_rule(config, as_int("config.num_hidden_layers", count_value))
    count = len(kinds) if count_value is None else as_int("config.num_hidden_layers", count_value)
    if len(kinds) == count + _optional(config, ("num_nextn_predict_layers",), 0):
        kinds = kinds[:count]  # Step 3.5 names the layers that predict more than one token as well
    if count != len(kinds):
        raise SizingError(
            "config.num_hidden_layers",
            count_value,
            f"disagrees with the {len(kinds)} layers that the layer pattern names",
            "One of the two is wrong: use the config.json of one model, unchanged.",
        )
    return kinds


def _kinds_by_rule(config: Mapping[str, Any], count: int) -> list[str]:
    """Layer kinds of configs that give a rule (an interval, an offset, a list of indices) and no list."""
    interval = _first(config, ("full_attention_interval",))
    if interval is not None and _has_linear_attention(config):
        every = as_int("config.full_attention_interval", interval)
        return ["attention" if (index + 1) % every == 0 else "linear" for index in range(count)]

    linear = config.get("linear_attn_config")
    if isinstance(linear, Mapping) and isinstance(linear.get("full_attn_layers"), (list, tuple)):
        full = {int(number) - 1 for number in linear["full_attn_layers"]}  # counted from one
        return ["attention" if index in full else "linear" for index in range(count)]

    types = config.get("attn_type_list")
    if isinstance(types, (list, tuple)) and len(types) == count:
        return ["attention" if int(number) == 1 else "linear" for number in types]

    indices = config.get("attn_layer_indices")
    if isinstance(indices, (list, tuple)):
        wanted = {int(number) for number in indices}
        return ["attention" if index in wanted else "mamba" for index in range(count)]

    period = config.get("attn_layer_period")
    if period is not None:
        every = as_int("config.attn_layer_period", period)
        offset = _optional(config, ("attn_layer_offset",), 0)
        return ["attention" if index % every == offset else "mamba" for index in range(count)]

    if config.get("model_type") in ("falcon_h1",):
        return ["both"] * count
    if config.get("model_type") in ("mamba", "mamba2", "falcon_mamba"):
        return ["mamba"] * count
    return _sliding_kinds(config, count)


def _has_linear_attention(config: Mapping[str, Any]) -> bool:
    return config.get("linear_num_value_heads") is not None or config.get("linear_num_key_heads") is not None


def _sliding_kinds(config: Mapping[str, Any], count: int) -> list[str]:
    window = config.get("sliding_window")
    chunk = config.get("attention_chunk_size")
    model_type = str(config.get("model_type", ""))
    if chunk and (config.get("no_rope_layers") or model_type.startswith("llama4")):
        # Llama 4: layers without rotary embedding see everything, the others a chunk.  Published with an empty list,
        # which stands for every fourth layer.
        every = _optional(config, ("no_rope_layer_interval",), 4) or 4
        flags = config.get("no_rope_layers") or [(index + 1) % every for index in range(count)]
        return ["chunked" if int(flag) else "attention" for flag in flags][:count]
    numbers = config.get("hybrid_layer_pattern")
    if isinstance(numbers, (list, tuple)):
        # MiMo V2: 1 slides, 0 sees everything
        return ["sliding" if int(flag) else "attention" for flag in numbers]
    if not window or config.get("use_sliding_window") is False:
        return ["attention"] * count
    pattern = _first(config, ("sliding_window_pattern", "_sliding_window_pattern"))
    if pattern is None and model_type.startswith(("gemma3", "gemma3n")):
        pattern = 6
    if pattern is None and model_type.startswith("gemma2"):
        pattern = 2
    if pattern is None and model_type.startswith("gpt_oss"):
        pattern = 2
    if isinstance(pattern, int) and pattern > 1:
        return ["attention" if (index + 1) % pattern == 0 else "sliding" for index in range(count)]
    if model_type.startswith("qwen") and config.get("max_window_layers") is not None:
        first = _optional(config, ("max_window_layers",), count)
        return ["sliding" if index >= first else "attention" for index in range(count)]
    return ["sliding"] * count


_LATENT_EXCEPTIONS = ("minicpm3",)


def _is_latent(config: Mapping[str, Any]) -> bool:
    return (
        config.get("kv_lora_rank") is not None
        and config.get("qk_rope_head_dim") is not None
        and config.get("model_type") not in _LATENT_EXCEPTIONS
    )


def _kv_from_checkpoint(quant: Mapping[str, Any]) -> str | None:
    """The KV dtype that a quantized checkpoint asks for, which vLLM obeys when asked for `auto`."""
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
    """The longest context the model's positions allow, the way vLLM derives it, or None if it has no limit."""
    text = text_config(config)
    limit = _first(
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


def read_shape(config: Mapping[str, Any]) -> Shape:
    """Translate a config.json into a Shape; raises SizingError with the field that is missing or wrong."""
    text = text_config(config)
    found = text.get("attn_config")
    attn: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    hidden = _need(text, ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim"))
    kinds = layer_kinds(text)
    needs_attention = any(kind in ("attention", "sliding", "chunked", "both") for kind in kinds)
    head_names = ("num_attention_heads", "n_head", "n_heads", "num_heads")
    heads = _need(text, head_names) if needs_attention else _optional(text, head_names, 0)
    kv_heads = _kv_heads(text, attn, heads)
    head_dim = _head_dim(text, hidden, heads)
    latent = _is_latent(text)
    quant = text.get("quantization_config") or {}
    if not isinstance(quant, Mapping):
        quant = {}
    dtype = str(_first(text, ("dtype", "torch_dtype")) or "bfloat16").removeprefix("torch.")
    dtype_bytes("config.dtype", dtype)
    experts = _optional(text, ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 0)
    per_token = _optional(text, _EXPERTS_PER_TOKEN, 0)
    moe_inter = _optional(text, ("moe_intermediate_size", "expert_ffn_hidden_size"), 0)
    blocks = _blocks(text, len(kinds), hidden)
    inter = max((block.width for block in blocks), default=0) or _intermediate(text, hidden, kinds, experts)
    if experts and not moe_inter:
        moe_inter = _optional(text, ("intermediate_size",), inter)
    ssm = _first(text, ("mamba_ssm_cache_dtype", "mamba_ssm_dtype"))
    ffn = _FeedForward(text, hidden, kinds, experts, per_token, moe_inter, inter)
    layers = tuple(
        _layer(index, kind, ffn, text, hidden, heads, kv_heads, head_dim, latent) for index, kind in enumerate(kinds)
    )
    layers = _without_shared_caches(text, layers)
    if blocks:
        kv_heads = max(heads // (block.heads_in_group or heads) for block in blocks)
        layers = tuple(
            _described(layer, block, text, ffn, hidden, heads, head_dim)
            for layer, block in zip(layers, blocks, strict=True)
        )
    return Shape(
        model_type=str(text.get("model_type", "")),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=_optional(text, ("vocab_size", "padded_vocab_size"), 0),
        tied=bool(text.get("tie_word_embeddings", False)),
        dtype=dtype,
        kv_auto=_kv_from_checkpoint(quant) or dtype,
        ssm_dtype=str(ssm or dtype).removeprefix("torch."),
        max_position=max_context(text),
        experts=experts,
        experts_per_token=per_token,
        moe_intermediate=moe_inter,
        intermediate=inter,
        latent=latent,
        quantization=quantization_name(text),
        quant_config=quant,
        vision_params=_vision_params(text.get("vision_config")),
    )


_EXPERTS_PER_TOKEN = (
    *("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k", "top_k_experts", "top_k"),
)


def _intermediate(text: Mapping[str, Any], hidden: int, kinds: Sequence[str], experts: int) -> int:
    """The width of a dense feed-forward block: four times the model's where nobody says (GPT-2, BLOOM, Falcon)."""
    # Llama 4 keeps its dense layers' width apart from its experts'
    names = ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim")
    inter = _optional(text, (*names, "ff_intermediate_size"), 0)
    if inter or experts or any(kind in ("mamba", "moe", "mlp") for kind in kinds):
        return inter
    return 4 * hidden


def _kv_heads(text: Mapping[str, Any], attn: Mapping[str, Any], heads: int) -> int:
    if text.get("model_type") == "falcon" and not text.get("new_decoder_architecture") and text.get("multi_query"):
        return 1
    value = _first(
        text,
        (
            *("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_query_groups"),
            *("num_attention_groups", "n_kv_heads"),
        ),
    )
    if value is None:
        value = attn.get("kv_n_heads")
    return heads if value is None else as_int("config.num_key_value_heads", value)


def _head_dim(text: Mapping[str, Any], hidden: int, heads: int) -> int:
    value = _first(text, ("head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels"))
    if value is not None and as_int("config.head_dim", value, minimum=0) > 0:
        return int(value)
    if not heads:
        return 0
    if text.get("qk_nope_head_dim") and text.get("qk_rope_head_dim"):
        return int(text["qk_nope_head_dim"]) + int(text["qk_rope_head_dim"])
    if hidden % heads:
        raise SizingError(
            "config.hidden_size",
            hidden,
            f"does not divide by {heads} attention heads, and the config gives no head_dim",
            "Give head_dim in the model's config.",
        )
    return hidden // heads


def _without_shared_caches(text: Mapping[str, Any], layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers that read another layer's cache (the last ones of Gemma 3n and 4) hold none of their own."""
    shared = _optional(text, ("num_kv_shared_layers",), 0)
    if not shared:
        return layers
    first = len(layers) - min(shared, len(layers))
    return tuple(
        layer if index < first else Layer(**{**layer.__dict__, "cache": NONE, "kv_heads": 0})
        for index, layer in enumerate(layers)
    )


@dataclass(frozen=True)
class _Block:
    """One entry of block_configs, of models whose layers were found by search (Nemotron Super 49B, Ultra 253B)."""

    attention: str  # "", "no_op" or "linear"
    heads_in_group: int
    ffn: str
    width: int


def _blocks(text: Mapping[str, Any], count: int, hidden: int) -> list[_Block]:
    blocks = text.get("block_configs")
    if not isinstance(blocks, (list, tuple)):
        return []
    if len(blocks) != count:
        raise SizingError(
            "config.num_hidden_layers",
            count,
            f"disagrees with the {len(blocks)} layers of block_configs",
            "One of the two is wrong: use the config.json of one model, unchanged.",
        )

    def kind(part: Mapping[str, Any]) -> str:
        return "no_op" if part.get("no_op") else "linear" if part.get("replace_with_linear") else ""

    found = []
    for block in blocks:
        attention, ffn = block.get("attention") or {}, block.get("ffn") or {}
        # two thirds of the multiple, rounded up to 256, as the model's own code does
        width = -(-int(2 * float(ffn.get("ffn_mult") or 0) * hidden / 3) // 256) * 256
        group = _optional(attention, ("n_heads_in_group",), 0)
        found.append(_Block(kind(attention), 0 if kind(attention) else group, kind(ffn), 0 if kind(ffn) else width))
    return found


def _described(
    layer: Layer, block: _Block, text: Mapping[str, Any], ffn: _FeedForward, hidden: int, heads: int, head_dim: int
) -> Layer:
    """The layer as its entry of block_configs has it."""
    linear = hidden * hidden
    dense = linear if block.ffn == "linear" else ffn.matrices * hidden * block.width
    changes: dict[str, Any] = {"dense_params": dense}
    if block.attention:
        rest = linear if block.attention == "linear" else 0
        changes.update(cache=NONE, kv_heads=0, kv_params=0, attention_params=rest)
    else:
        changes.update(_attention(text, hidden, heads, heads // (block.heads_in_group or 1), head_dim))
    return Layer(**{**layer.__dict__, **changes})


def _vision_params(vision: Any) -> int:
    """A rough count for the vision tower; it is small beside the decoder and only shifts the weights slightly."""
    if not isinstance(vision, Mapping):
        return 0
    # Qwen2-VL's hidden_size is the language model's
    width = _first(vision, ("embed_dim", "hidden_size", "width"))
    depth = _first(vision, ("depth", "num_hidden_layers", "layers"))
    if not isinstance(width, int) or not isinstance(depth, int):
        return 0
    inter = _first(vision, ("intermediate_size",))
    inter = inter if isinstance(inter, int) else 4 * width
    return depth * (4 * width * width + 2 * width * inter)


#: feed-forward blocks of two matrices, whatever the activation
_WITHOUT_GATE = ("falcon", "bloom", "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "mpt", "starcoder2")


def _shared_width(text: Mapping[str, Any], moe_inter: int, inter: int) -> int:
    """Width of what every token passes beside its experts."""
    width = _optional(
        text, ("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "share_expert_dim"), 0
    )
    if width:
        return width
    if text.get("enable_moe_block"):
        return inter  # Gemma 4: the dense block stays beside the experts
    one = 1 if str(text.get("model_type", "")).startswith("llama4") else 0
    return _optional(text, ("n_shared_experts", "num_shared_experts", "num_shared_expert"), one) * moe_inter


def _other_experts(text: Mapping[str, Any], layers: int) -> int:
    """Widths together of experts of another kind than the largest (those for images of ERNIE-VL)."""
    counts, widths = text.get("moe_num_experts"), text.get("moe_intermediate_size")
    if not isinstance(counts, (list, tuple)) or not isinstance(widths, (list, tuple)) or len(counts) == layers:
        return 0
    kinds = sorted(((int(width), int(count)) for width, count in zip(widths, counts, strict=False)), reverse=True)
    return sum(width * count for width, count in kinds[1:])


class _FeedForward:
    """How many parameters the feed-forward part of layer i holds, and how many of them a token reads."""

    def __init__(
        self,
        text: Mapping[str, Any],
        hidden: int,
        kinds: Sequence[str],
        experts: int,
        per_token: int,
        moe_inter: int,
        inter: int,
    ) -> None:
        self.hidden = hidden
        self.kinds = kinds
        self.experts = experts
        self.per_token = per_token
        self.inter = inter
        # relu2 has no gate: two matrices instead of three
        activation = str(_first(text, ("mlp_hidden_act", "hidden_act", "activation_function")) or "silu")
        plain = text.get("model_type") in _WITHOUT_GATE or activation in ("relu2", "gelu_new", "relu")
        self.matrices = 2 if plain else 3
        self.latent = _optional(text, ("moe_latent_size",), 0)
        expert_width = self.latent or hidden
        self.one_expert = self.matrices * expert_width * moe_inter
        self.other_experts = self.matrices * hidden * _other_experts(text, len(kinds))
        self.shared = self.matrices * hidden * _shared_width(text, moe_inter, inter)
        self.first_dense = _optional(text, ("first_k_dense_replace", "moe_layer_start_index"), 0)
        step = _first(
            text, ("decoder_sparse_step", "moe_layer_freq", "expert_layer_period", "interleave_moe_layer_step")
        )
        self.step = step if isinstance(step, int) and not isinstance(step, bool) and step > 0 else 1
        self.mask = step if isinstance(step, (list, tuple)) else None
        self.dense_only = set(text.get("mlp_only_layers") or ())
        named = text.get("moe_layers_enum")  # Step: "3,4,5"
        if isinstance(named, str) and named:
            self.dense_only |= set(range(len(kinds))) - {int(number) for number in named.split(",")}
        self.separate = any(kind in ("moe", "mlp") for kind in kinds)

    def is_moe(self, index: int) -> bool:
        if not self.experts:
            return False
        if self.separate:
            return self.kinds[index] == "moe"
        if index in self.dense_only or index < self.first_dense:
            return False
        if self.mask is not None:
            return index < len(self.mask) and bool(self.mask[index])
        return (index + 1) % self.step == 0 if self.step > 1 else True

    def params(self, index: int) -> dict[str, int]:
        """dense (read by every token, divides by TP), experts (all), active experts, replicated."""
        if self.separate and self.kinds[index] not in ("moe", "mlp"):
            return {}
        if self.is_moe(index):
            return {
                "dense_params": self.shared + 2 * self.hidden * self.latent,
                "expert_params": self.experts * self.one_expert + self.other_experts,
                "active_expert_params": min(self.per_token or self.experts, self.experts) * self.one_expert,
                "replicated_params": self.hidden * self.experts,
            }
        return {"dense_params": self.matrices * self.hidden * self.inter}


def _layer(
    index: int,
    kind: str,
    ffn: _FeedForward,
    text: Mapping[str, Any],
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    latent: bool,
) -> Layer:
    values: dict[str, Any] = dict(ffn.params(index))
    if kind in ("moe", "mlp"):
        return Layer(cache=NONE, **values)
    if kind in ("linear", "mamba", "conv"):
        values.update(_state(kind, text, hidden))
        return Layer(cache=STATE, **values)
    if kind == "both":
        state = _state("mamba", text, hidden)
        params = state.pop("attention_params", 0)
        values.update(state)
        values.update(_attention(text, hidden, heads, kv_heads, head_dim))
        values["attention_params"] += params
        return Layer(cache=FULL, **values)
    if latent:
        attention = _latent_attention(text, hidden, heads)
        values["replicated_params"] = values.get("replicated_params", 0) + attention.pop("replicated_latent")
        return Layer(cache=FULL, **values, **attention)
    window = 0
    if kind == "sliding":
        window = _need(text, ("sliding_window", "sliding_window_size", "window_size"))
        kv_heads = _optional(text, ("swa_num_key_value_heads",), kv_heads)
        head_dim = _optional(text, ("swa_head_dim",), head_dim)
        other = text.get("attention_other_setting")  # Step: another number of heads
        if isinstance(other, Mapping):
            heads = _optional(other, ("num_attention_heads",), heads)
            kv_heads = _optional(other, ("num_attention_groups",), kv_heads)
    elif kind == "chunked":
        window = _need(text, ("attention_chunk_size", "sliding_window"))
    elif text.get("num_global_key_value_heads") is not None or text.get("global_head_dim") is not None:
        kv_heads = _optional(text, ("num_global_key_value_heads",), kv_heads)
        head_dim = _optional(text, ("global_head_dim",), head_dim)
    values.update(_attention(text, hidden, heads, kv_heads, head_dim))
    return Layer(cache=WINDOW if window else FULL, window=window, **values)


def _attention(text: Mapping[str, Any], hidden: int, heads: int, kv_heads: int, head_dim: int) -> dict[str, Any]:
    value_dim = _optional(text, ("v_head_dim",), head_dim) or head_dim
    if text.get("model_type") in _LATENT_EXCEPTIONS:
        # expanded into ordinary attention, values padded to the keys' width
        head_dim = _need(text, ("qk_nope_head_dim",)) + _need(text, ("qk_rope_head_dim",))
        value_dim = head_dim
    gate = 2 if text.get("attn_output_gate") else 1
    return {
        "kv_heads": kv_heads,
        "key_dim": head_dim,
        "value_dim": value_dim,
        "attention_params": hidden * heads * (gate * head_dim + value_dim),
        "kv_params": hidden * kv_heads * (head_dim + value_dim),
    }


def _latent_attention(text: Mapping[str, Any], hidden: int, heads: int) -> dict[str, Any]:
    rank = _need(text, ("kv_lora_rank",))
    rope = _need(text, ("qk_rope_head_dim",))
    nope = _optional(text, ("qk_nope_head_dim",), rope)
    value = _optional(text, ("v_head_dim",), nope)
    query_rank = _optional(text, ("q_lora_rank",), 0)
    query = (query_rank or hidden) * heads * (nope + rope)
    down = hidden * (query_rank + rank + rope)
    # an index of one FP8 vector and one FP32 scale for each token, beside the latent (sparse attention)
    index_dim = _optional(text, ("index_head_dim",), 0)
    copies = 2 if text.get("model_type") == "longcat_flash" else 1  # two attention blocks in each layer
    return {
        "latent": True,
        "kv_heads": 1,
        "key_dim": rank + rope,
        "value_dim": 0,
        "extra_bytes": index_dim + 4 * (index_dim // 128) if index_dim else 0,
        "caches_per_layer": copies,
        "attention_params": copies * (query + rank * heads * (nope + value) + heads * value * hidden),
        "replicated_latent": copies * down,
    }


def _state(kind: str, text: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    """Elements of the per-sequence state (before TP) and parameters of a layer without a growing cache."""
    if kind == "conv":
        kernel = _optional(text, ("conv_L_cache", "conv_kernel"), 3)
        return {"conv_state": hidden * max(kernel - 1, 1), "attention_params": 4 * hidden * hidden}
    if kind == "linear":
        return _linear_state(text, hidden)
    heads = _optional(text, ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"), 0)
    state = _optional(text, ("ssm_state_size", "mamba_d_state", "state_size"), 128)
    kernel = _optional(text, ("conv_kernel", "mamba_d_conv", "conv_kernel_size"), 4)
    groups = _optional(text, ("n_groups", "mamba_n_groups", "mamba_ngroups"), 1)
    if not heads:
        # Mamba 1: one channel per inner element
        expand = _optional(text, ("mamba_expand", "expand"), 2)
        inner = _optional(text, ("mamba_d_ssm", "intermediate_size"), expand * hidden)
        inner = inner if text.get("model_type") in ("mamba", "falcon_mamba") else expand * hidden
        return {
            "conv_state": inner * (kernel - 1),
            "ssm_state": inner * state,
            "attention_params": hidden * inner * 3,
        }
    dim = _optional(text, ("mamba_head_dim", "mamba_d_head"), 64)
    inner = heads * dim
    conv = inner + 2 * groups * state
    return {
        "conv_state": conv * (kernel - 1),
        "ssm_state": heads * dim * state,
        "attention_params": hidden * (2 * inner + 2 * groups * state + heads) + inner * hidden,
    }


def _linear_state(text: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    nested = text.get("linear_attn_config")
    if isinstance(nested, Mapping):
        # Kimi Delta Attention: queries, keys and values of one width, three convolutions
        heads = _need(nested, ("num_heads",))
        dim = _need(nested, ("head_dim",))
        kernel = _optional(nested, ("short_conv_kernel_size",), 4)
        width = heads * dim
        return {
            "conv_state": 3 * width * (kernel - 1),
            "ssm_state": heads * dim * dim,
            "attention_params": 5 * hidden * width,
        }
    if not _has_linear_attention(text):
        # Lightning attention (MiniMax): one matrix per head and no convolution
        heads = _need(text, ("num_attention_heads",))
        dim = _head_dim(text, hidden, heads)
        return {"ssm_state": heads * dim * dim, "attention_params": 5 * hidden * heads * dim}
    value_heads = _need(text, ("linear_num_value_heads",))
    key_heads = _need(text, ("linear_num_key_heads",))
    value_dim = _optional(text, ("linear_value_head_dim",), 128)
    key_dim = _optional(text, ("linear_key_head_dim",), 128)
    kernel = _optional(text, ("linear_conv_kernel_dim",), 4)
    keys = key_heads * key_dim
    values = value_heads * value_dim
    return {
        "conv_state": (2 * keys + values) * (kernel - 1),
        "ssm_state": value_heads * value_dim * key_dim,
        "attention_params": hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden,
    }
