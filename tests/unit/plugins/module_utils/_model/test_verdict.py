# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

from tests.unit.published_models import model

SPARK = int(121.69 * 2**30)
GIB = 2**30


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
    options.update(language_model_only=True, max_num_batched_tokens=4_096, max_num_seqs=16)
    four = plan(config, tensor_parallel=4, **options)
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


def test_concurrency_at_the_asked_length() -> None:
    result = plan(model("llama-3.1-8b"), memory_bytes=SPARK, max_model_len=131_072, max_num_seqs=64)
    each = 131_072 * 131_072
    assert result["max_concurrent_sequences"] == pytest.approx(result["ranks"]["kv_cache_bytes"][0] / each, abs=0.01)
    assert "64 asked for" in " ".join(result["reasons"])


def test_windows_hold_every_batch_in_flight() -> None:
    # 9 full layers and 39 windows of MiMo: four stages have five batches in flight, and each window holds them all
    options: dict[str, Any] = {"pipeline_parallel": 4, "max_model_len": 262_144, "kv_cache_dtype": "bfloat16"}
    options.update(memory_bytes=SPARK, weights_bytes=313 * 10**9, max_num_seqs=8)
    large = plan(model("mimo-v2-flash"), max_num_batched_tokens=8_192, **options)
    small = plan(model("mimo-v2-flash"), max_num_batched_tokens=2_048, **options)
    assert large["max_concurrent_sequences"] == 5.94
    assert small["max_concurrent_sequences"] == 11.71


def test_tight_says_what_to_lower_and_by_how_much() -> None:
    options: dict[str, Any] = {"memory_bytes": SPARK, "gpu_memory_utilization": 0.30}
    result = plan(model("llama-3.1-8b"), max_model_len=131_072, **options)
    assert result["verdict"] == "tight"
    assert "boots differ" in " ".join(result["reasons"])
    lower, higher = result["suggestions"]
    words = lower.split()
    assert words[:3] == ["Lower", "max_model_len", "by"]
    length = int(words[-1].rstrip("."))
    assert 131_072 - length == int(words[3])
    assert plan(model("llama-3.1-8b"), max_model_len=length, **options)["verdict"] == "fits"
    options["gpu_memory_utilization"] = float(higher.split()[-1].rstrip("."))
    assert plan(model("llama-3.1-8b"), max_model_len=131_072, **options)["verdict"] == "fits"


def test_a_large_step_is_the_first_to_shrink() -> None:
    options: dict[str, Any] = {"memory_bytes": SPARK, "gpu_memory_utilization": 0.34, "max_model_len": 131_072}
    result = plan(model("llama-3.1-8b"), max_num_batched_tokens=32_768, **options)
    assert result["verdict"] in ("tight", "does_not_fit")
    [smaller] = [text for text in result["suggestions"] if text.startswith("Lower max_num_batched_tokens")]
    batched = int(smaller.split()[3].rstrip(","))
    assert plan(model("llama-3.1-8b"), max_num_batched_tokens=batched, **options)["verdict"] == "fits"


def test_what_is_not_known_is_said_and_nothing_is_promised() -> None:
    config = {**model("llama-3.1-8b"), "compress_ratios": [4] * 32}
    result = plan({**config, "compress_ratios": None, "engram_layer_ids": [3]}, memory_bytes=SPARK, max_model_len=8_192)
    assert result["verdict"] == "unknown"
    assert result["unknown"] == ["config.engram_layer_ids of model_type 'llama'"]
    assert "Not known: config.engram_layer_ids" in result["reasons"][0]
    drafted = plan(
        model("llama-3.1-8b"),
        memory_bytes=SPARK,
        max_model_len=8_192,
        speculative_config={"method": "eagle3", "model": "some/drafter", "num_speculative_tokens": 3},
    )
    assert drafted["verdict"] == "unknown"
    assert "some/drafter" in drafted["unknown"][0]


def test_a_model_without_a_written_width_does_not_fit_a_small_spark() -> None:
    result = plan(model("falcon-40b"), memory_bytes=64 * GIB)
    assert result["verdict"] == "does_not_fit"
