# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that one layer caches, for a token or for a sequence, by `--kv-cache-dtype`."""

from __future__ import annotations

from fractions import Fraction

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, WINDOW, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, dtype_bytes

#: KV dtype of vLLM -> (bytes per element, extra bytes per cached head vector for its scale).
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
#: Layouts that only exist for latent attention; bytes per token and layer are fixed by the layout:
#: 512 FP8 latents + 4 FP32 scales + 64 BF16 rotary elements, and the same with 4-bit latents.
_MLA_LAYOUTS = {"fp8_ds_mla": 512 + 16 + 128, "nvfp4_ds_mla": 288 + 128}


def kv_element(kv_cache_dtype: str, shape: Shape) -> tuple[Fraction, int, str]:
    """(bytes per element, extra bytes per head vector, the dtype's name) for a `--kv-cache-dtype` value."""
    name = str(kv_cache_dtype).strip().lower().removeprefix("torch.")
    if name == "auto":
        name = shape.kv_auto
    if name in _MLA_LAYOUTS:
        if not shape.latent:
            raise SizingError(
                "kv_cache_dtype",
                kv_cache_dtype,
                "exists only for models with latent attention (MLA)",
                "Use auto or fp8.",
            )
        return Fraction(0), 0, name
    if name not in _KV_DTYPES:
        known = sorted({"auto", *_KV_DTYPES, *_MLA_LAYOUTS})
        raise SizingError("kv_cache_dtype", kv_cache_dtype, "has no known size", f"Known: {', '.join(known)}.")
    size, extra = _KV_DTYPES[name]
    return size, extra, name


def layer_kv_bytes(layer: Layer, element: tuple[Fraction, int, str], tensor_parallel: int = 1) -> int:
    """Bytes that one token adds to one layer's cache on one rank. KV heads are replicated when TP exceeds them."""
    if layer.cache not in (FULL, WINDOW):
        return 0
    size, extra, name = element
    if layer.latent:
        if name in _MLA_LAYOUTS:
            return layer.caches_per_layer * (_MLA_LAYOUTS[name] + layer.extra_bytes)
        # the latent is not split: every rank needs all of it
        return layer.caches_per_layer * (int(layer.key_dim * size) + extra + layer.extra_bytes)
    heads = max(1, layer.kv_heads // tensor_parallel)
    return heads * (int(layer.key_dim * size) + int(layer.value_dim * size) + 2 * extra)


def layer_state_bytes(layer: Layer, shape: Shape, tensor_parallel: int = 1, ssm_dtype: str | None = None) -> int:
    """Bytes of a hybrid layer's state for one sequence on one rank, the same at any length."""
    conv = layer.conv_state * dtype_bytes("dtype", shape.dtype)
    recurrent = layer.ssm_state * dtype_bytes("mamba_ssm_cache_dtype", ssm_dtype or shape.ssm_dtype)
    return -(-(conv + recurrent) // tensor_parallel)
