# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layer_kinds import (
    layer_kinds,
    strange_kinds,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        ({"num_hidden_layers": 2}, "attention attention"),
        ({"hybrid_override_pattern": "ME*-"}, "mamba moe attention mlp"),
        ({"layer_types": ["full_attention", "sliding_attention", "conv"]}, "attention sliding conv"),
        # one layer more, for predicting more than one token
        (
            {"layer_types": ["full_attention"] * 3, "num_hidden_layers": 2, "num_nextn_predict_layers": 1},
            "attention attention",
        ),
        # counted from one
        ({"linear_attn_config": {"full_attn_layers": [2]}, "num_hidden_layers": 3}, "linear attention linear"),
        ({"attn_type_list": [0, 1], "num_hidden_layers": 2}, "linear attention"),
        # counted from zero
        ({"attn_layer_indices": [1], "num_hidden_layers": 3}, "mamba attention mamba"),
        (
            {"attn_layer_period": 3, "attn_layer_offset": 1, "num_hidden_layers": 4},
            "mamba attention mamba mamba",
        ),
        ({"model_type": "falcon_h1", "num_hidden_layers": 2}, "both both"),
        ({"model_type": "mamba2", "n_layer": 2}, "mamba mamba"),
        (
            {"attention_chunk_size": 8192, "model_type": "llama4_text", "num_hidden_layers": 4},
            "chunked chunked chunked attention",
        ),
        ({"hybrid_layer_pattern": [0, 1], "num_hidden_layers": 2}, "attention sliding"),
        ({"sliding_window": 4096, "num_hidden_layers": 2}, "sliding sliding"),
        ({"sliding_window": 4096, "use_sliding_window": False, "num_hidden_layers": 2}, "attention attention"),
        ({"sliding_window": 4096, "model_type": "gpt_oss", "num_hidden_layers": 3}, "sliding attention sliding"),
        (
            {"sliding_window": 4096, "model_type": "qwen2", "max_window_layers": 1, "num_hidden_layers": 3},
            "attention sliding sliding",
        ),
    ],
)
def test_the_many_spellings(config: dict[str, Any], kinds: str) -> None:
    assert layer_kinds(config) == kinds.split()


@pytest.mark.parametrize(
    ("config", "variable"),
    [
        ({}, "num_hidden_layers"),
        ({"hybrid_override_pattern": "MX", "num_hidden_layers": 3}, "num_hidden_layers"),
        ({"layer_types": ["dreaming"], "num_hidden_layers": 2}, "num_hidden_layers"),
        ({"layer_types": ["mlp"], "num_hidden_layers": 2}, "num_hidden_layers"),
    ],
)
def test_what_names_no_layers_is_refused(config: dict[str, Any], variable: str) -> None:
    with pytest.raises(SizingError) as caught:
        layer_kinds(config)
    assert caught.value.variable == f"config.{variable}"


def test_an_unknown_word_is_assumed_and_never_refuses() -> None:
    names = {"layer_types": ["full_attention", "dreaming", "mamba"]}
    assert layer_kinds(names) == ["attention", "attention", "mamba"]
    assert strange_kinds(names) == ["dreaming"]
    letters = {"hybrid_override_pattern": "M*Z-"}
    assert layer_kinds(letters) == ["mamba", "attention", "attention", "mlp"]
    assert strange_kinds(letters) == ["Z"]
    assert strange_kinds({"num_hidden_layers": 2}) == []


@pytest.mark.parametrize(
    ("fixture", "word"),
    [
        ("glm-5.2", "indexed_attention"),
        ("glm-5.2", "deepseek_sparse_attention"),
        ("deepseek-v3.2", "indexed_attention"),
        ("deepseek-v4-flash", "compressed_sparse_attention"),
        ("qwen3-next-80b-a3b", "qwen_sparse_attention"),
    ],
)
def test_newer_names_of_sparse_attention_change_nothing(fixture: str, word: str) -> None:
    config = model(fixture)
    kinds = layer_kinds(config)
    rest = {"attention": word, "linear": "linear_attention", "sliding": "sliding_attention"}
    newer = {**config, "layer_types": [rest[kind] for kind in kinds]}
    assert layer_kinds(newer) == kinds
    older, found = (plan(one, max_model_len=32768, memory_bytes=120 * 2**30) for one in (config, newer))
    assert found == older


def test_a_model_with_an_unknown_word_is_planned_as_unknown() -> None:
    config = {**model("qwen3-30b-a3b-thinking-2507-fp8")}
    config["layer_types"] = ["dreaming"] * config["num_hidden_layers"]
    found = plan(config, max_model_len=32768, memory_bytes=120 * 2**30)
    assert (found["verdict"], found["max_tokens"]) == ("unknown", None)
    assert "layers of type 'dreaming' (planned as attention that keeps the whole context)" in found["reasons"][0]


def test_latent_attention_without_rotated_positions() -> None:
    config = {**model("deepseek-v3.2"), "qk_rope_head_dim": 0}
    rotated, none = (plan(one, max_model_len=4096) for one in (model("deepseek-v3.2"), config))
    assert none["state_layers"] == 0
    assert none["kv_bytes_per_token"] <= rotated["kv_bytes_per_token"]


def test_more_layers_than_any_model_has_are_not_made() -> None:
    with pytest.raises(SizingError, match=r"num_hidden_layers=1000000000: is more than 10000"):
        layer_kinds({**model("tiny-qwen3"), "layer_types": None, "num_hidden_layers": 10**9})
