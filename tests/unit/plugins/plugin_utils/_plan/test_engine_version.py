# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The vLLM of an image before and after the image is there, and the parsers of the real wheels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

from tests.unit.planned_cluster import planned

#: made by tools/reasoning_parsers.py
WHEELS = json.loads((Path(__file__).parents[4] / "truth" / "reasoning_parsers.json").read_text())
THINKING = "qwen3-30b-a3b-thinking-fp8"
OLD = "nvcr.io/nvidia/vllm:25.11-py3"


def served(recipe: str = THINKING, **variables: Any) -> dict[str, Any]:
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_recipe=recipe, **variables)
    return plan_serving(first, cluster, nodes, ".")


@pytest.mark.parametrize("version", WHEELS)
def test_the_recipe_takes_a_parser_of_that_wheel_that_finds_the_thoughts(version: str) -> None:
    minimum = vllm_args.vllm_release("0.11")
    if vllm_args.vllm_release(version) < minimum:
        with pytest.raises(RecipeError, match=r"needs vLLM 0\.11 or later"):
            resolve(THINKING, ["a", "b"], version=version)
        return
    plan = resolve(THINKING, ["a", "b"], version=version)
    told = WHEELS[version][plan["args"]["reasoning-parser"]]["closing tag alone"]
    assert told == {"reasoning": "why", "content": "so"}
    assert not any("waits for an opening" in line for line in plan["warnings"])


@pytest.mark.parametrize("version", WHEELS)
def test_the_users_own_parser_is_warned_of_where_that_wheel_loses_the_thoughts(version: str) -> None:
    table = {**vllm_args.find_table("0.33.0")[0], "vllm": version}
    needed = {"recipe": "r", "model": "Qwen/Qwen3-30B-A3B-Thinking-2507", "minimum": "", "below": []}
    found = option_tables.problems({"arguments": {"reasoning-parser": "qwen3"}, "needs": needed}, table)
    warned = any("waits for an opening <think>" in finding.what for finding in found)
    assert warned is (WHEELS[version]["qwen3"]["closing tag alone"]["reasoning"] is None)


def test_the_default_image_has_the_vllm_that_its_notes_say() -> None:
    tag = registry.DEFAULT.image.rpartition(":")[2].partition("-")[0]
    assert (
        resolve(THINKING, ["a", "b"], image=registry.DEFAULT.image)["engine_version"] == registry.DEFAULT.image_version
    )
    plan = served(engine_image=f"nvcr.io/nvidia/vllm:{tag}-py3")
    assert plan["engine_version"] == registry.DEFAULT.image_version


def test_an_image_whose_vllm_is_not_known_is_said_so() -> None:
    plan = served(engine_image="mine/vllm:7")
    assert plan["engine_version"] == ""
    [line] = [line for line in plan["warnings"] if "mine/vllm:7" in line]
    assert line.startswith("The vLLM of mine/vllm:7 is not known before the image is there: arguments are planned for")
    assert "engine_vllm_version names it" in line
    assert served(engine_image="mine/vllm:7", engine_vllm_version="0.33.0")["engine_version"] == "0.33.0"


def test_a_tag_between_two_known_ones_has_bounds() -> None:
    plan = served(engine_image=OLD)
    # at most 0.11.1, so the parser is the older one
    assert plan["args"]["reasoning-parser"] == "deepseek_r1"
    [line] = [line for line in plan["warnings"] if OLD in line]
    assert "(from 0.10.2, at most 0.11.1, by docs.nvidia.com" in line


@pytest.mark.parametrize(
    ("recipe", "variables", "words"),
    [
        ("minimax-m2.7-nvfp4", {"engine_image": OLD}, r"needs vLLM .* or later, and the image has at most 0\.11\.1"),
        ("minimax-m2.7-nvfp4", {"engine_image": "vllm/vllm-openai:v0.16.0-cu130"}, r"and 0\.16\.0 will serve"),
        (
            THINKING,
            {"engine_image": "vllm/vllm-openai:v0.15.1", "vllm_serve_executor": "ray"},
            r"has a Ray from before 2\.54",
        ),
    ],
)
def test_a_tag_that_is_known_to_be_too_old_stops(recipe: str, variables: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        served(recipe, **variables)


def test_ranks_of_mp_need_no_ray() -> None:
    plan = served(engine_image="vllm/vllm-openai:v0.15.1", vllm_serve_executor="mp")
    assert (plan["engine_version"], plan["args"]["reasoning-parser"]) == ("0.15.1", "deepseek_r1")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.10.2", "recipe qwen3-30b-a3b-thinking-fp8 needs vLLM 0.11 or later, and the engine has 0.10.2"),
        ("0.13.0", "was planned for one from 0.17 (reasoning-parser: deepseek_r1 before it)"),
        ("0.33.0", ""),
    ],
)
def test_the_images_own_version_is_checked_before_it_serves(version: str, words: str) -> None:
    plan = served(engine_image="mine/vllm:7")
    table = {**vllm_args.find_table("0.33.0")[0], "vllm": version}
    found = option_tables.problems({"arguments": plan["args"], "needs": plan["needs"]}, table)
    errors = [str(finding) for finding in found if finding.severity == "error"]
    assert any(words in error for error in errors) if words else errors == []
    if version == "0.13.0":
        assert errors[0].endswith("set engine_vllm_version: 0.13.0")
        again = served(engine_image="mine/vllm:7", engine_vllm_version=version)
        assert option_tables.problems({"arguments": again["args"], "needs": again["needs"]}, table) == []


def test_what_the_user_gives_is_no_need_of_the_recipe() -> None:
    plan = served(engine_image="mine/vllm:7", vllm_serve_reasoning_parser="deepseek_r1")
    assert plan["needs"]["below"] == []
