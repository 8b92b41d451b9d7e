# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM as the planners see it. What it can do, and by which modules its part of the plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    engine_version,
    runtime,
    vllm_args,
    vllm_serve,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import Abilities, PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving


class PlannedVllm(PlannedEngine):
    """Ranks by Ray or by units of their own, models of the hub's form."""

    on_host = VLLM
    can = Abilities(
        executors=frozenset(("ray", "mp")),
        runtimes=frozenset(("venv", "container")),
        kinds=frozenset(("spark", "thor", "generic")),
        formats=frozenset(("safetensors",)),
        degraded=True,
    )
    image = runtime.IMAGE

    def plan(self, recipe: Mapping[str, Any] | str, hosts: Sequence[str], **known: Any) -> dict[str, Any]:
        return _recipe.resolve(recipe, hosts, **known)

    def config(self, serving: Serving) -> dict[str, Any]:
        return vllm_serve.vllm_config(serving)

    def smaller_config(self, serving: Serving) -> dict[str, Any]:
        return vllm_serve.smaller_config(serving)

    def environment(self, serving: Serving) -> dict[str, Any]:
        return vllm_serve.vllm_environment(serving)

    def option_arguments(self, serving: Serving) -> dict[str, Any]:
        return vllm_serve.option_arguments(serving)

    def to_acknowledge(self, args: Mapping[str, Any]) -> list[str]:
        return vllm_args.to_acknowledge(args)

    def option_problems(self, asked: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
        found = [*engine_version.problems(asked.get("needs") or {}, str(table[self.name]), asked["arguments"])]
        found += vllm_args.check(asked["arguments"], table, asked.get("acknowledged") or [])
        return [*found, *vllm_args.check_environment(asked.get("environment") or {})]

    def command(self, serving: Serving) -> list[str]:
        return [*serving.command, "serve", "--config", f"{serving.places.etc}/{self.on_host.config}"]
