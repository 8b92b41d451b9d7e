# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an inventory says is served and by which engine, by its names alone: before any host or the hub is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.registry import engine_problems
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError, host_counts

#: each names a recipe
_RECIPES = ("vllm_serve_recipe", "vllm_serve_degraded_recipe")


def _host_problems(recipe: Mapping[str, Any], hosts: int, place: str) -> list[Finding]:
    """A recipe for another number of hosts: before any of them is asked for what its plan is made of."""
    counts = host_counts(recipe)
    if not counts or hosts in counts:
        return []
    what = f"it is for {' or '.join(map(str, counts))} host{'s' if counts != [1] else ''}, and {hosts} would serve it"
    fitting = _recipe.offered(hosts=hosts)
    fix = f"set one for {hosts} in {place}: {', '.join(fitting)}" if fitting else f"set another one in {place}"
    if hosts > min(counts):
        fix += ", or let a part of the hosts serve it (docs/groups.md)"
    return [Finding("hosts", what, fix, where="vllm_serve_recipe", value=str(recipe["name"]))]


def _said_of(variable: str, words: str, value: Any) -> str:
    """What is wrong with a recipe, said of the variable that names it; with fewer hosts nothing but a recipe serves."""
    if variable == "vllm_serve_recipe":
        return words
    instead = f"Write a recipe for it (docs/serving.md) and set {variable} to its path."
    return words.replace(_recipe.MODEL_INSTEAD.format(value), instead).replace("vllm_serve_recipe", variable)


def problems(variables: Mapping[str, Any], place: str, hosts: int) -> list[Finding | str]:
    """What is wrong with the names that a head's variables give; ``place`` is where a model is to be set, ``hosts``
    how many serve it.

    Of a recipe that can be read, only its number of hosts is judged here: its plan says more.
    """
    findings: list[Finding | str] = []
    base = str(variables.get("inventory_dir") or ".")
    recipe, model = variables.get("vllm_serve_recipe"), variables.get("vllm_serve_model")
    if not recipe and not model:
        fix = (
            f"set vllm_serve_recipe to one of {', '.join(_recipe.offered(hosts=hosts) or _recipe.offered())}, or "
            f"vllm_serve_model to a model's name on the hub, in {place}; host_layer.yml prepares hosts without serving "
            "anything"
        )
        return [Finding("unset", "no model is named, so there is nothing to serve", fix, where="vllm_serve_recipe")]
    for name in _RECIPES:
        if variables.get(name):
            try:
                if name == "vllm_serve_recipe":
                    findings += _host_problems(_recipe.load(variables[name], base=base, hosts=hosts), hosts, place)
                else:
                    _recipe.load(variables[name], base=base)  # for fewer hosts than these
            except (RecipeError, SizingError) as error:
                findings.append(_said_of(name, str(error), variables[name]))
    stored = [str(one.get("name")) for one in variables.get("model_store_models") or () if isinstance(one, Mapping)]
    if not recipe and str(model) in _recipe.names() and str(model) not in stored:
        what = "it is the name of a recipe, and no model is called so"
        fix = f"set vllm_serve_recipe: {model} instead of it, in {place}"
        findings.append(Finding("model", what, fix, where="vllm_serve_model", value=str(model)))
    return [*findings, *engine_problems(variables, hosts, place)]
