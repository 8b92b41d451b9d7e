# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of the vLLM project: variants, strategies and what cannot be served. Commands: test_community.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import translated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

SOURCE: dict[str, Any] = {
    "meta": {"title": "T", "slug": "t", "tasks": ["text"]},
    "model": {"model_id": "o/m", "min_vllm_version": "0.20.0", "docker_image": {"nvidia": "vllm/vllm-openai:v0.20.0"}},
    "features": {"reasoning": {"args": ["--reasoning-parser", "qwen3"]}, "spec": {"args": ["--seed", "1"]}},
    "opt_in_features": ["spec"],
    "variants": {
        "default": {"precision": "bf16", "vram_minimum_gb": 300},
        "nvfp4": {"precision": "nvfp4", "model_id": "o/m-NVFP4", "vram_minimum_gb": 90},
    },
    "compatible_strategies": ["single_node_tp", "multi_node_tp", "multi_node_dep"],
}


def read(change: dict[str, Any] | None = None, variant: str = "", hosts: int | None = None) -> dict[str, Any]:
    data = copy.deepcopy(SOURCE)
    for path, value in (change or {}).items():
        inner = data
        *parts, last = path.split(".")
        for part in parts:
            inner = inner[part]
        inner[last] = value
    return translated(data, "t.yaml", "t", variant, hosts)


def test_the_variant_is_the_best_that_fits() -> None:
    assert (read(hosts=1)["model"], read(hosts=1)["hosts"]) == ("o/m-NVFP4", [1, 2, 4, 8])
    assert (read(hosts=4)["model"], read(hosts=4)["hosts"]) == ("o/m", [4, 8])
    assert read(variant="nvfp4", hosts=4)["model"] == "o/m-NVFP4"
    with pytest.raises(RecipeError, match=r"no variant fp8\. There are: default, nvfp4"):
        read(variant="fp8")
    assert read(hosts=4)["weights_bytes"] == 250_000_000_000


def test_the_parts_of_the_command() -> None:
    found = read(hosts=4)
    assert found["args"] == {"reasoning-parser": "qwen3"}
    assert (found["image"], found["vllm"]) == ("vllm/vllm-openai:v0.20.0", {"minimum": "0.20.0"})
    assert found["splits"][4] == {
        "tensor_parallel": 4,
        "pipeline_parallel": 1,
        "why": "as in the recipe's strategy multi_node_tp.",
    }
    stages = read({"compatible_strategies": ["multi_node_tp_pp"]}, hosts=4)["splits"][4]
    assert (stages["tensor_parallel"], stages["pipeline_parallel"]) == (1, 4)
    assert read({"opt_in_features": []}, hosts=4)["args"]["seed"] == 1


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"meta.tasks": ["omni"]}, "engine", "vLLM-Omni"),
        ({"meta.hardware": {"dgx_spark_gb10": "unsupported"}}, "hardware", "is not supported"),
        ({"compatible_strategies": ["multi_node_dep", "pd_cluster"]}, "replicas", "several replicas"),
        ({"variants": {"default": {"vram_minimum_gb": 2000}}}, "memory", "needs 2000 GB"),
        ({"variants": {"default": {"supported_hardware": ["mi355x"]}}}, "hardware", "no variant for DGX Spark"),
    ],
)
def test_refused_with_one_reason(change: dict[str, Any], kind: str, text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read(change)
    assert text in str(caught.value)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "change",
    [
        {"variants": None},
        {"variants.default.vram_minimum_gb": "80 GB"},
        {"meta.hardware": ["dgx_spark_gb10"]},
        {"strategy_overrides": {"single_node_tp": 3}, "default_strategy": "single_node_tp"},
    ],
    ids=str,
)
def test_a_part_of_another_kind_is_refused_with_the_file(change: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"'t\.yaml' is not understood") as caught:
        read(change, hosts=1)
    assert caught.value.kind == "file"


def test_steps_are_named() -> None:
    steps = [{"note": "Build it"}, {"note": "x", "optional": True}]
    change = {"dependencies": steps, "model.install": {"pip": {}}, "model.docker_image": None}
    notes = read(change)["untranslated"]
    assert "dependency Build it (not installed)" in notes
    assert "install (steps of the original, which are not run)" in notes
    assert any(note.startswith("no image is named") for note in notes)
