# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights against the sizes that the models are published with."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import dtype_bytes
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import (
    estimate_weights,
    weights_from_tensors,
)

from tests.unit.published_models import model

GIB = 2**30

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
    ("mimo-v2.6-flash-rl", 309.0, 15.0),
    ("gemma-3-4b-it", 4.3, None),
    ("gemma-3-12b-it", 12.19, None),
    # 3 dense layers, 96 heads where attention slides
    ("step-3.5-flash", 196.8, 11.4),
    ("hunyuan-a13b-instruct", 80.4, 13.0),
    # 64 experts for text and 64 narrower ones for images
    ("ernie-4.5-vl-424b-a47b", 424.0, 47.0),
    # 60 x (2 x 8192^2 + 2 x 512 x 8192 + 2 x 4 x 8192^2) + 65024 x 8192: the file names no width, and the head is tied
    ("falcon-40b", 41.31, None),
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


@pytest.mark.parametrize(("tensor", "rank_gib"), [(1, 66.0), (2, 34.3), (4, 17.2)])
def test_experts_of_gpt_oss_are_padded_for_their_kernel(tensor: int, rank_gib: float) -> None:
    # by hand: 36 layers, 128 experts, 3 matrices of 3072 (2880 padded) times the padded width, 17/32 of a byte each;
    # the rest, in BF16, is 4.0 GiB in all
    width = {1: 2944, 2: 1536, 4: 768}[tensor]
    experts = 36 * 128 * 3 * 3072 * width * 17 / 32
    config = model("gpt-oss-120b")
    whole = plan(config, tensor_parallel=tensor)
    rest = whole["weights_bytes_per_rank"] - experts
    assert 0 < rest * tensor < 4.5 * GIB
    assert whole["weights_bytes_per_rank"] / GIB == pytest.approx(rank_gib, rel=0.02)
    # what the checkpoint holds is what it was, and so is the share of a tensor that is no expert's
    layer = "model.layers.35."
    tensors = {f"{layer}mlp.experts.down_proj_blocks": 2880, f"{layer}self_attn.o_proj.weight": 2880}
    found = plan(config, tensor_parallel=tensor, tensors=tensors)
    assert found["weights_bytes"] == 5760
    padded = 2880 * 3072 * width // (2880 * 2880)
    assert found["weights_bytes_per_rank"] == pytest.approx(padded + 2880 / tensor, abs=1)


def test_tied_embeddings_are_needed_at_both_ends() -> None:
    gemma = model("gemma-3-27b-it")
    weights = plan(gemma, pipeline_parallel=2, language_model_only=True)["ranks"]["weights_bytes_per_rank"]
    assert weights[0] == weights[1]


def test_a_group_of_mamba_2_is_on_each_rank_that_needs_it() -> None:
    shape = read_shape(model("transformers-falcon_h1"))
    [layer, *_others] = shape.layers
    assert layer.groups == 1
    group = 2 * shape.hidden * layer.group_state * 2  # bytes of the projections of one group
    single, four = (estimate_weights(shape, [shape.num_layers], ranks) for ranks in (1, 4))
    nano = read_shape(model("nemotron-3-nano-30b-a3b"))
    assert all(layer.groups in (0, 8) for layer in nano.layers), "which four ranks divide"
    tensors = {f"model.layers.{index}.mamba.in_proj.weight": 4 * group for index in range(shape.num_layers)}
    read = weights_from_tensors(shape, tensors, [shape.num_layers], 4)
    assert read.by_rank[0] == shape.num_layers * (group + group * 3 // 4)
    assert four.by_rank[0] - single.by_rank[0] // 4 >= shape.num_layers * group * 3 // 4
