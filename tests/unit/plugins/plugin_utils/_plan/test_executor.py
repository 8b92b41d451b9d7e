# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts the ranks where the inventory leaves it open, and why."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import executor, runtime
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError, validated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

from tests.unit.planned_cluster import planned
from tests.unit.plugins.plugin_utils._plan import minimal_recipe

VENV, CONTAINER = (runtime.Runtime(name, "") for name in (runtime.VENV, runtime.CONTAINER))
TWO = {"hosts": ["a", "b"], "topology": "direct"}
RING = {"hosts": ["a", "b", "c", "d"], "topology": "ring"}
SAYS = {"name": "r", "executor": "ray"}


@pytest.mark.parametrize(
    ("given", "engine", "image", "cluster", "recipe", "name", "words"),
    [
        ({"vllm_serve_executor": "ray"}, CONTAINER, registry.DEFAULT.image, TWO, None, "ray", "the inventory says so"),
        ({"vllm_serve_executor": "ray"}, VENV, "", RING, None, "ray", "the inventory says so"),
        ({"vllm_serve_executor": "mp"}, VENV, "", TWO, SAYS, "mp", "the inventory says so"),
        ({"vllm_serve_executor": "auto"}, VENV, "", RING, SAYS, "mp", "cables of a ring of 4"),
        ({}, CONTAINER, registry.DEFAULT.image, TWO, SAYS, "ray", "recipe r says so"),
        ({}, VENV, "", TWO, {"name": "r", "executor": "mp"}, "mp", "recipe r says so"),
        ({}, VENV, "", TWO, {"name": "r", "executor": ""}, "ray", "the lock of the engine's environment has it"),
        ({}, CONTAINER, registry.DEFAULT.image, TWO, None, "mp", "has no Ray, as NVIDIA's images from 26.04 on"),
        ({}, CONTAINER, "nvcr.io/nvidia/vllm:26.03-py3", TWO, None, "mp", "nobody knows whether"),
        ({}, CONTAINER, "vllm/vllm-openai:v0.20.0", TWO, None, "mp", "no Ray, as vLLM's images from 0.20 on"),
        ({}, CONTAINER, "vllm/vllm-openai:v0.17.1", TWO, None, "ray", "v0.17.1 has Ray"),
        ({}, CONTAINER, "vllm/vllm-openai:v0.15.0", TWO, None, "mp", "without token authentication"),
        ({}, CONTAINER, "own/vllm:7", TWO, None, "mp", "nobody knows whether own/vllm:7 has a Ray"),
        ({"engine_image_archive": "i"}, CONTAINER, "vllm/vllm-openai:v0.17.1", TWO, None, "mp", "_image_archive"),
    ],
)  # fmt: skip
def test_the_first_that_says_something_decides(
    given: dict[str, Any],
    engine: runtime.Runtime,
    image: str,
    cluster: dict[str, Any],
    recipe: dict[str, Any] | None,
    name: str,
    words: str,
) -> None:
    found = executor.choose(given, engine, image, cluster, recipe)
    assert (found.name, words in found.why) == (name, True), found


def test_the_run_says_which_and_why_and_what_is_assumed() -> None:
    serving = {"executor": "mp", "executor_why": "so it is"}
    assert executor.sentence(serving) == "ranks started by mp, without Ray: so it is"
    assert executor.sentence(serving, assumed=True) == "ranks started by mp, without Ray (assumed): so it is"
    assert executor.sentence({**serving, "executor": "ray"}) == "ranks started by Ray: so it is"


def test_the_plan_of_sparks_has_it_with_its_reason() -> None:
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe="llama-3.3-70b-nvfp4")
    serving = plan_serving(first, cluster, nodes, ".")
    assert (serving["executor"], "has no Ray" in serving["executor_why"]) == ("mp", True)
    serving = plan_serving({**first, "vllm_serve_executor": "ray"}, cluster, nodes, ".")
    assert serving["executor"] == "ray"
    serving = plan_serving({**first, "engine_requirements": "/srv/lock.txt"}, cluster, nodes, ".")
    assert serving["executor"] == "ray"


def test_an_image_whose_ray_is_too_old_serves_without_it_unless_ray_is_asked_for() -> None:
    mine = {"vllm_serve_recipe": "qwen3-30b-a3b-thinking-fp8", "engine_image": "vllm/vllm-openai:v0.15.0"}
    first, cluster, _fabric, nodes = planned(["a", "b"], **mine)
    assert plan_serving(first, cluster, nodes, ".")["executor"] == "mp"
    with pytest.raises(RecipeError, match="vllm_serve_executor: mp, which needs no Ray"):
        plan_serving({**first, "vllm_serve_executor": "ray"}, cluster, nodes, ".")


def test_a_recipe_may_say_it_and_nothing_else() -> None:
    assert validated({**minimal_recipe.MINIMAL, "executor": "mp"}, "r")["executor"] == "mp"
    assert validated(minimal_recipe.MINIMAL, "r")["executor"] == ""
    with pytest.raises(RecipeError, match=r"executor 'dask' is not ray or mp\. Write one"):
        validated({**minimal_recipe.MINIMAL, "executor": "dask"}, "r")
