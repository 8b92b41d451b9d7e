# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""memory_plan against values worked out by hand from the models' published shapes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    SizingError,
    parse_length,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.truth.speeds import config
from tests.unit.published_models import model

SPARK = int(121.69 * 2**30)
GIB = 2**30


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


def test_windows_cost_a_constant_not_a_rate() -> None:
    gemma = model("gemma-3-27b-it")
    result = plan(gemma, max_model_len=131_072, max_num_batched_tokens=2_048, memory_bytes=SPARK)
    # 52 sliding layers, a window of 1024 less the token itself, and two batches in flight
    assert result["window_bytes_per_sequence_per_rank"] == 52 * 2 * 16 * 128 * 2 * (1_023 + 2 * 2_048)
    assert result["kv_bytes_per_token_within_window"] == 62 * 2 * 16 * 128 * 2
    # a context inside the window is an ordinary one
    short = plan(gemma, max_model_len=512, memory_bytes=SPARK)
    assert short["kv_bytes_per_token"] == 62 * 2 * 16 * 128 * 2
    assert short["window_bytes_per_sequence_per_rank"] == 0


def _whole_blocks(tokens: int) -> int:
    """Tokens in blocks of 16, of which vLLM hands out all but one."""
    return (tokens // 16 - 1) * 16


def test_a_window_as_long_as_the_context_is_none() -> None:
    config = {**model("mistral-7b-v0.1"), "sliding_window": 32_768}
    result = plan(config, memory_bytes=SPARK)
    assert result["window_bytes_per_sequence_per_rank"] == 0
    assert result["max_tokens"] == result["ranks"]["kv_cache_bytes"][0] // 131_072


def test_a_pinned_cache_replaces_the_share() -> None:
    result = plan(model("llama-3.1-8b"), memory_bytes=SPARK, kv_cache_memory_bytes=4 * GIB, max_model_len=8_192)
    assert result["max_tokens"] == _whole_blocks(4 * GIB // 131_072)
    too_much = plan(model("llama-3.1-8b"), memory_bytes=24 * GIB, kv_cache_memory_bytes=20 * GIB, max_model_len=8_192)
    assert too_much["verdict"] == "does_not_fit"


def test_decode_bound() -> None:
    # facts: N x 273 GB/s / 17 GB for TP, 273 / 17 for PP
    config = model("qwen3.5-397b-a17b-fp8")
    assert plan(config, tensor_parallel=4, active_bytes=17 * 10**9)["decode_tokens_per_second_bound"] == 64.2
    assert plan(config, pipeline_parallel=3, active_bytes=17 * 10**9)["decode_tokens_per_second_bound"] == 16.1


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


@pytest.mark.parametrize("size", [None, 60 * GIB])
def test_no_number_rests_on_a_guess(size: int | None) -> None:
    """Of an attention that is not known: what it was taken for is said, and no cache, concurrency or speed is given."""
    config = {**model("llama-3.1-8b"), "model_type": "glm9_next"}
    found = plan(config, memory_bytes=SPARK, max_model_len=8192, tensor_parallel=2, weights_bytes=size)
    assert found["verdict"] == "unknown"
    assert found["reasons"][-1].startswith("Assumed for the split: 32 layers that keep the whole context, 0 a window")
    for name in ("kv_bytes_per_token", "kv_cache_tokens", "max_concurrent_sequences", "max_tokens"):
        assert found[name] is None, name
    assert found["request_bytes_per_rank"] is None
    assert found["prefill_flops_per_token"] is None
    assert found["ranks"]["kv_cache_bytes"] == found["ranks"]["request_bytes"] == [None, None]
    # the checkpoint's own size is no guess
    assert found["weights_bytes"] == size
    assert (found["decode_tokens_per_second_bound"] is None) is (size is None)
    assert found["ranks"]["host"] == ["rank 0", "rank 1"]


def test_weights_alone_refuse_what_is_not_known() -> None:
    config = {**model("llama-3.1-8b"), "model_type": "glm9_next"}
    found = plan(config, memory_bytes=SPARK, weights_bytes=200 * GIB)
    assert found["verdict"] == "does_not_fit"
    assert any("weights 200.0 GiB and overhead" in reason for reason in found["reasons"])
    # and an estimate of them does not
    assert plan({**config, "num_hidden_layers": 2000}, memory_bytes=SPARK)["verdict"] == "unknown"


def test_a_cache_of_an_image_of_others_costs_the_numbers_of_the_cache_alone() -> None:
    given = {"memory_bytes": SPARK, "tensor_parallel": 2, "kv_cache_dtype": "nvfp4_ds_mla", "max_model_len": 65536}
    with pytest.raises(SizingError, match="has no known size for compressed attention"):
        plan(model("deepseek-v4-flash"), **given)
    result = plan(model("deepseek-v4-flash"), **given, image_of_others=True)
    plain = plan(model("deepseek-v4-flash"), **{**given, "kv_cache_dtype": "auto"})
    assert (result["verdict"], plain["verdict"]) == ("unknown", "fits")
    assert (result["kv_cache_dtype"], result["max_concurrent_sequences"]) == ("nvfp4_ds_mla", None)
    assert result["weights_bytes_per_rank"] == plain["weights_bytes_per_rank"]
    assert result["tokens_per_second"] == plain["tokens_per_second"]
    assert "kv_cache_dtype 'nvfp4_ds_mla' of an image of others" in result["unknown"][0]
    # what is wrong besides is still an error, and weights that are too large still refuse
    with pytest.raises(SizingError, match="tensor_parallel"):
        plan(model("deepseek-v4-flash"), **{**given, "tensor_parallel": 3}, image_of_others=True)
    assert plan(model("deepseek-v4-flash"), **{**given, "tensor_parallel": 1}, image_of_others=True)["verdict"] == (
        "does_not_fit"
    )


def test_a_drafter_that_is_not_known_leaves_the_models_own_weights() -> None:
    drafting = {"method": "eagle3", "model": "some/drafter", "num_speculative_tokens": 3}
    found = plan(model("llama-3.1-8b"), memory_bytes=SPARK, max_model_len=8192, speculative_config=drafting)
    assert (found["verdict"], found["max_concurrent_sequences"]) == ("unknown", None)
    assert found["weights_bytes_per_rank"] > 14 * GIB
    assert found["prefill_flops_per_token"]


def test_states_of_nemotron_h_are_wider_in_later_releases() -> None:
    config = {key: value for key, value in model("nemotron-h-56b-base-8k").items() if "ssm_cache_dtype" not in key}
    old, new = (plan(config, vllm_version=version)["state_bytes_per_sequence"] for version in ("0.17.1", "0.20.1"))
    assert new > 1.9 * old
    given = {**config, "mamba_ssm_cache_dtype": "float32"}
    assert plan(given, vllm_version="0.17.1")["state_bytes_per_sequence"] == new


def test_later_releases_keep_a_checkpoint_of_mamba_2() -> None:
    config = model("nemotron-3-nano-30b-a3b")
    held = [
        plan(
            config,
            max_model_len=262144,
            kv_cache_dtype="fp8",
            memory_bytes=SPARK,
            kv_cache_memory_bytes=int(61.02 * 2**30),
            vllm_version=version,
        )["max_concurrent_sequences"]
        for version in ("0.30.1", "0.31.0", None)
    ]
    assert held == [71.93, 68.09, 68.09]  # 0.30.1 wrote 71.92
    lines = model("kimi-linear-48b-a3b")
    kimi = {plan(lines, vllm_version=version)["request_bytes_per_rank"] for version in ("0.30.1", "0.32.0")}
    assert len(kimi) == 1, "Kimi's attention has kept one for longer"


def test_an_open_length_is_the_longest_that_fits() -> None:
    small: dict[str, Any] = {"memory_bytes": SPARK, "gpu_memory_utilization": 0.25}
    asked = [plan(model("llama-3.1-8b"), max_model_len=length, **small) for length in ("auto", -1, "-1")]
    length = asked[0]["max_model_len"]
    assert {found["max_model_len"] for found in asked} == {length}
    assert 1024 < length < 131_072
    assert asked[0]["verdict"] != "does_not_fit"
    assert plan(model("llama-3.1-8b"), max_model_len=length + 32, **small)["verdict"] == "does_not_fit"
    assert plan(model("llama-3.1-8b"), max_model_len="auto", memory_bytes=SPARK)["max_model_len"] == 131_072


FLASH_NEXT = config({"model": "qwen3.8-flash-next"})


def test_a_model_with_a_table_of_n_grams_takes_what_vllm_printed() -> None:
    """Measured on one Spark: 16.46 GiB hold 992,584 tokens. By hand, of one request: 82 blocks of 3,200 tokens, 3 x 5
    of the states of linear attention, 5 of the convolution beside them, 1 of keys that wait; 13 layers a block."""
    options = {"max_model_len": 262144, "kv_cache_dtype": "fp8", "memory_bytes": SPARK}
    drafting = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 3}}
    found = plan(FLASH_NEXT, weights_bytes=99 * 10**9, kv_cache_memory_bytes=int(16.46 * GIB), **options, **drafting)
    assert found["unknown"] == []
    assert (found["kv_cache_tokens"], found["max_concurrent_sequences"]) == (992584, 3.79)
    assert found["block_bytes_per_rank"] == 13 * (3200 * 1024 + 800 * 256)
    assert found["ranks"]["request_bytes"] == [103 * found["block_bytes_per_rank"]]
    # what vLLM takes for the same: Transformers 5.18 renamed the layers
    text = FLASH_NEXT["text_config"]
    kinds = ["indexed_attention" if kind == "full_attention" else kind for kind in text["layer_types"]]
    renamed = {**FLASH_NEXT, "text_config": {**text, "layer_types": kinds}}
    assert plan(renamed, **options, **drafting)["request_bytes_per_rank"] == found["request_bytes_per_rank"]


def test_a_table_of_n_grams_divides_by_tensor_parallelism_alone() -> None:
    one, two = (plan(FLASH_NEXT, max_model_len=8192, tensor_parallel=size) for size in (1, 2))
    table = 16 * 20_000_000 * 160 * 2
    assert one["weights_bytes"] > table + 2 * 120_000_000_000
    assert 0.5 < two["weights_bytes_per_rank"] / one["weights_bytes_per_rank"] < 0.52
    with pytest.raises(SizingError, match="without pipeline stages"):
        plan(FLASH_NEXT, max_model_len=8192, pipeline_parallel=2)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("aya-23", {"hidden_size": 10**400}),
        ("aya-23", {"vocab_size": 10**400}),
        ("deepseek-v2-lite", {"qk_nope_head_dim": "x"}),
        ("deepseek-v2-lite", {"qk_nope_head_dim": float("inf")}),
        ("deepseek-v3.2", {"rope_scaling": {"type": "yarn", "factor": "x"}}),
        ("ernie-4.5-vl-424b-a47b", {"vision_config": {"spatial_merge_size": [[]], "hidden_size": 1, "depth": 1}}),
    ],
)
def test_a_value_that_nobody_can_reckon_with_is_refused_in_words(name: str, changed: dict[str, Any]) -> None:
    with pytest.raises(SizingError):
        plan({**model(name), **changed})


@pytest.mark.parametrize("error", [AttributeError, KeyError, TypeError, ValueError])
def test_a_fault_of_the_plan_is_not_called_the_configs(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    def fail(*_words: Any) -> Any:
        raise error("ours")

    monkeypatch.setattr(memory, "judge", fail)
    with pytest.raises(error, match="ours") as raised:
        plan(model("aya-23"), max_model_len=8192)
    assert not isinstance(raised.value, SizingError)
