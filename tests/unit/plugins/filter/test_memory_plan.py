# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.filter.memory_plan import FilterModule

MODELS = Path(__file__).parents[3] / "fixtures" / "models"
memory_plan = FilterModule().filters()["memory_plan"]


def test_the_public_keys() -> None:
    config = json.loads((MODELS / "llama-3.1-405b-awq-int4.json").read_text())
    plan = memory_plan(
        config,
        tensor_parallel=1,
        pipeline_parallel=3,
        kv_cache_dtype="auto",
        max_model_len=32768,
        memory_bytes=[130_663_000_000] * 3,
        gpu_memory_utilization=0.85,
        weights_bytes=203_000_000_000,
    )
    assert plan["kv_bytes_per_token"] == 516_096
    assert plan["kv_bytes_per_token_per_rank"] == 172_032
    assert plan["ranks"]["kv_bytes_per_token_per_rank"] == [172_032] * 3
    assert plan["verdict"] == "fits"
    assert plan["max_tokens"] > 32_768
    assert plan["reasons"]
    assert isinstance(plan["weights_bytes_per_rank"], int)


def test_errors_are_filter_errors_with_the_fix() -> None:
    config = json.loads((MODELS / "llama-3.1-8b.json").read_text())
    with pytest.raises(AnsibleFilterError, match=r"memory_plan: tensor_parallel=3: .* Possible: 1, 2, 4"):
        memory_plan(config, tensor_parallel=3)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match="tensor_paralel"):
        memory_plan({}, tensor_paralel=2)
