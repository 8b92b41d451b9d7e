# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the environment that end a start of vLLM."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import check_environment
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL
from tests.unit.published_models import model

#: as vLLM 0.33 has them (vllm/envs.py, env_with_choices): one that it takes, and its case
TAKEN = {
    "VLLM_COMPILE_CACHE_SAVE_FORMAT": "unpacked",
    "VLLM_DEEP_GEMM_WARMUP": "relax",
    "VLLM_FLASHINFER_ALLREDUCE_BACKEND": "trtllm",
    "VLLM_FLASHINFER_MOE_BACKEND": "latency",
    "VLLM_FLOAT32_MATMUL_PRECISION": "HIGH",
    "VLLM_GDN_DECODE_KERNEL": "Triton",
    "VLLM_GPU_SYNC_CHECK": "warn",
    "VLLM_KV_CACHE_LAYOUT": "HND",
    "VLLM_MARLIN_INPUT_DTYPE": "fp8",
    "VLLM_MM_HASHER_ALGORITHM": "SHA256",
    "VLLM_NVFP4_GEMM_BACKEND": "flashinfer-cutlass",
    "VLLM_SSM_CONV_STATE_LAYOUT": "DS",
    "VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE": "shm",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_value_that_ends_a_start_is_refused_with_all_that_may_be_given(name: str) -> None:
    assert check_environment({name: TAKEN[name]}) == []
    for bad in ("", "b12x"):
        [finding] = check_environment({name: bad})
        assert (finding.where, finding.value, finding.severity) == (name, bad, "error")
        choices = finding.fix.removeprefix("give one of ").removesuffix(", or leave it out").split(", ")
        assert TAKEN[name].lower() in [choice.lower() for choice in choices]
        assert all(check_environment({name: choice}) == [] for choice in choices)


def test_capitals_count_where_vllm_counts_them() -> None:
    assert check_environment({"VLLM_KV_CACHE_LAYOUT": "hnd"})


def test_it_stops_before_anything_is_changed() -> None:
    with pytest.raises(RecipeError, match="VLLM_KV_CACHE_LAYOUT: 'nhd': is no value that vLLM knows"):
        resolve({**MINIMAL, "environment": {"VLLM_KV_CACHE_LAYOUT": "nhd"}}, ["a"], version="0.33.0")


@pytest.mark.parametrize(
    ("recipe", "own", "taken"),
    [
        ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}, {}, True),
        ({}, {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "True"}, True),
        ({"VLLM_ALLOW_LONG_MAX_MODEL_LEN": 1}, {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": None}, False),
        ({}, {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "0"}, False),
        ({}, {}, False),
    ],
)
def test_a_context_beyond_the_models_own_is_a_warning_where_vllm_takes_it(
    recipe: dict[str, Any], own: dict[str, Any], taken: bool
) -> None:
    data = {**MINIMAL, "config": model("llama-3.1-8b"), "environment": recipe}
    asked: dict[str, Any] = {"version": "0.33.0", "memory_bytes": 120 << 30}
    overrides = {"environment": own, "max_model_len": 262_144}
    if not taken:
        with pytest.raises(RecipeError, match="262144: is longer than the model's own 131072 tokens"):
            resolve(data, ["a"], overrides=overrides, **asked)
        return
    plan = resolve(data, ["a"], overrides=overrides, **asked)
    assert (plan["max_model_len"], plan["memory"]["max_model_len"]) == (262_144, 262_144)
    [warning] = [line for line in plan["warnings"] if "VLLM_ALLOW_LONG_MAX_MODEL_LEN" in line]
    assert "vllm_serve_max_model_len=262144 is longer than the model's own 131072 tokens" in warning
    # the sizes that the hosts reckon again have it too
    assert plan["sizing"]["allow_long_max_model_len"] is True
    assert not resolve(data, ["a"], overrides={**overrides, "max_model_len": 4096}, **asked)["warnings"]
