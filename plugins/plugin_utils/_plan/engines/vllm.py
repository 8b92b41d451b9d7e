# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM as the planners see it. What it can do, and by which modules its part of the plan is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import ERROR, Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    engine_version,
    vllm_args,
    vllm_plan,
    vllm_serve,
    vllm_spelling,
)
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
    # the newest of NVIDIA's whose release notes give its vLLM version, which the recipes name as well; its digest is
    # recorded at the first pull
    image = "nvcr.io/nvidia/vllm:26.10-py3"
    image_version = "0.31.0"
    partition = vllm_plan.PARTITION

    config = staticmethod(vllm_serve.vllm_config)
    smaller_config = staticmethod(vllm_serve.smaller_config)
    environment = staticmethod(vllm_serve.vllm_environment)
    option_arguments = staticmethod(vllm_serve.option_arguments)
    to_acknowledge = staticmethod(vllm_args.to_acknowledge)

    def plan(self, recipe: Mapping[str, Any] | str, hosts: Sequence[str], **known: Any) -> dict[str, Any]:
        return vllm_plan.resolve(recipe, hosts, **known)

    def merged_arguments(self, *layers: Mapping[str, Any]) -> dict[str, Any]:
        table = vllm_args.newest_table()
        return vllm_spelling.layered(table, *(vllm_spelling.canonical(layer, table) for layer in layers))

    def needed(self, plan: Mapping[str, Any], strange: bool) -> list[str]:
        if not plan["options_checked"]:
            return self.to_acknowledge(plan["args"])
        table, _exact = vllm_args.find_table(plan["options_checked"])
        found = [one for one in vllm_args.check(plan["args"], table) if one.severity == ERROR]
        return [one.where for one in found if not (strange and vllm_args.unknown_here(one))]

    def version_to_check_by(self, recipe: Mapping[str, Any], version: str) -> str:
        """What is asked for, else what the image's tag says, else the newest; a recipe for a later one by that."""
        asked = version or self._of_tag(str(recipe["image"])) or vllm_args.shipped_versions()[-1]
        return max(asked, str(recipe["vllm"].get("minimum") or asked), key=vllm_args.vllm_release)

    @staticmethod
    def _of_tag(image: str) -> str:
        """The version that an image's name tells, where its options are known here."""
        named = engine_version.of_image(image).exact
        same = [known for known in vllm_args.shipped_versions() if release(known)[:2] == release(named)[:2]]
        return named if named and same else ""

    def option_problems(self, asked: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
        found = [*engine_version.problems(asked.get("needs") or {}, str(table[self.name]), asked["arguments"])]
        found += vllm_args.check(asked["arguments"], table, asked.get("acknowledged") or [])
        return [*found, *vllm_args.check_environment(asked.get("environment") or {})]

    def command(self, serving: Serving) -> list[str]:
        return [*serving.command, "serve", "--config", f"{serving.places.etc}/{self.on_host.config}"]
