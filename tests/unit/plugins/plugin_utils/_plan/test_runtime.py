# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe, runtime
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

from tests.unit.planned_cluster import planned

VENV = {"name": "mine", "runtime": "venv"}
BOTH = {"engine_image": "a:1", "engine_requirements": "/lock"}


@pytest.mark.parametrize(
    ("given", "kinds", "recipe", "name", "why"),
    [
        ({"engine_runtime": "venv"}, ["spark"], {"name": "x", "runtime": "container"}, "venv", "the inventory says so"),
        ({"engine_image": "a:1"}, ["spark"], VENV, "container", "the inventory sets engine_image"),
        ({"engine_requirements": "/lock"}, ["spark"], None, "venv", "the inventory sets engine_requirements"),
        (BOTH, ["spark"], VENV, "venv", "recipe mine says so"),
        ({}, ["spark"], VENV, "venv", "recipe mine says so"),
        ({}, ["spark", "spark"], None, "container", "NVIDIA's image"),
        ({}, ["spark", "thor"], None, "venv", "other kinds"),
        ({}, ["generic"], None, "venv", "other kinds"),
    ],
)
def test_the_inventory_then_the_recipe_then_the_hosts(
    given: dict[str, Any], kinds: list[str], recipe: dict[str, Any] | None, name: str, why: str
) -> None:
    chosen = runtime.choose(given, kinds, recipe)
    assert chosen.name == name
    assert why in chosen.sentence()


def test_the_image_where_nobody_names_one() -> None:
    container, venv = runtime.Runtime("container", ""), runtime.Runtime("venv", "")
    assert runtime.image(container, ["spark"], "", registry.DEFAULT.image) == registry.DEFAULT.image
    assert runtime.image(container, ["spark"], "mine:1", registry.DEFAULT.image) == "mine:1"
    assert (
        runtime.image(container, ["spark", "thor"], "", registry.DEFAULT.image)
        == runtime.image(venv, ["spark"], "", registry.DEFAULT.image)
        == ""
    )


def test_recipes_name_the_same_image() -> None:
    """A newer one in the recipes is a newer one here."""
    found = [recipe.load(name) for name in recipe.names()]
    images = {(known["image"], str(known["vllm"].get("pinned"))) for known in found if known["runtime"] == "container"}
    assert (registry.DEFAULT.image, registry.DEFAULT.image_version) in images


def test_a_plan_says_what_runs_it_and_why() -> None:
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe="qwen3-30b-a3b-thinking-fp8")
    serving = plan_serving(first, cluster, nodes, ".")
    assert (serving["runtime"], serving["runtime_why"]) == ("container", "recipe qwen3-30b-a3b-thinking-fp8 says so")
    own = plan_serving({**first, "engine_runtime": "venv"}, cluster, nodes, ".")
    assert own["runtime"] == "venv"
    by_name = {**first, "vllm_serve_recipe": "", "vllm_serve_model": "a/b", "vllm_serve_tensor_parallel_size": 2}
    served = plan_serving(by_name, cluster, nodes, ".")
    assert (served["runtime"], served["image"]) == ("container", registry.DEFAULT.image)
    # the image's vLLM is known, so the arguments are checked by its options
    assert not [warning for warning in served["warnings"] if "not checked" in warning]
