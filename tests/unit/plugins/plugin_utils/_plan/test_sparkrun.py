# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of sparkrun, translated: what becomes of each part, and what has no counterpart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import load, resolve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sparkrun import translate_sparkrun

FIXTURES = Path(__file__).parents[4] / "fixtures"


def test_a_community_recipe_is_translated() -> None:
    path = str(FIXTURES / "recipes" / "sparkrun-v2.yaml")
    data = load(path)
    assert data["model"] == "Qwen/Qwen3-30B-A3B-Thinking-2507-FP8"
    assert (data["revision"], data["image"], data["hosts"]) == ("abc123", "example/vllm:1.2.3", [2])
    assert data["split"] == {"tensor_parallel": 2}
    assert data["served_model_name"] == ["qwen", "thinking"]
    assert data["max_model_len"] == 65536
    assert data["args"] == {
        "gpu-memory-utilization": 0.8,
        "enable-auto-tool-choice": True,
        "tool-call-parser": "hermes",
        "override-generation-config": {"temperature": 0.7},
        "enable-prefix-caching": True,
    }
    assert data["environment"] == {"VLLM_USE_DEEP_GEMM": "0"}
    assert data["untranslated"] == [
        "executor_config (no counterpart)",
        "mods (no counterpart)",
        "pre_exec (no counterpart)",
        "defaults.unused_thing (not used by the command)",
        "--distributed-executor-backend (decided by the roles)",
        "--host (decided by the roles)",
        "--port (decided by the roles)",
        "env.NCCL_IB_DISABLE (decided by the fabric plan or a secret)",
        "env.HF_TOKEN (decided by the fabric plan or a secret)",
    ]
    plan = resolve(path, ["a", "b"], topology="direct", version="0.33.0")
    assert (plan["tensor_parallel"], plan["options_checked"]) == (2, "0.33.0")
    assert plan["untranslated"] == data["untranslated"]
    with pytest.raises(RecipeError, match="for 2 hosts"):
        resolve(path, ["a", "b", "c"], version="0.33.0")


def test_a_community_recipe_without_a_command() -> None:
    data = load(str(FIXTURES / "recipes" / "sparkrun-defaults.yaml"))
    assert data["args"] == {"gpu-memory-utilization": 0.85}
    assert data["max_model_len"] == 8192
    assert data["hosts"] == [1]
    assert data["untranslated"] == ["--port (decided by the roles)"]


FOREIGN: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "names no model"),
    ({"runtime": "sglang"}, "is for sglang"),
    ({"defaults": [1]}, "defaults is not a dictionary"),
    ({"command": "vllm serve {model} --port {port}"}, "uses {port}, which defaults lacks"),
    ({"command": "llama-server"}, "holds no `vllm serve`"),
    ({"command": "vllm serve 'x"}, "cannot be read"),
]


@pytest.mark.parametrize(("change", "text"), FOREIGN)
def test_foreign_recipes_that_cannot_be_served(change: dict[str, Any], text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        translate_sparkrun({"recipe_version": "2", "model": "m", **change}, "f")
    assert text in str(caught.value)


def test_what_surrounds_the_command_is_named() -> None:
    data = translate_sparkrun(
        {"recipe_version": "1", "model": "m", "command": "export A=1 && vllm serve m --seed -1 --x '[1' && echo done"},
        "f",
    )
    assert data["args"] == {"seed": -1, "x": "[1"}
    assert data["untranslated"] == [
        "command before vllm serve (export A=1 '&&')",
        "command after vllm serve ('&&' echo done)",
    ]
    assert data["hosts"] == "any"
