# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""memory_plan against values worked out by hand from the models' published shapes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    SizingError,
    dtype_bytes,
    parse_length,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.published_models import model

SPARK = int(121.69 * 2**30)
GIB = 2**30

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


# (model, parameters in the published description, in billions; active ones)
PARAMETERS = [
    ("llama-3.1-405b-awq-int4", 405.85, None),
    ("llama-3.1-8b", 8.03, None),
    ("qwen2.5-7b-instruct", 7.62, None),
    ("qwen3-30b-a3b-thinking-2507-fp8", 30.53, None),
    ("qwen3.5-397b-a17b-fp8", 397.0, 17.0),
    ("qwen3.5-122b-a10b-fp8", 122.5, None),
    ("nemotron-3-super-120b-a12b-nvfp4", 120.6, 12.0),
    ("deepseek-v3", 671.0, 37.0),
    ("deepseek-v2-lite", 15.7, None),
    ("gemma-3-27b-it", 27.4, None),
    ("gpt-oss-120b", 116.8, 5.1),
    ("mistral-7b-v0.1", 7.24, None),
    ("jamba-v0.1", 51.6, None),
    # two thirds of 5.25 x 8192 is 28,672, and so on through 80 blocks
    ("llama-3.3-nemotron-super-49b-v1", 49.87, None),
    # a shared expert in each layer
    ("llama-4-scout-17b-16e", 108.6, 17.0),
    ("mimo-v2-flash", 309.0, 15.0),
    ("gemma-3-4b-it", 4.3, None),
    ("gemma-3-12b-it", 12.19, None),
    # 3 dense layers, 96 heads where attention slides
    ("step-3.5-flash", 196.8, 11.4),
    ("hunyuan-a13b-instruct", 80.4, 13.0),
    # 64 experts for text and 64 narrower ones for images
    ("ernie-4.5-vl-424b-a47b", 424.0, 47.0),
    # 60 x (2 x 8192^2 + 2 x 512 x 8192 + 2 x 4 x 8192^2) + 2 x 65024 x 8192: the file names no width
    ("falcon-40b", 41.84, None),
    # the dense block stays beside the experts
    ("gemma-4-26b-a4b-it", 25.2, 3.8),
    # a vision tower of 0.6e9: its width is embed_dim
    ("qwen2-vl-72b-instruct", 73.4, None),
]


@pytest.mark.parametrize(("name", "billions", "active"), PARAMETERS, ids=[row[0] for row in PARAMETERS])
def test_weights_follow_from_the_shape(name: str, billions: float, active: float | None) -> None:
    config = model(name)
    config.pop("quantization_config", None)  # so that every parameter has the same size
    width = dtype_bytes("dtype", read_shape(config).dtype)
    result = plan(config)
    assert result["weights_bytes"] / width / 1e9 == pytest.approx(billions, rel=0.01)
    if active:
        assert result["active_bytes"] / width / 1e9 == pytest.approx(active, rel=0.055)


def test_packed_checkpoints_have_their_published_size() -> None:
    # 65.25 GB on the hub: 4-bit experts, everything else BF16
    assert plan(model("gpt-oss-120b"))["weights_bytes"] == pytest.approx(65.25e9, rel=0.01)


STATES = [
    # 45 layers: convolution (2 x 16 x 128 + 64 x 128) x 3 in BF16, recurrent 64 x 128 x 128 in FP32
    ("qwen3.5-397b-a17b-fp8", 45 * ((2 * 2048 + 8192) * 3 * 2 + 64 * 128 * 128 * 4)),
    ("qwen3.5-122b-a10b-fp8", 36 * ((2 * 2048 + 8192) * 3 * 2 + 64 * 128 * 128 * 4)),
    # 40 Mamba-2 layers: (128 x 64 + 2 x 8 x 128) x 3 in BF16, 128 x 64 x 128 in FP32
    ("nemotron-3-super-120b-a12b-nvfp4", 40 * ((8192 + 2048) * 3 * 2 + 128 * 64 * 128 * 4)),
    # 28 Mamba-1 layers of 8192 channels: 3 convolution inputs and 16 states, all BF16
    ("jamba-v0.1", 28 * (8192 * 3 + 8192 * 16) * 2),
    # 20 layers: three convolutions of 4096 x 3 and 32 heads of 128 x 128, all BF16
    ("kimi-linear-48b-a3b", 20 * (3 * 4096 * 3 + 32 * 128 * 128) * 2),
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


SHARDED = [
    # model, TP, PP, per rank by hand
    ("qwen3.5-397b-a17b-fp8", 2, 1, 15_360),  # 2 KV heads: one each
    ("qwen3.5-397b-a17b-fp8", 4, 1, 15_360),  # replicated: still one each
    ("qwen3.5-397b-a17b-fp8", 1, 3, 10_240),  # 5 of 15 full layers
    ("llama-3.1-405b-awq-int4", 1, 3, 172_032),  # 42 of 126
    ("llama-3.1-405b-awq-int4", 8, 1, 64_512),
    ("llama-3.1-405b-awq-int4", 16, 1, 64_512),  # 8 KV heads on 16 ranks
    ("qwen3-30b-a3b-thinking-2507-fp8", 2, 1, 49_152),
    ("nemotron-3-super-120b-a12b-nvfp4", 1, 2, 4_096),  # 4 of 8: letters 7, 16, 25, 36 | 47, 58, 69, 78
    ("nemotron-3-super-120b-a12b-nvfp4", 1, 4, 2_048),  # 2 each: stages of 22
    ("qwen3.5-122b-a10b-fp8", 1, 4, 6_144),  # 12 layers a stage hold 3 full ones
    ("deepseek-v3", 8, 1, 70_272),  # a latent is not split
    ("deepseek-v3", 1, 4, 16 * 1_152),  # 15 + 15 + 16 + 15 layers
]


@pytest.mark.parametrize(("name", "tensor", "pipeline", "expected"), SHARDED)
def test_kv_per_rank(name: str, tensor: int, pipeline: int, expected: int) -> None:
    result = plan(model(name), tensor_parallel=tensor, pipeline_parallel=pipeline, kv_cache_dtype="bfloat16")
    assert result["kv_bytes_per_token_per_rank"] == expected
    ranks = result["ranks"]
    assert len(ranks["kv_bytes_per_token_per_rank"]) == tensor * pipeline
    assert max(ranks["kv_bytes_per_token_per_rank"]) == expected
    assert max(ranks["weights_bytes_per_rank"]) == result["weights_bytes_per_rank"]


KV_DTYPES = [
    ("llama-3.1-8b", "auto", 131_072, "bfloat16"),
    ("llama-3.1-8b", "fp8_e4m3", 65_536, "fp8_e4m3"),
    ("llama-3.1-8b", "fp8_e5m2", 65_536, "fp8_e5m2"),
    ("llama-3.1-8b", "nvfp4", 36_864, "nvfp4"),  # 9/16 of a byte
    ("llama-3.1-8b", "float32", 262_144, "float32"),
    ("llama-3.1-8b", "int8_per_token_head", 65_536 + 2 * 32 * 8 * 4, "int8_per_token_head"),
    ("tiny-qwen3", "auto", 2 * 6 * 6 * 32 * 4, "float32"),
    # the checkpoint asks for an FP8 cache
    ("nemotron-3-super-120b-a12b-nvfp4", "auto", 4_096, "fp8"),
    ("deepseek-v3", "fp8_ds_mla", 61 * 656, "fp8_ds_mla"),
]


@pytest.mark.parametrize(("name", "dtype", "expected", "resolved"), KV_DTYPES)
def test_kv_dtype(name: str, dtype: str, expected: int, resolved: str) -> None:
    result = plan(model(name), kv_cache_dtype=dtype)
    assert (result["kv_bytes_per_token"], result["kv_cache_dtype"]) == (expected, resolved)


def test_torch_dtype_and_dtype_are_the_same_field() -> None:
    config = model("llama-3.1-8b")
    config["dtype"] = config.pop("torch_dtype")
    assert plan(config)["kv_bytes_per_token"] == 131_072
    config["dtype"] = "torch.float32"
    assert plan(config)["kv_bytes_per_token"] == 262_144


def test_windows_cost_a_constant_not_a_rate() -> None:
    gemma = model("gemma-3-27b-it")
    result = plan(gemma, max_model_len=131_072, max_num_batched_tokens=2_048, memory_bytes=SPARK)
    # 52 sliding layers, a window of 1024 and the chunk in flight
    assert result["window_bytes_per_sequence_per_rank"] == 52 * 2 * 16 * 128 * 2 * (1_024 + 2_048)
    assert result["kv_bytes_per_token_within_window"] == 62 * 2 * 16 * 128 * 2
    # a context inside the window is an ordinary one
    short = plan(gemma, max_model_len=512, memory_bytes=SPARK)
    assert short["kv_bytes_per_token"] == 62 * 2 * 16 * 128 * 2
    assert short["window_bytes_per_sequence_per_rank"] == 0


def test_a_window_as_long_as_the_context_is_none() -> None:
    config = {**model("mistral-7b-v0.1"), "sliding_window": 32_768}
    result = plan(config, memory_bytes=SPARK)
    assert result["window_bytes_per_sequence_per_rank"] == 0
    assert result["max_tokens"] == result["ranks"]["kv_cache_bytes"][0] // 131_072


def test_layers_that_share_a_cache_hold_none() -> None:
    config = {**model("llama-3.1-8b"), "num_kv_shared_layers": 12}
    assert plan(config)["kv_bytes_per_token"] == 20 * 4_096


def test_falcon_h1_layers_hold_both() -> None:
    config = {
        **model("llama-3.1-8b"),
        "model_type": "falcon_h1",
        "mamba_n_heads": 32,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_n_groups": 1,
        "mamba_d_conv": 4,
    }
    result = plan(config)
    assert result["kv_bytes_per_token"] == 131_072
    assert result["state_bytes_per_sequence"] == 32 * ((2048 + 2 * 128) * 3 + 32 * 64 * 128) * 2


def test_405b_int4_on_three_sparks_fits() -> None:
    result = plan(
        model("llama-3.1-405b-awq-int4"),
        pipeline_parallel=3,
        max_model_len=32_768,
        memory_bytes=SPARK,
        weights_bytes=203 * 10**9,
    )
    assert result["verdict"] == "fits"
    # one third of the layers, and the embedding of 128256 x 16384 in FP16 on the first stage (scaled to 203 GB)
    assert result["weights_bytes_per_rank"] == pytest.approx((203e9 - 8.4e9) / 3 + 4.2e9, rel=0.01)
    assert sum(result["ranks"]["weights_bytes_per_rank"]) == pytest.approx(203e9, rel=0.001)


def test_397b_fp8_needs_four_sparks() -> None:
    config = model("qwen3.5-397b-a17b-fp8")
    options: dict[str, Any] = {"memory_bytes": SPARK, "weights_bytes": 379 * GIB, "max_model_len": 131_072}
    options["language_model_only"] = True
    four = plan(config, tensor_parallel=4, max_num_batched_tokens=4_096, **options)
    assert four["verdict"] in ("fits", "tight")
    # 0.85 x 121.69 - 379/4 leaves 8.7 GiB for cache and activations
    left = four["ranks"]["kv_cache_bytes"][0] + four["overhead_bytes_per_rank"]
    assert left == pytest.approx(8.69 * GIB, rel=0.03)
    assert four["max_tokens"] > 131_072
    three = plan(config, pipeline_parallel=3, **options)
    assert three["verdict"] == "does_not_fit"
    assert "4 GPUs" in " ".join(three["suggestions"])
    assert "weights 126.7 GiB" in three["reasons"][0]
    assert "121.7 GiB" in three["reasons"][0]


def test_the_smallest_host_decides() -> None:
    config = model("qwen3.5-122b-a10b-fp8")
    sizes = [SPARK, SPARK, SPARK, 32 * GIB]
    result = plan(config, pipeline_parallel=4, max_model_len=32_768, memory_bytes=sizes, hosts=["a", "b", "c", "d"])
    assert result["verdict"] == "does_not_fit"
    assert [reason.partition(":")[0] for reason in result["reasons"]] == ["d"]
    whole = plan(config, pipeline_parallel=4, max_model_len=32_768, memory_bytes=SPARK)
    assert whole["verdict"] == "fits"


def test_memory_that_is_taken_now_is_named() -> None:
    result = plan(
        model("llama-3.1-8b"),
        max_model_len=8_192,
        memory_bytes=SPARK,
        memory_available_bytes=60 * GIB,
        hosts=["spark1"],
    )
    assert result["verdict"] == "does_not_fit"
    assert "spark1: 60.0 GiB of memory is available now" in result["reasons"][0]
    assert any(text.startswith("gpu_memory_utilization=0.49") for text in result["suggestions"])


def test_too_long_a_context_names_the_longest_that_fits() -> None:
    result = plan(
        model("llama-3.1-405b-awq-int4"),
        pipeline_parallel=3,
        memory_bytes=90 * GIB,
        weights_bytes=203 * 10**9,
        max_model_len=131_072,
        kv_cache_dtype="float16",
    )
    assert result["verdict"] == "does_not_fit"
    longest = int(result["suggestions"][0].split("=")[1].split()[0])
    again = plan(
        model("llama-3.1-405b-awq-int4"),
        pipeline_parallel=3,
        memory_bytes=90 * GIB,
        weights_bytes=203 * 10**9,
        max_model_len=longest,
        kv_cache_dtype="float16",
    )
    assert again["verdict"] in ("fits", "tight")


def test_a_high_utilization_is_at_best_tight() -> None:
    result = plan(model("llama-3.1-8b"), memory_bytes=SPARK, gpu_memory_utilization=0.92, max_model_len=4_096)
    assert result["verdict"] == "tight"
    assert "above the edge seen on unified memory" in " ".join(result["reasons"])


def test_without_memory_there_are_sizes_and_no_verdict() -> None:
    result = plan(model("llama-3.1-8b"))
    assert result["verdict"] == "unknown"
    assert result["max_tokens"] is None
    assert result["kv_bytes_per_token"] == 131_072


def test_a_pinned_cache_replaces_the_share() -> None:
    result = plan(model("llama-3.1-8b"), memory_bytes=SPARK, kv_cache_memory_bytes=4 * GIB, max_model_len=8_192)
    assert result["max_tokens"] == 4 * GIB // 131_072
    too_much = plan(model("llama-3.1-8b"), memory_bytes=24 * GIB, kv_cache_memory_bytes=20 * GIB, max_model_len=8_192)
    assert too_much["verdict"] == "does_not_fit"


def test_concurrency_at_the_asked_length() -> None:
    result = plan(model("llama-3.1-8b"), memory_bytes=SPARK, max_model_len=131_072, max_num_seqs=64)
    each = 131_072 * 131_072
    assert result["max_concurrent_sequences"] == pytest.approx(result["ranks"]["kv_cache_bytes"][0] / each, abs=0.01)
    assert "64 asked for" in " ".join(result["reasons"])


def test_decode_bound() -> None:
    # facts: N x 273 GB/s / 17 GB for TP, 273 / 17 for PP
    config = model("qwen3.5-397b-a17b-fp8")
    assert plan(config, tensor_parallel=4, active_bytes=17 * 10**9)["decode_tokens_per_second_bound"] == 64.2
    assert plan(config, pipeline_parallel=3, active_bytes=17 * 10**9)["decode_tokens_per_second_bound"] == 16.1


def test_tied_embeddings_are_needed_at_both_ends() -> None:
    gemma = model("gemma-3-27b-it")
    weights = plan(gemma, pipeline_parallel=2, language_model_only=True)["ranks"]["weights_bytes_per_rank"]
    assert weights[0] == weights[1]


def test_four_sparks_hold_fourteen_long_sequences_of_mimo() -> None:
    # free on the fullest rank / its part of 9 full layers; were every layer a window, 54 would fit
    result = plan(
        model("mimo-v2-flash"),
        memory_bytes=SPARK,
        pipeline_parallel=4,
        max_model_len=262_144,
        weights_bytes=313 * 10**9,
        kv_cache_dtype="bfloat16",
        max_num_seqs=8,
    )
    assert result["max_concurrent_sequences"] == pytest.approx(14.25, rel=0.01)


def test_a_model_without_a_written_width_does_not_fit_a_small_spark() -> None:
    result = plan(model("falcon-40b"), memory_bytes=64 * GIB)
    assert result["verdict"] == "does_not_fit"


def test_blocks_must_be_as_many_as_layers() -> None:
    config = model("llama-3.3-nemotron-super-49b-v1")
    config["block_configs"].pop()
    with pytest.raises(SizingError, match="79 layers of block_configs"):
        plan(config)


def test_replaced_blocks_are_one_matrix() -> None:
    """An attention or feed-forward part that is replaced by a linear map is hidden x hidden and caches nothing."""
    config = model("llama-3.3-nemotron-super-49b-v1")
    config["block_configs"][0]["attention"] = {"n_heads_in_group": None, "replace_with_linear": True}
    config["block_configs"][0]["ffn"] = {"ffn_mult": None, "replace_with_linear": True}
    config["block_configs"][1]["ffn"] = {"ffn_mult": None, "no_op": True}
    first, second, *_others = read_shape(config).layers
    assert (first.cache, first.attention_params, first.kv_params, first.dense_params) == ("none", 8192**2, 0, 8192**2)
    assert (second.cache, second.dense_params) == ("full", 0)


BAD = [
    ({"tensor_parallel": 3}, "tensor_parallel", "32 attention heads"),
    ({"tensor_parallel": 0}, "tensor_parallel", "below 1"),
    ({"tensor_parallel": "two"}, "tensor_parallel", "not an integer"),
    ({"tensor_parallel": True}, "tensor_parallel", "not an integer"),
    ({"pipeline_parallel": 33}, "pipeline_parallel", "32 layers"),
    ({"kv_cache_dtype": "fp9"}, "kv_cache_dtype", "Known: auto"),
    ({"kv_cache_dtype": "fp8_ds_mla"}, "kv_cache_dtype", "latent"),
    ({"max_model_len": 200_000}, "max_model_len", "131072"),
    ({"memory_bytes": [SPARK, SPARK]}, "memory_bytes", "2 entries for 1 ranks"),
    ({"memory_bytes": -5}, "memory_bytes", "below 1"),
    ({"gpu_memory_utilization": 85}, "gpu_memory_utilization", "between 0 and 1"),
    ({"gpu_memory_utilization": "much"}, "gpu_memory_utilization", "not a number"),
    ({"weights_bytes": 0}, "weights_bytes", "below 1"),
    ({"hosts": ["a", "b"]}, "hosts", "does not match 1 ranks"),
]


@pytest.mark.parametrize(("options", "variable", "text"), BAD)
def test_bad_options(options: dict[str, Any], variable: str, text: str) -> None:
    with pytest.raises(SizingError) as caught:
        plan(model("llama-3.1-8b"), **options)
    assert caught.value.variable == variable
    assert text in str(caught.value)
    assert caught.value.fix
    assert isinstance(caught.value, ValueError)


BROKEN = [
    ("num_hidden_layers", None, "num_hidden_layers"),
    ("hidden_size", None, "hidden_size"),
    ("num_attention_heads", None, "num_attention_heads"),
    ("num_hidden_layers", "many", "num_hidden_layers"),
    ("num_attention_heads", 30, "hidden_size"),
    ("torch_dtype", "float12", "dtype"),
    ("layer_types", ["full_attention", "dreaming"], "layer_types"),
    ("layer_types", ["full_attention"] * 31, "num_hidden_layers"),
    ("hybrid_override_pattern", "MX*", "hybrid_override_pattern"),
]


@pytest.mark.parametrize(("key", "value", "variable"), BROKEN)
def test_broken_configs(key: str, value: Any, variable: str) -> None:
    config = model("llama-3.1-8b")
    if value is None:
        del config[key]
    else:
        config[key] = value
    with pytest.raises(SizingError) as caught:
        plan(config)
    assert caught.value.variable == f"config.{variable}"


def test_a_config_must_be_a_mapping() -> None:
    with pytest.raises(SizingError, match="is not a mapping"):
        plan("config.json")  # type: ignore[arg-type]


def test_kv_heads_must_divide_or_be_divided() -> None:
    config = {**model("llama-3.1-8b"), "num_attention_heads": 36, "num_key_value_heads": 9, "head_dim": 128}
    with pytest.raises(SizingError, match="9 KV heads"):
        plan(config, tensor_parallel=2)


def test_numbers_as_vllm_writes_them() -> None:
    assert parse_length("kv-cache-memory-bytes", "8G") == 8 * 2**30
    assert parse_length("kv-cache-memory-bytes", "0.5t") == 5 * 10**11
    pinned = plan(model("llama-3.1-8b"), memory_bytes=SPARK, kv_cache_memory_bytes="8G")
    assert pinned["ranks"]["kv_cache_bytes"] == [8 * GIB]


def test_memory_by_host_is_shared_by_its_ranks() -> None:
    llama = model("llama-3.1-8b")
    result = plan(llama, tensor_parallel=4, memory_bytes=[SPARK, 2 * SPARK], hosts=["a", "b"])
    assert result["ranks"]["memory_bytes"] == [SPARK // 2, SPARK // 2, SPARK, SPARK]
    assert result["ranks"]["host"] == ["a", "a", "b", "b"]
    alone = plan(llama, tensor_parallel=2, memory_bytes=[SPARK], hosts=["a"])
    assert alone["ranks"]["memory_bytes"] == [SPARK // 2] * 2
    # without names of hosts, one entry is what each rank has
    assert plan(llama, tensor_parallel=2, memory_bytes=[SPARK])["ranks"]["memory_bytes"] == [SPARK] * 2
    with pytest.raises(SizingError, match="2 entries for 4 ranks"):
        plan(llama, tensor_parallel=4, memory_bytes=[SPARK, SPARK])


def test_a_stage_without_attention_that_does_not_fit_leaves_no_tokens() -> None:
    """The last of 16 stages of Nemotron caches nothing, so its own rank names no limit."""
    memory = [SPARK] * 15 + [6 * GIB]
    result = plan(
        model("nemotron-3-super-120b-a12b-nvfp4"), pipeline_parallel=16, memory_bytes=memory, max_model_len=4_096
    )
    assert result["ranks"]["max_tokens"][-1] is None
    assert (result["verdict"], result["max_tokens"]) == ("does_not_fit", 0)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 6))
def test_no_rank_holds_less_than_its_share(heads_power: int, tp_power: int, stages: int) -> None:
    """Over all ranks at least one whole model and one whole cache are held, whatever the split."""
    heads = 2**heads_power
    config = {**model("llama-3.1-8b"), "num_key_value_heads": heads}
    result = plan(config, tensor_parallel=2**tp_power, pipeline_parallel=stages)
    assert sum(result["ranks"]["kv_bytes_per_token_per_rank"]) >= result["kv_bytes_per_token"]
    assert sum(result["ranks"]["weights_bytes_per_rank"]) + 16 >= result["weights_bytes"]
