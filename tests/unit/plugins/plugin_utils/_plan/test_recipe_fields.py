# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes whose fields are missing, unknown or of the wrong kind."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import load
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL
from tests.unit.published_models import model

#: sets the clipboard of the reader's terminal, and another screen
OSC = "\x1b]52;c;ZXZpbA==\x07\x9b?1049h"
MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"model": ...}, "lacks model"),
    ({"splitt": {}}, "unknown fields splitt. Did you mean split"),
    ({"args": ["a"]}, "args is not a dictionary"),
    ({"acknowledged": ["trust-remote-code"]}, "whoever wants such an option says so in the inventory"),
    ({"acknowledged": []}, "not a recipe's to say"),
    ({"environment": {"LD_PRELOAD": "/x.so"}}, "environment: LD_PRELOAD is not set by a recipe: it may lead to a file"),
    ({"environment": {"VLLM_PLUGINS": "evil"}}, "VLLM_PLUGINS is not set by a recipe"),
    ({"environment": {"MAX_JOBS": "/x"}}, "MAX_JOBS is not set with this value"),
    ({"environment": {"A\nLD_PRELOAD": "1"}}, r"'A\nLD_PRELOAD' is not the name of an environment variable"),
    ({"environment": {"MAX_JOBS": "1\nLD_PRELOAD=/x.so"}}, "MAX_JOBS is not one line"),
    ({"environment": {"MAX_JOBS": "1\u2028LD_PRELOAD=/x.so"}}, "MAX_JOBS is not one line"),
    ({"environment": {"VLLM_USE_DEEP_GEMM": True}}, "VLLM_USE_DEEP_GEMM is true, which is no text"),
    ({"args": {"tensor_parallel_size": 2}}, "tensor-parallel-size cannot be an argument of a recipe"),
    ({"runtime": "podman"}, "not venv or container"),
    ({"hosts": 0}, "not a number of hosts"),
    ({"hosts": "two"}, "not a number of hosts"),
    ({"split": {"tensor_parallel": "two"}}, "split is not a split: {'tensor_parallel': 'two'}"),
    ({"splits": {1: 4}}, "splits: 1 is not a split: 4"),
    ({"splits": {1: "two"}}, "splits: 1 is not a split: 'two'"),
    ({"splits": {1: {"pipeline_parallel": 0}}}, "Give tensor_parallel and pipeline_parallel as whole numbers"),
    ({"splits": {2: {"tensor_parallel": 2}}}, "splits names 2, and its hosts are [1]"),
    ({"hosts": "any", "splits": {"two": {}}}, "splits names 'two', and its hosts are any"),
    ({1: 2}, "is not understood"),
]


@pytest.mark.parametrize(("change", "text"), MALFORMED)
def test_malformed_recipes(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    data = {key: value for key, value in {**MINIMAL, **change}.items() if value is not ...}
    (tmp_path / "r.yml").write_text(yaml.safe_dump(data))
    with pytest.raises(RecipeError, match=r"r\.yml") as caught:
        load("r.yml", base=str(tmp_path))
    assert text in str(caught.value)


def test_a_refusal_commands_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "r.yml").write_text(yaml.safe_dump({**MINIMAL, f"x{OSC}": 1}))
    with pytest.raises(RecipeError) as caught:
        load("r.yml", base=str(tmp_path))
    assert printable(str(caught.value), lines=True) == str(caught.value)


@pytest.mark.parametrize(
    "field",
    [
        *("name", "summary", "model", "served_model_name", "runtime", "image", "image_digest", "revision", "source"),
        *("weights_bytes", "active_bytes", "draft_weights_bytes", "gpu_memory_gib", "max_model_len", "hosts"),
        *("vllm", "split", "splits", "config", "draft_config", "args", "args_below", "environment", "reasons"),
        *("kinds", "topologies"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        *("a\nb", "\x1b]52;c;eA==\x07", "x" * 100_000, 10**400, -(10**30), float("nan"), float("inf"), True, [[["x"]]]),
        *({1: {2: 3}}, {"a": "b"}, [None], [], {}, None),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_any_value_of_any_field_is_taken_or_refused(field: str, value: Any) -> None:
    """A recipe is somebody else's: nothing in it ends a run with an error that names neither recipe nor field."""
    with contextlib.suppress(RecipeError, SizingError):
        resolve({**MINIMAL, field: value}, ["a"], version="0.33.0", memory_bytes=2**37)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_a_config_that_nobody_can_read_is_named_with_its_recipe(engine: str) -> None:
    config = {**model("llama-3.1-8b"), "quantization_config": {"quantization": "NVFP4"}}
    recipe = {**MINIMAL, "engine": engine, "runtime": "container", "image": "registry.example/one:1", "config": config}
    with pytest.raises(RecipeError, match=r"recipe n: config\.model_type='llama': holds a value") as caught:
        registry.ENGINES[engine].plan(recipe, ["a"], topology="lan", memory_bytes=2**37)
    assert caught.value.kind == "shape"
