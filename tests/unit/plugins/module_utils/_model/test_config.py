# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields of config.json in their many spellings."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    max_context,
    quantization_name,
    text_config,
    with_overrides,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

from tests.unit.published_models import model

LENGTHS = [
    ("deepseek-v3", 163_840),  # yarn: 40 x 4096
    ("gpt-oss-120b", 131_072),  # yarn: 32 x 4096
    ("llama-3.1-8b", 131_072),  # llama3 scaling is already in it
    ("gemma-3-27b-it", 131_072),  # so is Gemma's, and the file leaves it to the class
    ("gemma-3-4b-it", 131_072),
    ("falcon-40b", 2_048),
    ("qwen3.5-397b-a17b-fp8", 262_144),
    ("kimi-linear-48b-a3b", 1_048_576),
]


@pytest.mark.parametrize(("name", "expected"), LENGTHS)
def test_the_longest_context(name: str, expected: int) -> None:
    assert max_context(model(name)) == expected


@pytest.mark.parametrize("name", ["qwen3-next-80b-a3b", "qwen3.6-35b-a3b"])
def test_an_interval_alone_stands_for_the_classes_own_linear_attention(name: str) -> None:
    whole = model(name)
    bare = {key: value for key, value in text_config(whole).items() if "linear_" not in key and key != "layer_types"}
    assert plan({**bare, "full_attention_interval": 4})["unknown"] == []
    for number in ("kv_bytes_per_token", "state_bytes_per_sequence"):
        assert plan({**bare, "full_attention_interval": 4})[number] == plan(whole)[number]
    # of another class nobody knows what its other layers keep
    other = plan({**bare, "model_type": "llama", "full_attention_interval": 4})
    assert (other["unknown"], other["kv_bytes_per_token"]) == (
        ["config.full_attention_interval of model_type 'llama'"],
        None,
    )


def test_overrides_reach_parts_of_a_nested_config() -> None:
    config = {"text_config": {"a": 1, "rope_scaling": {"factor": 2}}, "quantization_config": {"bits": 4}}
    changed = with_overrides(
        config, {"text_config": {"rope_parameters": {"factor": 4}}, "quantization_config": {"x": 1}}
    )
    assert changed == {
        "text_config": {"a": 1, "rope_parameters": {"factor": 4}},
        "quantization_config": {"x": 1},
    }
    assert config["text_config"] == {"a": 1, "rope_scaling": {"factor": 2}}
    assert with_overrides(config, None) == config


QUANTS = [
    ({"quant_method": "fp8"}, "fp8"),
    ({"quant_method": "awq", "bits": 4}, "int4"),
    ({"quant_method": "gptq", "bits": 8}, "int8"),
    ({"quant_method": "mxfp4"}, "mxfp4"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}},
        "int4",
    ),
    (
        {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float"}}}},
        "nvfp4",
    ),
    ({}, "none"),
]


@pytest.mark.parametrize(("quant", "expected"), QUANTS)
def test_quantization_names(quant: dict[str, Any], expected: str) -> None:
    assert quantization_name({"quantization_config": quant}) == expected
