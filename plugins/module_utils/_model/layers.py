# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each decoder layer caches and how many parameters it holds.

A *layer* caches either keys and values of the whole context (full attention), of a window (sliding or chunked
attention), a state of constant size per sequence (Mamba, linear attention, short convolution), or nothing (a
feed-forward block of its own, as in Nemotron-H).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    DEEPSEEK_V41_TYPES,
    EXPANDED_LATENT,
    QWEN4_TYPES,
    first_of,
    has_linear_attention,
    optional_int,
    required_int,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int

FULL, WINDOW, STATE, NONE = "full", "window", "state", "none"


@dataclass(frozen=True)
class Layer:
    """What one decoder layer caches and how many parameters it holds."""

    cache: str  # FULL, WINDOW, STATE or NONE
    window: int = 0
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    latent: bool = False
    chunked: bool = False  # the window starts anew at each of its multiples
    sparse: bool = False  # latent attention to a few tokens, which an index finds
    #: width of the index of sparse attention, which every rank holds whole; wide: 16 bits an element
    index_dim: int = 0
    index_wide: bool = False
    #: tokens that one entry of the index stands for, and bytes of a key that waits until so many are there
    index_ratio: int = 1
    waiting_key: int = 0
    #: tokens that one entry of compressed attention stands for: 1 (a window alone), 4 or 128; 0 elsewhere
    ratio: int = 0
    #: DeepSeek V4.1: the same of the few layers whose entries all after them read as well (1 or 2); 0 elsewhere
    source: int = 0
    #: state elements that divide by TP: width and steps of the convolution, the recurrent state
    conv_width: int = 0
    conv_steps: int = 0
    ssm_state: int = 0
    #: a convolution beside the attention or the state that every rank holds whole: its width and steps
    whole_width: int = 0
    whole_steps: int = 0
    #: Mamba 2: groups of the convolution, their state, blocks that prefix caching keeps for a checkpoint
    groups: int = 0
    group_state: int = 0
    checkpoints: int = 0
    #: caches of the same layer beside the above (two attention blocks of LongCat)
    caches_per_layer: int = 1
    attention_params: int = 0
    kv_params: int = 0
    dense_params: int = 0
    expert_params: int = 0
    active_expert_params: int = 0
    replicated_params: int = 0  # the same on each rank, in 16 bits: routers, norms
    whole_params: int = 0  # the same on each rank, stored like the attention
    table_params: int = 0  # looked up: never read as a whole, divides by TP


#: feed-forward blocks of two matrices, whatever the activation
_WITHOUT_GATE = ("falcon", "bloom", "gpt2", "gptj", "gpt_neox", "gpt_bigcode", "mpt", "starcoder2")


class FeedForward:
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
        # relu2 and the like have no gate: two matrices instead of three
        activation = str(first_of(text, ("mlp_hidden_act", "hidden_act", "activation_function")) or "silu")
        plain = text.get("model_type") in _WITHOUT_GATE or activation in ("relu2", "gelu_new", "relu", "xielu")
        self.matrices = 2 if plain else 3
        self.latent = optional_int(text, ("moe_latent_size", "routed_expert_hidden_size"), 0)
        expert_width = self.latent or hidden
        self.one_expert = self.matrices * expert_width * moe_inter
        self.other_experts = self.matrices * hidden * _other_experts(text, len(kinds))
        self.shared = self.matrices * hidden * _shared_width(text, moe_inter, inter)
        self.first_dense = optional_int(text, ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"), 0)
        step = first_of(
            text, ("decoder_sparse_step", "moe_layer_freq", "expert_layer_period", "interleave_moe_layer_step")
        )
        self.step = step if isinstance(step, int) and not isinstance(step, bool) and step > 0 else 1
        self.mask = step if isinstance(step, (list, tuple)) else None
        self.dense_only = set(text.get("mlp_only_layers") or ())
        words = text.get("mlp_layer_types")
        if isinstance(words, (list, tuple)):
            self.dense_only |= {index for index, word in enumerate(words) if word == "dense"}
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


def _shared_width(text: Mapping[str, Any], moe_inter: int, inter: int) -> int:
    """Width of what every token passes beside its experts."""
    width = optional_int(
        text,
        (
            *("moe_shared_expert_intermediate_size", "shared_expert_intermediate_size", "share_expert_dim"),
            "shared_intermediate_size",
        ),
        0,
    )
    if width:
        return width
    if text.get("enable_moe_block"):
        return inter  # Gemma 4: the dense block stays beside the experts
    one = 1 if str(text.get("model_type", "")).startswith("llama4") else 0
    names = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
    return optional_int(text, names, one) * moe_inter


def _other_experts(text: Mapping[str, Any], layers: int) -> int:
    """Widths together of experts of another kind than the largest (those for images of ERNIE-VL)."""
    counts, widths = text.get("moe_num_experts"), text.get("moe_intermediate_size")
    if not isinstance(counts, (list, tuple)) or not isinstance(widths, (list, tuple)) or len(counts) == layers:
        return 0
    kinds = sorted(((int(width), int(count)) for width, count in zip(widths, counts, strict=False)), reverse=True)
    return sum(width * count for width, count in kinds[1:])


def layer_of(
    index: int,
    kind: str,
    ffn: FeedForward,
    text: Mapping[str, Any],
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    latent: bool,
) -> Layer:
    values: dict[str, Any] = dict(ffn.params(index))
    if text.get("model_type") in QWEN4_TYPES:
        _add_streams(values, index, text, hidden)
    if str(text.get("model_type")).startswith("gemma3n"):
        # the layer's own embedding of each word, and what is whole on each rank: its gate, its way back, and LAuReL
        # (what config.json leaves out is as the class in Transformers has it)
        own = optional_int(text, ("hidden_size_per_layer_input",), 256)
        values["table_params"] = optional_int(text, ("vocab_size_per_layer_input",), 262144) * own
        values["replicated_params"] = 2 * hidden * (own + optional_int(text, ("laurel_rank",), 64))
    if kind in ("moe", "mlp"):
        return Layer(cache=NONE, **values)
    if kind in ("linear", "mamba", "conv"):
        values.update(_state(kind, text, hidden))
        return Layer(cache=STATE, **values)
    if text.get("model_type") in DEEPSEEK_V41_TYPES:
        return _shared_entries(index, text, hidden, heads, head_dim, values)
    if text.get("compress_ratios") is not None:
        return _compressed(index, text, hidden, heads, head_dim, values)
    if kind == "both":
        state = _state("mamba", text, hidden)
        params = state.pop("attention_params", 0)
        values.update(state)
        values.update(_attention(text, hidden, heads, kv_heads, head_dim))
        values["attention_params"] += params
        return Layer(cache=FULL, **values)
    if latent:
        attention = _latent_attention(index, text, hidden, heads)
        return Layer(cache=FULL, **values, **attention)
    window = 0
    if kind == "sliding":
        window = required_int(text, ("sliding_window", "sliding_window_size", "window_size"))
        kv_heads = optional_int(text, ("swa_num_key_value_heads",), kv_heads)
        head_dim = optional_int(text, ("swa_head_dim",), head_dim)
        other = text.get("attention_other_setting")  # Step: another number of heads
        if isinstance(other, Mapping):
            heads = optional_int(other, ("num_attention_heads",), heads)
            kv_heads = optional_int(other, ("num_attention_groups",), kv_heads)
    elif kind == "chunked":
        window = required_int(text, ("attention_chunk_size", "sliding_window"))
    elif text.get("num_global_key_value_heads") is not None or text.get("global_head_dim") is not None:
        kv_heads = optional_int(text, ("num_global_key_value_heads",), kv_heads)
        head_dim = optional_int(text, ("global_head_dim",), head_dim)
    values.update(_attention(text, hidden, heads, kv_heads, head_dim))
    values.update(_index_of_blocks(index, text))
    values.update(_index_of_groups(text, hidden))
    return Layer(cache=WINDOW if window else FULL, window=window, chunked=kind == "chunked", **values)


def _index_of_blocks(index: int, text: Mapping[str, Any]) -> dict[str, Any]:
    """MiniMax M3: which blocks a token attends to is looked up by one more key for each token."""
    sparse = text.get("sparse_attention_config")
    if not isinstance(sparse, Mapping) or not sparse.get("use_sparse_attention"):
        return {}
    layers = sparse.get("sparse_attention_freq")
    if isinstance(layers, (list, tuple)) and not (index < len(layers) and layers[index]):
        return {}
    return {"index_dim": required_int(sparse, ("sparse_index_dim",)), "index_wide": True}


def _index_of_groups(text: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    """Qwen4-Exp: what a token attends to is looked up by one key for a few tokens, which wait until all are there."""
    if text.get("model_type") not in QWEN4_TYPES or text.get("indexer_n_heads") is None:
        return {}
    dim = required_int(text, ("indexer_head_dim",))
    return {
        "index_dim": dim,
        "index_wide": True,
        "index_ratio": required_int(text, ("indexer_compress_ratio",)),
        "waiting_key": 2 * dim,
        "whole_params": hidden * dim * (required_int(text, ("indexer_n_heads",)) + 1),
    }


def _add_streams(values: dict[str, Any], index: int, text: Mapping[str, Any], hidden: int) -> None:
    """Qwen4-Exp: what mixes its streams before the attention and the experts, and the table of n-grams of one layer."""
    wide, rank = hidden * optional_int(text, ("hc_count",), 1), optional_int(text, ("hc_lowrank",), 0)
    # down with what is injected, in rows of 16, up, and a norm
    mixer = wide * (-(-(rank + wide // hidden) // 16) * 16 + rank + 1)
    values["replicated_params"] = values.get("replicated_params", 0) + (2 * mixer if rank else 0)
    if index + 1 not in (text.get("ple_layer_ids") or ()):
        return
    size, heads = required_int(text, ("ngram_size",)), required_int(text, ("heads_per_ngram",))
    width, kernel = required_int(text, ("ple_embed_dim",)), required_int(text, ("ple_conv_kernel_size",))
    values["whole_width"], values["whole_steps"] = wide, (kernel - 1) * size
    values["replicated_params"] += width * (wide + hidden) + wide * (kernel + 3)
    rows = (size - 1) * heads * required_int(text, ("ngram_vocab_size_base",))
    values["table_params"] = rows * (width // ((size - 1) * heads))


def _compressed(
    index: int, text: Mapping[str, Any], hidden: int, heads: int, head_dim: int, values: dict[str, Any]
) -> Layer:
    """DeepSeek V4: a window of 128 tokens, and all before it as one entry for 4 or for 128 tokens."""
    ratios = text["compress_ratios"]
    ratio = ratios[index] if isinstance(ratios, (list, tuple)) and index < len(ratios) else None
    if ratio not in (0, 4, 128):
        raise SizingError(
            "config.compress_ratios", ratio, f"is not known for layer {index}", "Known are 0, 4 and 128, one a layer."
        )
    query, out = required_int(text, ("q_lora_rank",)), required_int(text, ("o_lora_rank",))
    index_dim = required_int(text, ("index_head_dim",)) if ratio == 4 else 0
    # compressors: keys and scores of each token, twice where groups overlap
    compressors = hidden * 2 * (head_dim + index_dim) * (2 if ratio == 4 else 1) if ratio else 0
    indexer = (query * index_dim + hidden) * required_int(text, ("index_n_heads",)) if index_dim else 0
    values["replicated_params"] = values.get("replicated_params", 0) + compressors
    return Layer(
        cache=FULL if ratio else WINDOW,
        window=required_int(text, ("sliding_window",)),
        kv_heads=1,
        key_dim=head_dim,
        ratio=ratio or 1,
        index_dim=index_dim,
        attention_params=(query + out) * heads * head_dim + required_int(text, ("o_groups",)) * out * hidden,
        whole_params=hidden * (query + head_dim) + indexer,
        **values,
    )


def _numbers(text: Mapping[str, Any], name: str) -> list[int]:
    """A list of the config, empty where it is left out."""
    value = text.get(name)
    if value is not None and not isinstance(value, (list, tuple)):
        raise SizingError(f"config.{name}", value, "is not a list", "Use the config.json of the model, unchanged.")
    return [as_int(f"config.{name}", item, minimum=0) for item in value or ()]


def _shared_entries(
    index: int, text: Mapping[str, Any], hidden: int, heads: int, head_dim: int, values: dict[str, Any]
) -> Layer:
    """DeepSeek V4.1: a window on each layer; all before it, and its index, on few layers that the next ones share."""
    ratios = text.get("compress_ratios")
    ratio = ratios[index] if isinstance(ratios, (list, tuple)) and index < len(ratios) else None
    if ratio not in (0, 1, 2):
        raise SizingError(
            "config.compress_ratios", ratio, f"is not known for layer {index}", "Known are 0, 1 and 2, one a layer."
        )
    source = ratio if index in _numbers(text, "kv_source_layer_ids") else 0
    askers = _numbers(text, "index_source_layer_ids")
    query, out = required_int(text, ("q_lora_rank",)), required_int(text, ("o_lora_rank",))
    index_dim, asking = required_int(text, ("index_head_dim",)), required_int(text, ("index_n_heads",))
    # what compresses: keys, and scores where an entry stands for two tokens; its entries become keys of the index
    made = source * hidden * head_dim + head_dim * index_dim if source else 0
    streams = optional_int(text, ("hc_mult",), 1)
    # what mixes the streams, in 32 bits: twice a number of 16
    mixers = 2 * 2 * (2 + streams) * streams * streams * hidden
    values["replicated_params"] = values.get("replicated_params", 0) + made + mixers
    if index in askers:
        values["replicated_params"] += hidden * asking
    attention = (query + out) * heads * head_dim + required_int(text, ("o_groups",)) * out * hidden
    rows = dict(zip(_numbers(text, "engram_layer_ids"), _numbers(text, "engram_num_embeddings"), strict=False))
    if index in rows:
        width = required_int(text, ("engram_head_dim",))
        # 8 bits, and a scale for each 32
        values["table_params"] = rows[index] * (width + width // 32)
        looked_up = (required_int(text, ("engram_max_ngram_size",)) - 1) * required_int(text, ("engram_n_heads",))
        attention += looked_up * width * hidden * (streams + 1)
    return Layer(
        cache=FULL if source else WINDOW,
        window=required_int(text, ("sliding_window",)),
        kv_heads=1,
        key_dim=head_dim,
        ratio=1,
        source=source,
        index_dim=index_dim if source else 0,
        attention_params=attention,
        whole_params=hidden * (query + head_dim) + (query * index_dim * asking if index in askers else 0),
        **values,
    )


def _attention(text: Mapping[str, Any], hidden: int, heads: int, kv_heads: int, head_dim: int) -> dict[str, Any]:
    value_dim = optional_int(text, ("v_head_dim",), head_dim) or head_dim
    if text.get("model_type") in EXPANDED_LATENT:
        # expanded into ordinary attention, values padded to the keys' width
        head_dim = required_int(text, ("qk_nope_head_dim",)) + optional_int(text, ("qk_rope_head_dim",), 0)
        value_dim = head_dim
        made = _latent_attention(0, text, hidden, heads)
        params = {name: made[name] for name in ("attention_params", "whole_params")}
        return {"kv_heads": kv_heads, "key_dim": head_dim, "value_dim": value_dim, **params}
    gate = 2 if text.get("attn_output_gate") else 1
    return {
        "kv_heads": kv_heads,
        "key_dim": head_dim,
        "value_dim": value_dim,
        "attention_params": hidden * heads * (gate * head_dim + value_dim),
        "kv_params": hidden * kv_heads * (head_dim + value_dim),
    }


def _latent_attention(index: int, text: Mapping[str, Any], hidden: int, heads: int) -> dict[str, Any]:
    rank = required_int(text, ("kv_lora_rank",))
    rope = optional_int(text, ("qk_rope_head_dim",), 0)  # none where positions are not rotated
    nope = optional_int(text, ("qk_nope_head_dim",), rope)
    value = optional_int(text, ("v_head_dim",), nope)
    query_rank = optional_int(text, ("q_lora_rank",), 0)
    query = (query_rank or hidden) * heads * (nope + rope)
    down = hidden * (query_rank + rank + rope)
    index_dim = optional_int(text, ("index_head_dim",), 0) if _has_index(index, text) else 0
    index_heads = optional_int(text, ("index_n_heads",), 0)
    indexer = index_dim * (index_heads * query_rank + hidden) + index_heads * hidden if index_dim else 0
    # GLM 5.3: one entry stands for a few tokens, whose keys and scores (16 bits) wait until all are there
    pooled = max(optional_int(text, ("index_kpool",), 1), 1) if index_dim else 1
    copies = 2 if text.get("model_type") == "longcat_flash" else 1  # two attention blocks in each layer
    return {
        "latent": True,
        "kv_heads": 1,
        "key_dim": rank + rope,
        "value_dim": 0,
        "sparse": optional_int(text, ("index_head_dim",), 0) > 0,
        "index_dim": index_dim,
        "index_ratio": pooled,
        "waiting_key": 4 * index_dim if pooled > 1 else 0,
        "caches_per_layer": copies,
        "attention_params": copies * (query + rank * heads * (nope + value) + heads * value * hidden),
        "whole_params": copies * down + indexer,
    }


def _has_index(index: int, text: Mapping[str, Any]) -> bool:
    """GLM 5.2: only some layers look up what to attend to, and those after them share it."""
    pattern = text.get("index_topk_pattern")
    if isinstance(pattern, str) and index < len(pattern):
        return pattern[index] != "S"
    every = optional_int(text, ("index_topk_freq",), 1) or 1
    offset = optional_int(text, ("index_skip_topk_offset",), 2)
    return max(index - offset + 1, 0) % every == 0


def _state(kind: str, text: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    """Elements of the per-sequence state (before TP) and parameters of a layer without a growing cache."""
    if kind == "conv":
        kernel = optional_int(text, ("conv_L_cache", "conv_kernel"), 3)
        return {"conv_width": hidden, "conv_steps": max(kernel - 1, 1), "attention_params": 4 * hidden * hidden}
    if kind == "linear":
        return _linear_state(text, hidden)
    heads = optional_int(text, ("mamba_num_heads", "mamba_n_heads", "n_mamba_heads"), 0)
    if text.get("model_type") == "mamba2":
        heads = required_int(text, ("num_heads",))
    state = optional_int(text, ("ssm_state_size", "mamba_d_state", "state_size"), 128)
    kernel = optional_int(text, ("conv_kernel", "mamba_d_conv", "conv_kernel_size"), 4)
    groups = optional_int(text, ("n_groups", "mamba_n_groups", "mamba_ngroups"), 1)
    if not heads:
        # Mamba 1: one channel per inner element
        expand = optional_int(text, ("mamba_expand", "expand"), 2)
        inner = optional_int(text, ("mamba_d_ssm", "intermediate_size"), expand * hidden)
        inner = inner if text.get("model_type") in ("mamba", "falcon_mamba") else expand * hidden
        rank = first_of(text, ("time_step_rank", "mamba_dt_rank"))
        rank = rank if isinstance(rank, int) else -(-hidden // 16)
        return {
            "conv_width": inner,
            "conv_steps": kernel - 1,
            "ssm_state": inner * state,
            # in and out; ranks, both ways; what states come from, and states in 32 bits
            "attention_params": inner * (3 * hidden + 2 * rank + 4 * state),
        }
    names = ("head_dim",) if text.get("model_type") == "mamba2" else ("mamba_head_dim", "mamba_d_head")
    inner = heads * (dim := optional_int(text, names, 64))
    conv = inner + 2 * groups * state
    return {
        "conv_width": conv,
        "conv_steps": kernel - 1,
        "groups": groups,
        "group_state": state,
        "checkpoints": 1,
        "ssm_state": heads * dim * state,
        "attention_params": hidden * (2 * inner + 2 * groups * state + heads) + inner * hidden,
    }


def _linear_state(text: Mapping[str, Any], hidden: int) -> dict[str, Any]:
    nested = text.get("linear_attn_config")
    if isinstance(nested, Mapping):
        # Kimi Delta Attention: queries, keys and values of one width, three convolutions
        heads = required_int(nested, ("num_heads",))
        dim = required_int(nested, ("head_dim",))
        kernel = optional_int(nested, ("short_conv_kernel_size",), 4)
        width = heads * dim
        return {
            "conv_width": 3 * width,
            "conv_steps": kernel - 1,
            # the kernel that a bounded gate is computed by keeps one more copy for prefix caching (Kimi K3)
            "checkpoints": int(nested.get("gate_lower_bound") is not None and dim == 128),
            "ssm_state": heads * dim * dim,
            "attention_params": 5 * hidden * width,
        }
    if not has_linear_attention(text):
        # Lightning attention (MiniMax): one matrix per head and no convolution
        heads = required_int(text, ("num_attention_heads",))
        dim = head_dim_of(text, hidden, heads)
        return {"ssm_state": heads * dim * dim, "attention_params": 5 * hidden * heads * dim}
    value_heads = required_int(text, ("linear_num_value_heads",))
    key_heads = required_int(text, ("linear_num_key_heads",))
    value_dim = optional_int(text, ("linear_value_head_dim",), 128)
    key_dim = optional_int(text, ("linear_key_head_dim",), 128)
    kernel = optional_int(text, ("linear_conv_kernel_dim",), 4)
    keys = key_heads * key_dim
    values = value_heads * value_dim
    return {
        "conv_width": 2 * keys + values,
        "conv_steps": kernel - 1,
        "ssm_state": value_heads * value_dim * key_dim,
        "attention_params": hidden * (2 * keys + 2 * values + 2 * value_heads) + values * hidden,
    }


def head_dim_of(text: Mapping[str, Any], hidden: int, heads: int) -> int:
    value = first_of(text, ("head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels"))
    if value is not None and as_int("config.head_dim", value, minimum=0) > 0:
        return int(value)
    if not heads:
        return 0
    if text.get("qk_nope_head_dim") and text.get("qk_rope_head_dim") is not None:
        return int(text["qk_nope_head_dim"]) + int(text["qk_rope_head_dim"])
    if hidden % heads:
        raise SizingError(
            "config.hidden_size",
            hidden,
            f"does not divide by {heads} attention heads, and the config gives no head_dim",
            "Give head_dim in the model's config.",
        )
    return hidden // heads


def without_shared_caches(text: Mapping[str, Any], layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers that read another layer's cache (the last ones of Gemma 3n and 4) hold none of their own."""
    shared = optional_int(text, ("num_kv_shared_layers",), 0)
    if not shared:
        return layers
    first = len(layers) - min(shared, len(layers))
    return tuple(
        layer if index < first else Layer(**{**layer.__dict__, "cache": NONE, "kv_heads": 0})
        for index, layer in enumerate(layers)
    )


@dataclass(frozen=True)
class Block:
    """One entry of block_configs, of models whose layers were found by search (Nemotron Super 49B, Ultra 253B)."""

    attention: str  # "", "no_op" or "linear"
    heads_in_group: int
    ffn: str
    width: int


def blocks_of(text: Mapping[str, Any], count: int, hidden: int) -> list[Block]:
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

    runs = []
    for block in blocks:
        attention, ffn = block.get("attention") or {}, block.get("ffn") or {}
        # two thirds of the multiple, rounded up to 256, as the model's own code does
        width = -(-int(2 * float(ffn.get("ffn_mult") or 0) * hidden / 3) // 256) * 256
        group = optional_int(attention, ("n_heads_in_group",), 0)
        runs.append(Block(kind(attention), 0 if kind(attention) else group, kind(ffn), 0 if kind(ffn) else width))
    return runs


def described(
    layer: Layer, block: Block, text: Mapping[str, Any], ffn: FeedForward, hidden: int, heads: int, head_dim: int
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
