# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of a cache against values worked out by hand from the models' published shapes."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model

# (model, KV bytes per token in BF16, the hand calculation)
KV_BY_HAND = [
    ("llama-3.1-405b-awq-int4", 516_096, "2 x 126 layers x 8 heads x 128 x 2 B"),
    ("llama-3.1-8b", 131_072, "2 x 32 x 8 x 128 x 2; head_dim absent: 4096/32"),
    ("qwen2.5-7b-instruct", 57_344, "2 x 28 x 4 x (3584/28) x 2; use_sliding_window is false"),
    ("qwen3-30b-a3b-thinking-2507-fp8", 98_304, "2 x 48 x 4 x 128 x 2; head_dim is not 2048/32"),
    ("qwen3.5-397b-a17b-fp8", 30_720, "2 x 15 of 60 layers (layer_types) x 2 x 256 x 2"),
    ("qwen3.5-122b-a10b-fp8", 24_576, "2 x 12 of 48 layers (full_attention_interval alone) x 2 x 256 x 2"),
    ("nemotron-3-super-120b-a12b-nvfp4", 8_192, "2 x 8 of 88 layers ('*' of the pattern) x 2 x 128 x 2"),
    ("deepseek-v3", 70_272, "61 layers x (512 latent + 64 rotary) x 2: latent attention, one vector"),
    ("deepseek-v2-lite", 31_104, "27 x 576 x 2"),
    ("kimi-linear-48b-a3b", 8_064, "7 full layers of linear_attn_config x 576 x 2"),
    ("gemma-3-27b-it", 81_920, "2 x 10 of 62 layers (every sixth) x 16 x 128 x 2"),
    ("gpt-oss-120b", 36_864, "2 x 18 of 36 layers x 8 x 64 x 2"),
    ("mistral-7b-v0.1", 131_072, "every layer slides: 2 x 32 x 8 x 128 x 2 until the window is full"),
    ("jamba-v0.1", 16_384, "2 x 4 of 32 layers (period 8, offset 4) x 8 x 128 x 2"),
    ("llama-4-scout-17b-16e", 49_152, "2 x 12 of 48 layers (an empty no_rope_layers: every fourth) x 8 x 128 x 2"),
    ("mimo-v2-flash", 23_040, "9 of 48 layers (0 in hybrid_layer_pattern) x 4 x (192 + 128) x 2"),
    ("mimo-v2.6-flash-rl", 23_040, "the same"),
    ("gemma-3-4b-it", 20_480, "2 x 5 of 34 layers x 4 x 256 x 2; heads and head_dim are the class's"),
    ("gemma-3-12b-it", 65_536, "2 x 8 of 48 layers x 8 x 256 x 2; head_dim is the class's, not 3840/16"),
    ("llama-3.3-nemotron-super-49b-v1", 200_704, "2 x 49 of 80 layers with attention x 64/8 heads x 128 x 2"),
    ("step-3.5-flash", 49_152, "2 x 12 of 45 layers x 8 groups x 128 x 2; layer_types names 3 prediction layers more"),
    ("gemma-3n-e4b-it", 8_192, "2 x 4 of the 20 layers with a cache of their own x 2 x 256 x 2"),
    ("hunyuan-a13b-instruct", 131_072, "2 x 32 x 8 x 128 x 2"),
    ("ernie-4.5-vl-424b-a47b", 221_184, "2 x 54 x 8 x (8192/64) x 2"),
    ("falcon-40b", 122_880, "2 x 60 x 8 x (8192/128) x 2"),
    ("gemma-4-26b-a4b-it", 20_480, "2 x 5 of 30 layers x 2 global heads x 512 x 2"),
    ("qwen2-vl-72b-instruct", 327_680, "2 x 80 x 8 x 128 x 2"),
]


@pytest.mark.parametrize(("name", "expected", "why"), KV_BY_HAND, ids=[row[0] for row in KV_BY_HAND])
def test_kv_bytes_per_token(name: str, expected: int, why: str) -> None:
    result = plan(model(name), kv_cache_dtype="bfloat16")
    assert result["kv_bytes_per_token"] == expected, why
    assert plan(model(name), kv_cache_dtype="fp8")["kv_bytes_per_token"] == expected // 2


def test_deepseek_v41_keeps_entries_on_few_layers_that_the_others_read() -> None:
    """Three of 2 tokens and one of 1, each with a key of its index in FP8 (132 bytes); a window on all 40 layers."""
    ranks = plan(model("deepseek-v4.1-flash"), kv_cache_dtype="fp8", tensor_parallel=4)["ranks"]
    assert ranks["kv_bytes_of_token"] == [3 * (584 + 132) // 2 + 584 + 132] * 4
    assert ranks["window_bytes_of_token"] == [40 * 584] * 4
    with pytest.raises(SizingError, match="compressed attention"):
        plan(model("deepseek-v4.1-flash"), kv_cache_dtype="int8")


STATES = [
    # 45 layers: convolution (2 x 16 x 128 + 64 x 128) x 3 in BF16, recurrent 64 x 128 x 128 in FP32
    ("qwen3.5-397b-a17b-fp8", 45 * ((2 * 2048 + 8192) * 3 * 2 + 64 * 128 * 128 * 4)),
    ("qwen3.5-122b-a10b-fp8", 36 * ((2 * 2048 + 8192) * 3 * 2 + 64 * 128 * 128 * 4)),
    # 40 Mamba-2 layers: (128 x 64 + 2 x 8 x 128) x 3 in BF16, 128 x 64 x 128 in FP32
    ("nemotron-3-super-120b-a12b-nvfp4", 40 * ((8192 + 2048) * 3 * 2 + 128 * 64 * 128 * 4)),
    # 28 Mamba-1 layers of 8192 channels: 3 convolution inputs and 16 states, all BF16
    ("jamba-v0.1", 28 * (8192 * 3 + 8192 * 16) * 2),
    # 20 layers: three convolutions of 4096 x 3 in BF16 and 32 heads of 128 x 128, which vLLM keeps in FP32
    ("kimi-linear-48b-a3b", 20 * (3 * 4096 * 3 * 2 + 32 * 128 * 128 * 4)),
    ("llama-3.1-8b", 0),
]


@pytest.mark.parametrize(("name", "expected"), STATES, ids=[row[0] for row in STATES])
def test_state_of_hybrid_layers(name: str, expected: int) -> None:
    assert plan(model(name))["state_bytes_per_sequence"] == expected


def test_states_divide_by_tp_and_follow_the_asked_dtype() -> None:
    config = model("qwen3.5-397b-a17b-fp8")
    whole = plan(config)["state_bytes_per_sequence"]
    assert plan(config, tensor_parallel=4)["state_bytes_per_sequence_per_rank"] == whole // 4
    halves = plan(config, mamba_ssm_cache_dtype="bfloat16")["state_bytes_per_sequence"]
    assert halves == 45 * ((2 * 2048 + 8192) * 3 * 2 + 64 * 128 * 128 * 2)


KV_DTYPES = [
    ("llama-3.1-8b", "auto", 131_072, "bfloat16"),
    ("llama-3.1-8b", "fp8_e4m3", 65_536, "fp8_e4m3"),
    ("llama-3.1-8b", "fp8_e5m2", 65_536, "fp8_e5m2"),
    ("llama-3.1-8b", "nvfp4", 36_864, "nvfp4"),  # 9/16 of a byte
    ("llama-3.1-8b", "float32", 262_144, "float32"),
    ("llama-3.1-8b", "int8_per_token_head", 65_536 + 2 * 32 * 8 * 4, "int8_per_token_head"),
    ("tiny-qwen3", "auto", 2 * 6 * 6 * 32 * 2, "bfloat16"),
    # the checkpoint asks for an FP8 cache
    ("nemotron-3-super-120b-a12b-nvfp4", "auto", 4_096, "fp8"),
    ("deepseek-v3", "fp8_ds_mla", 61 * 656, "fp8_ds_mla"),
    # packed: bits of a key and of a value, and bytes beside them, in 28 layers; two at either end stay as they are
    ("llama-3.1-8b", "turboquant_k8v4", 28 * 8 * (128 + 64 + 4) + 4 * 4096, "turboquant_k8v4"),
    ("llama-3.1-8b", "turboquant_4bit_nc", 28 * 8 * (64 + 64 + 6) + 4 * 4096, "turboquant_4bit_nc"),
    ("llama-3.1-8b", "turboquant_k3v4_nc", 28 * 8 * (48 + 64 + 6) + 4 * 4096, "turboquant_k3v4_nc"),
    ("llama-3.1-8b", "turboquant_3bit_nc", 28 * 8 * (48 + 48 + 6) + 4 * 4096, "turboquant_3bit_nc"),
    # and a scale of 8 bits for each 32 elements
    ("llama-3.1-8b", "ultraquant_4bit", 28 * 8 * (64 + 64 + 2 * 4) + 4 * 4096, "ultraquant_4bit"),
]


@pytest.mark.parametrize(("name", "dtype", "expected", "resolved"), KV_DTYPES)
def test_kv_dtype(name: str, dtype: str, expected: int, resolved: str) -> None:
    result = plan(model(name), kv_cache_dtype=dtype)
    assert (result["kv_bytes_per_token"], result["kv_cache_dtype"]) == (expected, resolved)
