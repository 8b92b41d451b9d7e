# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each layer caches on one rank, by `--kv-cache-dtype`, as the engine's own specifications have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import pool
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import DEEPSEEK_V41_TYPES
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, STATE, WINDOW, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.pool import Cache
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, dtype_bytes

#: KV dtype -> (bytes per element, extra bytes per cached head vector for its scale).
_KV_DTYPES: dict[str, tuple[Fraction, int]] = {
    "float32": (Fraction(4), 0),
    "float16": (Fraction(2), 0),
    "half": (Fraction(2), 0),
    "bfloat16": (Fraction(2), 0),
    "bf16": (Fraction(2), 0),
    "fp16": (Fraction(2), 0),
    "fp8": (Fraction(1), 0),
    "fp8_e4m3": (Fraction(1), 0),
    "fp8_e5m2": (Fraction(1), 0),
    "fp8_inc": (Fraction(1), 0),
    "int8": (Fraction(1), 0),
    # 4 bits of data and one FP8 scale for each block of 16 elements
    "nvfp4": (Fraction(9, 16), 0),
    "nvfp4_4over6": (Fraction(9, 16), 0),
    # one FP32 scale for each token and head
    "fp8_per_token_head": (Fraction(1), 4),
    "int8_per_token_head": (Fraction(1), 4),
    "int4_per_token_head": (Fraction(1, 2), 4),
}
#: Keys and values of a head in one slot: bits of a key's element, of a value's, bytes beside them.
_PACKED: dict[str, tuple[int, int, int]] = {
    "turboquant_k8v4": (8, 4, 4),
    "turboquant_4bit_nc": (4, 4, 6),
    "turboquant_k3v4_nc": (3, 4, 6),
    "turboquant_3bit_nc": (3, 3, 6),
    # one 8-bit scale for each 32 elements
    "ultraquant_4bit": (4, 4, 0),
}
#: Layouts that only exist for latent attention; bytes per token and layer are fixed by the layout:
#: 512 FP8 latents + 4 FP32 scales + 64 BF16 rotary elements, and the same in 4 bits with 16-element scales.
_MLA_LAYOUTS = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}
#: What a GB10's kernel for sparse latent attention turns into its own layout.
_SPARSE_PACKED = ("float16", "bfloat16", "fp8", "fp8_e4m3")
#: DeepSeek V4's row: 448 FP8 latents, 64 BF16 rotary elements, 8 scales; pages in multiples of its decode kernel.
_V4_ROW, _V4_ALIGN, _V4_BLOCK = 584, 576, 64
#: DeepSeek V4.1's: tokens of a block of its windows, and the fewest of the ring of a group that is not whole yet
_V41_BLOCK, _V41_RING = 32, 8
#: Full-attention layers at either end that stay unpacked in a model without states.
_PACKED_KEEPS = 2


@dataclass(frozen=True)
class Element:
    """How keys and values are stored."""

    size: Fraction  # bytes of an element
    extra: int  # bytes beside each head vector
    name: str  # of the dtype


def kv_element(kv_cache_dtype: str, shape: Shape) -> Element:
    """How a `--kv-cache-dtype` stores the keys and values of a model."""
    name = str(kv_cache_dtype).strip().lower().removeprefix("torch.")
    if name == "auto":
        name = shape.kv_auto
    if name in _MLA_LAYOUTS:
        if not shape.latent and not shape.compressed:
            raise SizingError(
                "kv_cache_dtype",
                kv_cache_dtype,
                "exists only for models with latent attention (MLA)",
                "Use auto or fp8.",
            )
        return Element(Fraction(0), 0, name)
    if name in _PACKED:
        if shape.latent or shape.compressed:
            raise SizingError("kv_cache_dtype", kv_cache_dtype, "does not exist for latent attention", "Use auto.")
        return Element(Fraction(0), 0, name)
    if name not in _KV_DTYPES:
        known = sorted({"auto", *_KV_DTYPES, *_MLA_LAYOUTS, *_PACKED})
        raise SizingError("kv_cache_dtype", kv_cache_dtype, "has no known size", f"Known: {', '.join(known)}.")
    size, extra = _KV_DTYPES[name]
    return Element(size, extra, name)


def _row(layer: Layer, element: Element, tensor: int, plain: Fraction) -> tuple[int, int]:
    """(bytes of one token, heads) of a layer's keys and values; `plain` is the size of an unpacked element."""
    if layer.latent:
        # the latent is not split: every rank needs all of it
        name = element.name
        if layer.sparse and name in _SPARSE_PACKED:
            name = "fp8_ds_mla"
        return _MLA_LAYOUTS.get(name) or int(layer.key_dim * element.size) + element.extra, 1
    heads = -(-layer.kv_heads // tensor)  # rounded up where an engine pads them
    if element.name in _PACKED:
        keys, values, beside = _PACKED[element.name]
        slot = -(-layer.key_dim * keys // 8) + -(-layer.value_dim * values // 8) + beside
        if element.name == "ultraquant_4bit":
            slot += 2 * (layer.key_dim // 32)
        return heads * (slot + slot % 2), heads
    if element.name in _MLA_LAYOUTS:
        return int(heads * (layer.key_dim + layer.value_dim) * plain), heads
    return heads * (int(layer.key_dim * element.size) + int(layer.value_dim * element.size) + 2 * element.extra), heads


def _attention(layer: Layer, element: Element, tensor: int, plain: Fraction, drafted: int) -> list[Cache]:
    size, heads = _row(layer, element, tensor, plain)
    form = (heads, layer.key_dim, layer.value_dim)
    kind = {FULL: pool.FULL, WINDOW: pool.CHUNK if layer.chunked else pool.WINDOW}[layer.cache]
    pooled = layer.latent and layer.index_ratio > 1
    # GLM 5.3: a state's page is as large as one of rows in 8 bits, before they are packed
    more = {"row": layer.key_dim, "stride": 128 * size} if pooled else {}
    found = [Cache(kind, size, window=layer.window, form=form, **more)] * layer.caches_per_layer
    if layer.index_dim:
        # one vector for each token, whatever TP is: FP8 with an FP32 scale for 128 (DeepSeek), or BF16 (MiniMax)
        index = layer.index_dim * 2 if layer.index_wide else layer.index_dim + 4 * (layer.index_dim // 128)
        stride = 64 * index if pooled else 1
        found += [Cache(pool.FULL, index, layer.index_ratio, form=(1, index), stride=stride)] * layer.caches_per_layer
    if layer.waiting_key:
        # keys of a group that is not whole yet, those of drafted tokens with them
        ring = layer.index_ratio * -(-(layer.index_ratio + drafted) // layer.index_ratio)
        found.append(Cache(pool.RING, layer.waiting_key, block=ring))
    return found


def _compressed(layer: Layer, element: Element) -> list[Cache]:
    """DeepSeek V4: a window of rows, and entries that stand for 4 or 128 tokens, with what is being compressed."""
    if element.name not in ("fp8_ds_mla", *_SPARSE_PACKED):
        raise SizingError(
            "kv_cache_dtype", element.name, "has no known size for compressed attention", "Use auto or fp8."
        )

    def half_done(width: int) -> Cache:
        # keys and scores in FP32, twice where neighbouring groups overlap
        twice = 2 if layer.ratio == 4 else 1
        tokens = 4 if layer.ratio == 4 else 8
        size = 2 * twice * width * 4
        return Cache(pool.WINDOW, size, window=twice * layer.ratio, block=tokens, align=_V4_ALIGN, form=(width,))

    caches = [Cache(pool.WINDOW, _V4_ROW, window=layer.window, block=_V4_BLOCK, align=_V4_ALIGN)]
    if layer.ratio > 1:
        caches.append(Cache(pool.FULL, _V4_ROW, per_entry=layer.ratio, align=_V4_ALIGN))
        caches.append(half_done(layer.key_dim))
    if layer.index_dim:
        index = layer.index_dim + 4 * (layer.index_dim // 128)
        caches.append(Cache(pool.FULL, index, per_entry=layer.ratio, align=_V4_ALIGN))
        caches.append(half_done(layer.index_dim))
    return caches


def _shared_entries(layer: Layer, element: Element, drafted: int) -> list[Cache]:
    """DeepSeek V4.1: a window of rows, and on few layers entries for one or two tokens, with their index."""
    if element.name not in ("fp8_ds_mla", *_SPARSE_PACKED):
        raise SizingError(
            "kv_cache_dtype", element.name, "has no known size for compressed attention", "Use auto or fp8."
        )
    caches = [Cache(pool.WINDOW, _V4_ROW, window=layer.window, block=_V41_BLOCK, align=_V4_ALIGN)]
    if layer.source:
        index = layer.index_dim + 4 * (layer.index_dim // 128)
        caches.append(Cache(pool.FULL, _V4_ROW, per_entry=layer.source, align=_V4_ALIGN))
        caches.append(Cache(pool.FULL, index, per_entry=layer.source, align=_V4_ALIGN))
    if layer.source > 1:
        # keys and scores in FP32 of a step's tokens and of the one before, in a power of two
        ring = max(_V41_RING, 1 << (drafted + 1).bit_length())
        caches.append(Cache(pool.RING, 2 * layer.key_dim * 4, block=ring))
    return caches


def layer_caches(
    layer: Layer, shape: Shape, element: Element, tensor: int, drafted: int = 0, ssm_dtype: str = "auto"
) -> list[Cache]:
    """All that one layer caches on a rank."""
    plain = Fraction(dtype_bytes("dtype", shape.dtype))
    caches: list[Cache] = []
    if shape.model_type in DEEPSEEK_V41_TYPES:
        caches += _shared_entries(layer, element, drafted)
    elif layer.ratio:
        caches += _compressed(layer, element)
    elif layer.cache in (FULL, WINDOW):
        caches += _attention(layer, element, tensor, plain, drafted)
    state = layer_state_bytes(layer, shape, tensor, drafted, ssm_dtype)
    if state:
        caches.append(Cache(pool.STATE, state, spare=layer.checkpoints))
    if layer.whole_width:
        whole = layer.whole_width * (layer.whole_steps + drafted) * dtype_bytes("dtype", shape.dtype)
        caches.append(Cache(pool.STATE, whole, form=(layer.whole_width,)))
    return caches


def layer_state_bytes(layer: Layer, shape: Shape, tensor: int = 1, drafted: int = 0, ssm_dtype: str = "auto") -> int:
    """Bytes of a layer's state for one sequence on one rank, the same at any length."""
    width = layer.conv_width
    if layer.groups and layer.groups % tensor:
        # a group that several ranks need is on each of them
        width += 2 * (tensor - layer.groups) * layer.group_state
    conv = -(-width // tensor) * (layer.conv_steps + drafted) if width else 0
    ssm = shape.ssm_dtype if ssm_dtype == "auto" else ssm_dtype
    return conv * dtype_bytes("dtype", shape.dtype) + -(-layer.ssm_state // tensor) * dtype_bytes(
        "mamba_ssm_cache_dtype", ssm
    )


def common_block(shape: Shape, caches: Sequence[Cache], latent_block: int = 64) -> int:
    """Tokens of a block, as the engine chooses it: with states, so many that a page of attention holds a state."""
    if shape.compressed:
        return 128 if shape.model_type in DEEPSEEK_V41_TYPES else 256
    if any(layer.index_wide and not layer.waiting_key for layer in shape.layers):
        return 128
    smallest = latent_block if shape.latent else 16
    states = [cache.page for cache in caches if cache.kind == pool.STATE]
    rows = [cache.row or cache.bytes for cache in caches if cache.kind == pool.FULL]
    if not states or not rows:
        return smallest
    # GLM 5.3: what 64 entries of its index stand for
    pooled = max((layer.index_ratio for layer in shape.layers if layer.latent), default=1)
    step = 64 * max(pooled, 2) if shape.latent else smallest
    return step * -(-max(states) // (step * rows[0]))


def unpacked_ends(shape: Shape, element: Element) -> set[int]:
    """Layers that a packed dtype leaves alone: the outermost ones of a model without states."""
    if element.name not in _PACKED or shape.count(STATE):
        return set()
    count = shape.num_layers
    keep = min(_PACKED_KEEPS, count // 2)
    return {*range(keep), *range(count - keep, count)}
