# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.drafter import read_drafter
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model

QWEN = model("qwen3.6-35b-a3b")
SHAPE = read_shape(QWEN)
LLAMA = model("llama-3.1-8b")


def test_nothing_is_drafted_unless_asked() -> None:
    assert read_drafter(None, QWEN, SHAPE, None).tokens == 0
    assert read_drafter("", QWEN, SHAPE, None).shape is None


def test_looking_up_tokens_caches_nothing() -> None:
    found = read_drafter({"method": "ngram", "num_speculative_tokens": 5}, QWEN, SHAPE, None)
    assert (found.tokens, found.shape, found.unknown) == (5, None, "")


def test_prediction_layers_are_the_models_own() -> None:
    found = read_drafter('{"method": "mtp", "num_speculative_tokens": 2}', QWEN, SHAPE, None)
    assert found.own_weights
    assert found.shape is not None
    assert [layer.cache for layer in found.shape.layers] == ["full"]


def test_a_drafter_without_its_config_is_not_known() -> None:
    found = read_drafter({"method": "dflash", "model": "org/drafter"}, QWEN, SHAPE, None)
    assert found.unknown.startswith("the drafter org/drafter")
    assert read_drafter({"method": "dflash", "model": "org/drafter"}, QWEN, SHAPE, model("llama-3.1-8b")).unknown == ""


@pytest.mark.parametrize("value", ["{", "[1]", [1]])
def test_what_is_no_mapping_is_refused(value: Any) -> None:
    with pytest.raises(SizingError, match="speculative_config"):
        read_drafter(value, QWEN, SHAPE, None)


def test_drafting_takes_cache_and_weights() -> None:
    options: dict[str, Any] = {"max_model_len": 131_072, "kv_cache_memory_bytes": "36G", "memory_bytes": 2**37}
    alone = plan(QWEN, **options)
    drafting = plan(QWEN, speculative_config={"method": "mtp", "num_speculative_tokens": 3}, **options)
    assert drafting["max_concurrent_sequences"] < alone["max_concurrent_sequences"]
    assert drafting["weights_bytes_per_rank"] > alone["weights_bytes_per_rank"]
    assert drafting["state_bytes_per_sequence"] > alone["state_bytes_per_sequence"]


#: as DeepSeek-V4-Flash-DSpark's config.json has them beside the fields of DeepSeek-V4-Flash
DSPARK = {
    **model("deepseek-v4-flash"),
    **{"dspark_block_size": 5, "dspark_target_layer_ids": [40, 41, 42], "dspark_markov_rank": 256},
}
TWO_SPARKS: dict[str, Any] = {
    **{"tensor_parallel": 2, "memory_bytes": 130_663_055_360, "gpu_memory_utilization": 0.82, "max_num_seqs": 8},
    **{"max_model_len": 262_144, "kv_cache_dtype": "fp8", "weights_bytes": 166_900_000_000},
}


def test_dspark_of_deepseek_v4_is_in_the_models_own_checkpoint() -> None:
    found = read_drafter({"method": "dspark"}, DSPARK, read_shape(DSPARK), None)
    assert (found.tokens, found.own_weights, found.unknown) == (5, True, "")
    assert found.shape is not None
    assert [(layer.cache, layer.ratio) for layer in found.shape.layers] == [("window", 1)] * 3
    four = {**DSPARK, "n_mtp_layers": 4}
    shape = read_drafter({"method": "dspark"}, four, read_shape(four), None).shape
    assert shape is not None
    assert len(shape.layers) == 4
    # no other model carries one
    assert "dspark" in read_drafter({"method": "dspark"}, QWEN, SHAPE, None).unknown


def test_dspark_of_deepseek_v41_has_fewer_experts_than_the_model() -> None:
    config = model("deepseek-v4.1-flash")
    shape = read_shape(config)
    found = read_drafter({"method": "dspark"}, config, shape, None)
    assert (found.tokens, found.own_weights, found.unknown) == (5, True, "")
    assert found.shape is not None
    assert [(layer.cache, layer.source) for layer in found.shape.layers] == [("window", 0)] * 3
    assert {layer.expert_params * 384 for layer in found.shape.layers} == {shape.layers[-1].expert_params * 128}


@pytest.mark.parametrize(("step", "asked"), [(8192, 7_723_261_440), (2048, 2_720_079_360)])
def test_a_request_beside_dspark_takes_what_vllm_asks(step: int, asked: int) -> None:
    """vLLM 0.32's own specification of DSparkDeepseekV4ForCausalLM beside the model, on two ranks."""
    drafting = {"method": "dspark", "num_speculative_tokens": 6}
    found = plan(
        DSPARK,
        speculative_config=drafting,
        max_num_batched_tokens=step,
        kv_cache_memory_bytes="12G",
        **{**TWO_SPARKS, "kv_cache_dtype": "fp8"},
    )
    assert found["unknown"] == []
    assert found["ranks"]["request_bytes"] == [asked, asked]
    assert found["ranks"]["window_bytes_of_token"] == [323_824, 323_824]


def test_a_pinned_cache_too_small_beside_dspark_is_refused_with_the_size() -> None:
    """Reported of two Sparks: 7.19 GiB asked for with a step of 8,192, and 1,241,755 tokens (4.74) with 2,048."""
    drafting = {"method": "dspark", "num_speculative_tokens": 6}
    small = plan(
        DSPARK, speculative_config=drafting, max_num_batched_tokens=8192, kv_cache_memory_bytes="6G", **TWO_SPARKS
    )
    assert small["verdict"] == "does_not_fit"
    assert round(small["request_bytes_per_rank"] / 2**30, 2) == 7.19
    assert any("kv_cache_memory_bytes=" in text for text in small["suggestions"])
    large = plan(
        DSPARK, speculative_config=drafting, max_num_batched_tokens=2048, kv_cache_memory_bytes="12G", **TWO_SPARKS
    )
    assert (large["kv_cache_tokens"], large["max_concurrent_sequences"]) == (1_241_755, 4.74)


EAGLE = {"method": "eagle3", "model": "some/drafter", "num_speculative_tokens": 3}


def test_a_drafter_that_nobody_knows_costs_its_own_line() -> None:
    options: dict[str, Any] = {"memory_bytes": 2**37, "max_model_len": 131_072}
    alone, beside = plan(QWEN, **options), plan(QWEN, speculative_config=EAGLE, **options)
    assert (alone["verdict"], beside["verdict"]) == ("fits", "unknown")
    for name in ("kv_bytes_per_token", "weights_bytes_per_rank", "decode_tokens_per_second_bound"):
        assert beside[name] == alone[name]
        assert beside[name] is not None
    assert beside["ranks"]["kv_cache_bytes"][0] > 0
    assert "some/drafter" in beside["reasons"][-1]
    assert "comes on top" in beside["reasons"][-1]


def test_an_ordinary_model_of_another_vocabulary_is_refused_as_vllm_does() -> None:
    """vLLM 0.32, config/speculative.py: verify_equal_vocab_size_if_draft_model."""
    asked = {"method": "draft_model", "model": "some/drafter", "num_speculative_tokens": 3}
    words = r"^speculative_config.model='some/drafter': has a vocabulary of 1,000 words, .* Name a drafter of the model"
    with pytest.raises(SizingError, match=words):
        read_drafter(asked, QWEN, SHAPE, {**LLAMA, "vocab_size": 1000})
    assert read_drafter(asked, LLAMA, read_shape(LLAMA), LLAMA).unknown == ""
    # what vLLM lets start
    for more in ({"use_heterogeneous_vocab": True}, {"method": "eagle3"}):
        assert read_drafter({**asked, **more}, QWEN, SHAPE, {**LLAMA, "vocab_size": 1000}).unknown == ""


def test_what_is_too_large_without_its_drafter_is_refused_with_what_helps() -> None:
    found = plan(QWEN, speculative_config=EAGLE, memory_bytes=2**37, max_model_len=131_072, kv_cache_memory_bytes="1G")
    assert found["verdict"] == "does_not_fit"
    assert any(text.startswith("kv_cache_memory_bytes=") for text in found["suggestions"])
    assert "some/drafter" in found["reasons"][-1]


def test_the_files_of_a_drafter_count_without_its_config() -> None:
    options: dict[str, Any] = {"memory_bytes": 2**37, "max_model_len": 8192, "speculative_config": EAGLE}
    without, known = plan(QWEN, **options), plan(QWEN, draft_weights_bytes=4 * 2**30, **options)
    assert known["weights_bytes_per_rank"] - without["weights_bytes_per_rank"] == 4 * 2**30
    assert known["unknown"][0].endswith("its cache")
    halves = plan(QWEN, tensor_parallel=2, draft_weights_bytes=4 * 2**30, **options)
    whole = plan(QWEN, tensor_parallel=2, **options)
    assert halves["weights_bytes_per_rank"] - whole["weights_bytes_per_rank"] == 2 * 2**30


def test_a_drafters_files_go_before_the_estimate_by_its_config() -> None:
    options: dict[str, Any] = {"memory_bytes": 2**37, "max_model_len": 8192, "speculative_config": EAGLE}
    config = {**model("llama-3.1-8b"), "num_hidden_layers": 1, "draft_vocab_size": 32_000}
    found = plan(QWEN, draft_config=config, draft_weights_bytes=2**30, **options)
    estimated = plan(QWEN, draft_config=config, **options)
    whole = plan(QWEN, draft_config={**config, "draft_vocab_size": None}, **options)
    assert found["unknown"] == []
    assert found["kv_bytes_per_token"] == estimated["kv_bytes_per_token"]
    assert found["weights_bytes_per_rank"] != estimated["weights_bytes_per_rank"]
    # the head has the drafter's own words
    assert whole["weights_bytes_per_rank"] - estimated["weights_bytes_per_rank"] == (128_256 - 32_000) * 4096 * 2


@pytest.mark.parametrize(
    ("config", "words"),
    [({"model_type": "strange"}, "hidden_size"), ({**model("llama-3.1-8b"), "engram_layer_ids": [1]}, "engram")],
)
def test_a_config_of_a_drafter_that_is_not_understood_costs_its_own_line(config: dict[str, Any], words: str) -> None:
    found = plan(QWEN, draft_config=config, speculative_config=EAGLE, memory_bytes=2**37, max_model_len=8192)
    assert words in found["unknown"][0]
    assert found["kv_bytes_per_token"]


def test_heads_that_cache_nothing_are_their_weights_alone() -> None:
    medusa = {"method": "medusa", "model": "some/heads", "num_speculative_tokens": 3}
    found = read_drafter(medusa, QWEN, SHAPE, {"model_type": "medusa"}, 2**30)
    assert (found.shape, found.weights, found.unknown) == (None, 2**30, "")
    assert (
        "the weights of the drafter some/heads" in read_drafter(medusa, QWEN, SHAPE, {"model_type": "medusa"}).unknown
    )


def test_layers_that_read_the_models_own_cache_are_their_weights_alone() -> None:
    gemma = model("gemma-4-26b-a4b-it")
    asked = {"method": "mtp", "model": "google/gemma-4-26B-A4B-it-assistant", "num_speculative_tokens": 4}
    assert "gemma-4-26B-A4B-it-assistant" in read_drafter(asked, gemma, read_shape(gemma), None).unknown
    draft = {"model_type": "gemma4_assistant", "text_config": {"model_type": "gemma4_text", "num_hidden_layers": 4}}
    found = read_drafter(asked, gemma, read_shape(gemma), draft, 850_000_000)
    assert (found.tokens, found.shape, found.weights, found.unknown) == (4, None, 850_000_000, "")


def test_a_config_of_the_library_speculators_names_its_layers_inside() -> None:
    inner = {**model("llama-3.1-8b"), "num_hidden_layers": 2}
    config = {"speculators_model_type": "eagle3", "transformer_layer_config": inner, "draft_vocab_size": 32_000}
    found = read_drafter(EAGLE, QWEN, SHAPE, config)
    assert found.shape is not None
    assert (len(found.shape.layers), found.shape.vocab, found.unknown) == (2, 32_000, "")


@pytest.mark.parametrize(("tokens", "sure"), [(1, True), (4, True), (5, False), (6, False), (8, False), (9, True)])
def test_a_ring_that_may_not_divide_a_block_is_said(tokens: int, sure: bool) -> None:
    """vLLM 0.32 ends with 5 and 8: "QSA ring capacity 12 must divide the attention block size 1616" (and 1648)."""
    config = {**QWEN, "text_config": {**QWEN["text_config"], "model_type": "qwen4_exp_text"}}
    config["text_config"]["indexer_compress_ratio"] = 4
    drafting = {"method": "mtp", "num_speculative_tokens": tokens}
    found = plan(config, speculative_config=drafting, memory_bytes=2**37, max_model_len=8192)
    said = [reason for reason in found["reasons"] if "must divide a block" in reason]
    assert bool(said) != sure
    assert all("1, 2, 3, 4, 9, 10, 11, 12 always does" in reason for reason in said)
