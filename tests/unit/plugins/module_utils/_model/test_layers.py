# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model


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
