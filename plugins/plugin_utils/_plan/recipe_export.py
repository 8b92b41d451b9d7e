# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe of ours in the form of the community's `sparkrun` tool, version 2."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError, host_counts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import plain
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import words_of

#: variables of that tool, and the options that take them
_VARIABLES = {
    "host": "--host",
    "port": "--port",
    "tensor_parallel": "--tensor-parallel-size",
    "pipeline_parallel": "--pipeline-parallel-size",
    "max_model_len": "--max-model-len",
}


class _Text(str):
    """A text of several lines, written as a block."""


def _block(dumper: yaml.SafeDumper, text: _Text) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


class _Dumper(yaml.SafeDumper):
    """YAML with blocks."""


_Dumper.add_representer(_Text, _block)


def sparkrun(recipe: Mapping[str, Any], image: str = "", hosts: int | None = None) -> str:
    """The file; `hosts` chooses a row of the recipe's splits, its smallest number of hosts if not given."""
    name = recipe["name"]
    image = plain(image or recipe["image"])
    if not image:
        raise RecipeError(f"recipe {name} names no image, and sparkrun runs images only. Give one.")
    allowed = host_counts(recipe)
    number = hosts or (allowed[0] if allowed else 1)
    if allowed and number not in allowed:
        raise RecipeError(f"recipe {name} is for {allowed} hosts, not {number}. Choose one of these.", "hosts")
    split = recipe["splits"].get(number) or recipe["split"]
    values: dict[str, Any] = {"host": "0.0.0.0", "port": 8000}  # what that tool's recipes say
    values |= {key: split[key] for key in ("tensor_parallel", "pipeline_parallel") if split.get(key)}
    if not split and number > 1:
        raise RecipeError(
            f"recipe {name} leaves its split for {number} hosts to the planner. Export it for 1.", "split"
        )
    if recipe["max_model_len"] is not None:
        values["max_model_len"] = recipe["max_model_len"]
    words = [[option, f"{{{key}}}"] for key, option in _VARIABLES.items() if key in values]
    for served in [recipe["served_model_name"]] if recipe["served_model_name"] else []:
        words.append(["--served-model-name", *([served] if isinstance(served, str) else served)])
    words += [words_of(option, value) for option, value in recipe["args"].items() if value is not None]
    parts = ["vllm serve {model}", *(_line(word) for word in words)]
    data = {
        "recipe_version": "2",
        "model": recipe["model"],
        "model_revision": recipe["revision"] or None,
        "runtime": "vllm-ray",
        "container": image,
        "min_nodes": number,
        "max_nodes": number,
        "metadata": {"description": recipe["summary"]},
        "defaults": values,
        # null takes away what stands elsewhere: to another tool it would be the word None
        "env": merged(recipe["environment"]) or None,
        "command": _Text(" \\\n  ".join(parts) + "\n"),
    }
    return yaml.dump(
        {key: value for key, value in data.items() if value is not None}, Dumper=_Dumper, sort_keys=False, width=1000
    )


def _line(words: list[str]) -> str:
    """Quoted for a shell; a variable in braces stays as it is."""
    return " ".join(word if word[1:-1] in _VARIABLES and word.startswith("{") else shlex.quote(word) for word in words)
