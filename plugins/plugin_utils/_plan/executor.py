# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What starts the ranks of a serving group, Ray or the engine's own ``mp``, and one sentence of why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import engine_version, ring
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.runtime import VENV, Runtime

AUTO, RAY, MP = "auto", "ray", "mp"


class Executor(NamedTuple):
    name: str
    why: str


def sentence(serving: Mapping[str, Any], assumed: bool = False) -> str:
    """What the plan of serving says of it. ``assumed``: no host was asked."""
    who = "Ray" if serving["executor"] == RAY else "mp, without Ray"
    return f"ranks started by {who}{' (assumed)' if assumed else ''}: {serving['executor_why']}"


def asked(given: Mapping[str, Any]) -> str:
    """The variable's value, or its default."""
    return str(given.get("vllm_serve_executor") or role_specs.defaults()["vllm_serve_executor"])


def choose(
    given: Mapping[str, Any],
    runtime: Runtime,
    image: str,
    cluster: Mapping[str, Any],
    recipe: Mapping[str, Any] | None = None,
) -> Executor:
    """The inventory decides, then the cables, then the recipe, then whether the engine at hand has a Ray.

    ``given`` are the head's variables, ``image`` is the one that will serve (empty where nobody knows its name).
    It asks nothing that a run changes, so a later run decides the same; an engine of which nothing is known gets
    ``mp``, which every engine has.
    """
    if (name := asked(given)) != AUTO:
        return Executor(name, "vllm_serve_executor of the inventory says so")
    hosts = len(cluster["hosts"])
    if ring.serving_problem(str(cluster["topology"]), hosts, RAY, {}):
        return Executor(MP, f"its ranks follow the cables of a ring of {hosts}, which Ray's do not")
    if recipe and recipe.get("executor"):
        return Executor(str(recipe["executor"]), f"recipe {recipe.get('name')} says so")
    if runtime.name == VENV:
        return Executor(RAY, "the lock of the engine's environment has it")
    if given.get("engine_image_archive"):
        return Executor(MP, "nobody knows whether the image in engine_image_archive has Ray before it is on a host")
    has, why = engine_version.ray_in(image)
    return Executor(RAY if has else MP, why)
