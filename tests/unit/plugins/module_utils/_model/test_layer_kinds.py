# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layer_kinds import layer_kinds
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError


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
        ({"hybrid_override_pattern": "MX"}, "hybrid_override_pattern"),
        ({"layer_types": ["dreaming"]}, "layer_types"),
        ({"layer_types": ["mlp"], "num_hidden_layers": 2}, "num_hidden_layers"),
    ],
)
def test_what_names_no_layers_is_refused(config: dict[str, Any], variable: str) -> None:
    with pytest.raises(SizingError) as caught:
        layer_kinds(config)
    assert caught.value.variable == f"config.{variable}"
