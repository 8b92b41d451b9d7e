# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes of weights against the sizes that the models are published with."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import dtype_bytes

from tests.unit.published_models import model

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


def test_tied_embeddings_are_needed_at_both_ends() -> None:
    gemma = model("gemma-3-27b-it")
    weights = plan(gemma, pipeline_parallel=2, language_model_only=True)["ranks"]["weights_bytes_per_rank"]
    assert weights[0] == weights[1]
