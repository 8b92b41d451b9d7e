# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's config.json in one vocabulary: its layers, its sizes and how it is stored.

Pure and standard library only. The many spellings of the hub (nested text configs, layer lists, intervals, letter
patterns, latent attention) end here; everything after this file sees a Shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    ATTENTION_FREE,
    first_of,
    is_latent,
    kv_from_checkpoint,
    max_context,
    optional_int,
    quantization_name,
    required_int,
    run_dtype,
    stored_dtype,
    text_config,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.known import (
    BOTH_EVERYWHERE,
    EMBEDDING_EVERYWHERE,
    LEARNED_POSITIONS,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layer_kinds import layer_kinds
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import (
    FeedForward,
    Layer,
    blocks_of,
    described,
    head_dim_of,
    layer_of,
    without_shared_caches,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    STRANGE,
    as_int,
    blaming,
    dtype_bytes,
)

_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_POSITIONS = ("max_position_embeddings", "n_positions")
_EXPERTS_PER_TOKEN = (
    *("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k", "top_k_experts", "top_k"),
)


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
    vision_whole: bool = False  # each tensor-parallel rank holds all of the vision tower

    #: what the model's class makes on every pipeline stage
    embedding_everywhere: bool = False
    head_everywhere: bool = False
    positions: int = 0  # elements of a table of positions, whole on each rank that has the embedding
    #: width of the vision tower; copies of the residual that run side by side
    vision_width: int = 0
    streams: int = 1
    stored_dtype: str = "bfloat16"  # of the checkpoint; the engine may compute in another one
    expert_dtype: str = ""  # where experts are stored otherwise than the rest (DeepSeek V4: fp4)

    @property
    def compressed(self) -> bool:
        """Whether entries of the cache stand for several tokens (DeepSeek V4)."""
        return any(layer.ratio for layer in self.layers)

    @property
    def packed(self) -> bool:
        """Whether pages of different size stand side by side in a block of the cache."""
        return self.compressed or any(layer.waiting_key for layer in self.layers)

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    def count(self, cache: str) -> int:
        return sum(1 for layer in self.layers if layer.cache == cache)


def read_shape(config: Mapping[str, Any], asked_dtype: str = "auto") -> Shape:
    """Translate a config.json into a Shape; raises SizingError with the field that is missing or wrong."""
    with blaming(config, *STRANGE):
        return _translated(config, asked_dtype)


def _translated(config: Mapping[str, Any], asked_dtype: str) -> Shape:
    text = text_config(config)
    found = text.get("attn_config")
    attn: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    hidden = required_int(text, ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim"))
    kinds = layer_kinds(text)
    needs_attention = any(kind in ("attention", "sliding", "chunked", "both") for kind in kinds)
    heads = required_int(text, _HEADS) if needs_attention else optional_int(text, _HEADS, 0)
    kv_heads = _kv_heads(text, attn, heads)
    head_dim = head_dim_of(text, hidden, heads)
    latent = is_latent(text)
    found_quant = text.get("quantization_config")
    quant: Mapping[str, Any] = found_quant if isinstance(found_quant, Mapping) else {}
    dtype = run_dtype(text, asked_dtype)
    dtype_bytes("config.dtype" if asked_dtype == "auto" else "dtype", dtype)
    experts = optional_int(text, ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"), 0)
    per_token = optional_int(text, _EXPERTS_PER_TOKEN, 0)
    moe_inter = optional_int(text, ("moe_intermediate_size", "expert_ffn_hidden_size"), 0)
    blocks = blocks_of(text, len(kinds), hidden)
    inter = max((block.width for block in blocks), default=0) or _intermediate(text, hidden, kinds, experts)
    if experts and not moe_inter:
        moe_inter = optional_int(text, ("intermediate_size",), inter)
    ffn = FeedForward(text, hidden, kinds, experts, per_token, moe_inter, inter)
    layers = tuple(
        layer_of(index, kind, ffn, text, hidden, heads, kv_heads, head_dim, latent) for index, kind in enumerate(kinds)
    )
    layers = without_shared_caches(text, layers)
    if blocks:
        kv_heads = max(heads // (block.heads_in_group or heads) for block in blocks)
        layers = tuple(
            described(layer, block, text, ffn, hidden, heads, head_dim)
            for layer, block in zip(layers, blocks, strict=True)
        )
    return Shape(
        model_type=str(text.get("model_type", "")),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=optional_int(text, ("vocab_size", "padded_vocab_size"), 0),
        tied=bool(text.get("tie_word_embeddings", False)),
        dtype=dtype,
        kv_auto=kv_from_checkpoint(quant) or dtype,
        ssm_dtype=str(_ssm_dtype(text) or dtype).removeprefix("torch."),
        max_position=max_context(text),
        experts=experts,
        experts_per_token=per_token,
        moe_intermediate=moe_inter,
        intermediate=inter,
        latent=latent,
        quantization=quantization_name(text),
        quant_config=quant,
        **_vision(text.get("vision_config")),
        **_tables(text, hidden),
        streams=optional_int(text, ("hc_mult", "hc_count"), 1),
        stored_dtype=stored_dtype(text),
        expert_dtype=str(text.get("expert_dtype") or quant.get("expert_dtype") or ""),
    )


def _tables(text: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    """Which stages hold the vocabulary's tables, and what is beside them."""
    kind = str(text.get("model_type"))
    both = kind in BOTH_EVERYWHERE
    return {
        "embedding_everywhere": both or kind in EMBEDDING_EVERYWHERE,
        "head_everywhere": both,
        "positions": optional_int(text, _POSITIONS, 0) * hidden if kind in LEARNED_POSITIONS else 0,
    }


def _ssm_dtype(text: Mapping[str, Any]) -> Any:
    """The dtype of a recurrent state: the config's, or what the engine takes without one; "" is the model's own."""
    kimi = isinstance(text.get("linear_attn_config"), Mapping)
    default = "float32" if kimi or text.get("model_type") == "nemotron_h" else ""
    return first_of(text, ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")) or default


def _intermediate(text: Mapping[str, Any], hidden: int, kinds: Sequence[str], experts: int) -> int:
    """The width of a dense feed-forward block: four times the model's where nobody says (GPT-2, BLOOM, Falcon)."""
    # Llama 4 keeps its dense layers' width apart from its experts'
    names = ("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "block_ff_dim")
    inter = optional_int(text, (*names, "ffn_hidden_size", "n_inner", "ffn_dim", "ff_intermediate_size"), 0)
    if text.get("block_auto_adjust_ff_dim"):  # LFM2
        inter = int(2 * inter / 3 * float(text.get("block_ffn_dim_multiplier") or 1))
        multiple = optional_int(text, ("block_multiple_of",), 256)
        inter = -(-inter // multiple) * multiple
    if text.get("model_type") in ATTENTION_FREE:
        return 0  # a state is all that such a layer has
    if inter or experts or any(kind in ("mamba", "moe", "mlp") for kind in kinds):
        return inter
    return 4 * hidden


def _kv_heads(text: Mapping[str, Any], attn: Mapping[str, Any], heads: int) -> int:
    if text.get("model_type") == "falcon" and not text.get("new_decoder_architecture") and text.get("multi_query"):
        return 1
    value = first_of(
        text,
        (
            *("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_query_groups"),
            *("num_attention_groups", "n_kv_heads"),
        ),
    )
    if value is None:
        value = attn.get("kv_n_heads")
    return heads if value is None else as_int("config.num_key_value_heads", value)


def _vision(vision: Any) -> dict[str, Any]:
    """The fields of a Shape that describe its vision tower."""
    whole = isinstance(vision, Mapping) and vision.get("model_type") in _WHOLE_VISION
    return {"vision_params": _vision_params(vision), "vision_whole": whole, "vision_width": _vision_width(vision)}


def _vision_width(vision: Any) -> int:
    width = first_of(vision, ("embed_dim", "hidden_size", "width")) if isinstance(vision, Mapping) else 0
    return width if isinstance(width, int) else 0


#: towers that Transformers' own class computes, whole on every tensor-parallel rank
_WHOLE_VISION = ("gemma4_vision",)
#: towers whose MLP has a gate
_GATED_VISION = (*_WHOLE_VISION, "glm4v_vision", "pixtral", "qwen2_5_vl", "qwen2_5_vl_vision")


def _vision_params(vision: Any) -> int:
    """Parameters of the vision tower: its blocks, table of positions, and what merges patches for the decoder, as
    vLLM's classes make them (qwen3_vl.py: a merger more for each layer that is passed on)."""
    if not isinstance(vision, Mapping):
        return 0
    # Qwen2-VL's hidden_size is the language model's
    width = first_of(vision, ("embed_dim", "hidden_size", "width"))
    depth = first_of(vision, ("depth", "num_hidden_layers", "layers"))
    if not isinstance(width, int) or not isinstance(depth, int):
        return 0
    inter = first_of(vision, ("intermediate_size",))
    inter = inter if isinstance(inter, int) else 4 * width
    kind = vision.get("model_type")
    matrices = 3 if kind in _GATED_VISION else 2
    positions = first_of(vision, ("num_position_embeddings",)) or 2 * (vision.get("position_embedding_size") or 0)
    merged = width * (vision.get("spatial_merge_size") or 0) ** 2
    out = vision.get("out_hidden_size") or 0
    mergers = (1 + len(vision.get("deepstack_visual_indexes") or ())) * merged * (merged + out) if out else 0
    if kind == "glm4v_vision":
        # its blocks are as wide as what they hand over, and an MLP of the other width merges (vLLM's glm4_1v.py)
        mergers, inter = out * (merged + out + 3 * inter), out
    return int(depth * (4 * width * width + matrices * width * inter) + positions * width + mergers)
