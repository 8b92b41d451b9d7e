# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import served_names

PLACE = "group_vars/cluster.yml"


def said(**variables: Any) -> list[str]:
    return [str(one) for one in served_names.problems(variables, PLACE, 2)]


@pytest.mark.parametrize("given", [{}, {"vllm_serve_recipe": ""}, {"vllm_serve_recipe": None, "vllm_serve_model": ""}])
def test_no_model_named(given: dict[str, Any]) -> None:
    [words] = said(**given)
    assert words.startswith("vllm_serve_recipe: no model is named, so there is nothing to serve; set vllm_serve_recipe")
    assert PLACE in words
    assert "gpt-oss-120b" in words
    assert "tiny-" not in words
    assert "qwen3.5-397b-a17b-nvfp4" not in words, "it is for three hosts, and these are two"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"vllm_serve_recipe": "gpt-oss-12b"}, "'gpt-oss-12b' is unknown. Did you mean gpt-oss-120b"),
        ({"vllm_serve_recipe": "nothing-like-it"}, "is unknown."),
        ({"vllm_serve_recipe": "tiny-qwen"}, "Did you mean tiny-qwen3"),
        ({"vllm_serve_recipe": "tinny"}, "is unknown."),
        (
            {"vllm_serve_recipe": "openai/gpt-oss-120b"},
            "'openai/gpt-oss-120b' is the name of a model on the hub, not of a recipe. "
            "Set vllm_serve_recipe: gpt-oss-120b, the recipe for it.",
        ),
        (
            {"vllm_serve_recipe": "someone/own-model"},
            "is the name of a model on the hub, not of a recipe. Set vllm_serve_model: someone/own-model and remove "
            "vllm_serve_recipe.",
        ),
        ({"vllm_serve_recipe": "recipes/none.yml"}, "cannot be read: No such file or directory"),
        ({"vllm_serve_recipe": ["gpt-oss-120b"]}, "is not a name"),
        (
            {"vllm_serve_model": "gpt-oss-120b"},
            "vllm_serve_model: 'gpt-oss-120b': it is the name of a recipe, and no model is called so; set "
            "vllm_serve_recipe: gpt-oss-120b instead of it, in group_vars/cluster.yml",
        ),
        (
            {"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_degraded_recipe": "llama-3.1-8"},
            "vllm_serve_degraded_recipe='llama-3.1-8' is unknown. Did you mean llama-3.1-8b",
        ),
        (
            {"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_degraded_recipe": "openai/gpt-oss-120b"},
            "vllm_serve_degraded_recipe='openai/gpt-oss-120b' is the name of a model on the hub, not of a recipe. "
            "Set vllm_serve_degraded_recipe: gpt-oss-120b, the recipe for it.",
        ),
        (
            {"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_degraded_recipe": "someone/own-model"},
            "not of a recipe. Write a recipe for it (docs/serving.md) and set vllm_serve_degraded_recipe to its path.",
        ),
    ],
)
def test_a_name_that_is_none_is_told_with_what_was_meant(given: dict[str, Any], words: str) -> None:
    [line] = said(**given)
    assert words in line
    assert "tiny-" not in line or str(given["vllm_serve_recipe"]).startswith("tiny")


@pytest.mark.parametrize(
    ("recipe", "hosts", "words"),
    [
        (
            "gpt-oss-120b",
            3,
            "vllm_serve_recipe: 'gpt-oss-120b': it is for 1 or 2 hosts, and 3 would serve it; set one for 3 in "
            "group_vars/cluster.yml: llama-3.1-405b-int4, qwen3.5-397b-a17b-nvfp4, or let a part of the hosts serve "
            "it (docs/groups.md)",
        ),
        ("qwen3.6-35b-a3b-nvfp4", 2, "it is for 1 host, and 2 would serve it; set one for 2 in group_vars/cluster.yml"),
        ("qwen3.5-397b-a17b-fp8", 7, "it is for 4 hosts, and 7 would serve it; set another one in group_vars/clu"),
    ],
)
def test_a_recipe_for_other_hosts(recipe: str, hosts: int, words: str) -> None:
    [finding] = served_names.problems({"vllm_serve_recipe": recipe}, PLACE, hosts)
    assert words in str(finding)


def test_the_smaller_recipe_is_for_fewer_hosts() -> None:
    given = {"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_degraded_recipe": "qwen3.6-35b-a3b-nvfp4"}
    assert said(**given) == []


@pytest.mark.parametrize(
    "given",
    [
        {"vllm_serve_recipe": "gpt-oss-120b"},
        {"vllm_serve_model": "openai/gpt-oss-120b"},
        # a model of one's own in the store, that has a recipe's name
        {"vllm_serve_model": "gpt-oss-120b", "model_store_models": [{"name": "gpt-oss-120b"}]},
        {"vllm_serve_recipe": "tiny-qwen3"},
        # another model by a recipe's arguments
        {"vllm_serve_recipe": "gpt-oss-120b", "vllm_serve_model": "/models/own"},
    ],
)
def test_names_that_are_some(given: dict[str, Any]) -> None:
    assert said(**given) == []
