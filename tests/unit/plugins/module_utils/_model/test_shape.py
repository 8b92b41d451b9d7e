# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model


def test_torch_dtype_and_dtype_are_the_same_field() -> None:
    config = model("llama-3.1-8b")
    config["dtype"] = config.pop("torch_dtype")
    assert plan(config)["kv_bytes_per_token"] == 131_072
    config["dtype"] = "torch.float16"
    assert plan(config)["kv_bytes_per_token"] == 131_072


def test_a_model_in_32_bits_is_computed_in_16_unless_asked_otherwise() -> None:
    config = {**model("llama-3.1-8b"), "torch_dtype": "float32"}
    size = 4 * 8_030_000_000
    half, whole = plan(config, weights_bytes=size), plan(config, weights_bytes=size, dtype="float")
    assert (half["kv_bytes_per_token"], whole["kv_bytes_per_token"]) == (131_072, 262_144)
    # each number of the checkpoint becomes one of the dtype that vLLM computes in
    assert (half["weights_bytes"], whole["weights_bytes"]) == (size // 2, size)
    assert plan(model("llama-3.1-8b"), weights_bytes=size // 2, dtype="half")["weights_bytes"] == size // 2
    # files that are in 16 bits already
    assert plan(config, weights_bytes=size // 2)["weights_bytes"] == size // 2
    # what is quantized stays as it is stored
    packed = {**config, "quantization_config": {"quant_method": "awq", "bits": 4}}
    assert plan(packed, weights_bytes=size)["weights_bytes"] == size
    with pytest.raises(SizingError, match="dtype"):
        plan(config, dtype="float12")


BROKEN = [
    ("num_hidden_layers", None, "num_hidden_layers"),
    ("hidden_size", None, "hidden_size"),
    ("num_attention_heads", None, "num_attention_heads"),
    ("num_hidden_layers", "many", "num_hidden_layers"),
    ("num_attention_heads", 30, "hidden_size"),
    ("torch_dtype", "float12", "dtype"),
    ("layer_types", ["full_attention", "dreaming"], "num_hidden_layers"),
    ("layer_types", ["full_attention"] * 31, "num_hidden_layers"),
    ("hybrid_override_pattern", "MX*", "num_hidden_layers"),
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


@pytest.mark.parametrize(
    "changed",
    [
        {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": [{}]}},
        {"quantization_config": {"quant_method": "modelopt", "quantization": "NVFP4"}},
        {"mlp_only_layers": 3, "num_experts": 8, "moe_intermediate_size": 64},
        {"rope_scaling": {"type": "yarn", "factor": "x"}},
        {"rope_scaling": {"type": "yarn", "factor": float("inf")}},
    ],
    ids=",".join,
)
def test_a_value_of_another_kind_is_the_configs_fault_for_everybody_who_reads_it(changed: dict[str, Any]) -> None:
    with pytest.raises(SizingError, match=r"config\.model_type='qwen3_moe': holds a value that nobody can reckon with"):
        read_shape({**model("qwen3-30b-a3b-thinking-2507-fp8"), **changed})
