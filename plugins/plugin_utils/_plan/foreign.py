# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recipes of other tools have in common once their command is read, and how it becomes a recipe of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    environment,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import secret_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import (
    SERVE_FIELDS,
    RecipeError,
    validated,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import SHELL_VARIABLE
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_args import check_environment
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import OWNED
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_parsers import idle_packing, idle_parsers

#: What the roles decide; a translated recipe must not bring it.
_DECIDED = (frozenset(OWNED) - frozenset(SERVE_FIELDS)) | {
    *("download-dir", "data-parallel-address", "data-parallel-rpc-port", "data-parallel-backend"),
}
#: Files that the original tool puts into the image; here only an absolute path can be meant.
_FILES = ("chat-template", "reasoning-parser-plugin", "tool-parser-plugin")
_DECIDED_ENVIRONMENT = re.compile(
    r"(NCCL|GLOO|UCX|OMPI_MCA|TP_SOCKET|MN_IF|RAY)_.*|VLLM_HOST_IP|SGLANG_HOST_IP|VLLM_DISTRIBUTED_EXECUTOR_CONFIG"
)
_SPLIT = (("tensor-parallel-size", "tensor_parallel"), ("pipeline-parallel-size", "pipeline_parallel"))


@dataclass
class Foreign:
    """A recipe of another tool, its command read."""

    name: str
    summary: str
    model: str
    flags: dict[str, Any]
    environment: Mapping[str, Any]
    source: str
    #: parts without a counterpart, each with the reason
    notes: list[str]
    revision: str = ""
    image: str = ""
    #: what starts the ranks, where the tool says it
    executor: str = ""
    engine: str = registry.DEFAULT.name
    #: options that the roles decide, so that a translated recipe must not bring them
    decided: Collection[str] = _DECIDED
    #: of the engine: pinned, minimum
    versions: dict[str, Any] = field(default_factory=dict)
    weights_bytes: int | None = None
    #: whether the image is of the engine's own project, which holds no plugin
    plain_image: bool = False
    differences: list[str] = field(default_factory=list)

    def split(self) -> dict[str, int]:
        """The split that the flags name, taken out of them."""
        return {name: int(self.flags.pop(flag)) for flag, name in _SPLIT if str(self.flags.get(flag)).isdigit()}


def finished(foreign: Foreign, called: str, *, hosts: Any, splits: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """A recipe of ours, with everything that it cannot carry over in `untranslated`."""
    flags = dict(foreign.flags)
    served = flags.pop("served-model-name", "")
    length = flags.pop("max-model-len", None)
    gibibytes = _gibibytes(flags, called)
    files = dict(flags)
    notes = [*foreign.notes, *_taken_out(flags, called, foreign.decided)]
    if foreign.engine == registry.DEFAULT.name:
        notes += [*idle_parsers(flags, files, foreign.plain_image), *idle_packing(flags)]
    carried = _environment(foreign.environment, notes)
    return validated(
        {
            "name": foreign.name,
            "summary": foreign.summary.strip(),
            "model": foreign.model,
            "revision": foreign.revision,
            "served_model_name": served,
            "runtime": "container",
            "image": foreign.image,
            "executor": foreign.executor,
            "engine": foreign.engine,
            "vllm": foreign.versions,
            "hosts": hosts,
            "splits": dict(splits),
            "max_model_len": length,
            "gpu_memory_gib": gibibytes,
            "args": flags,
            "environment": carried,
            "differences": foreign.differences,
            "weights_bytes": foreign.weights_bytes,
            "source": foreign.source,
            "untranslated": notes,
        },
        called,
    )


def _gibibytes(flags: dict[str, Any], called: str) -> float | None:
    """Community builds take memory in GiB, by an option of their own or by a share above 1."""
    amount = flags.pop("gpu-memory-utilization-gb", None)
    share = flags.get("gpu-memory-utilization")
    if amount is None and isinstance(share, (int, float)) and share > 1:
        amount = flags.pop("gpu-memory-utilization")
    if amount is None:
        return None
    try:
        return float(amount)
    except (TypeError, ValueError):
        raise RecipeError(
            f"vllm_serve_recipe={called!r}: gpu-memory-utilization-gb={amount!r} is not a number of GiB. Give one."
        ) from None


def _taken_out(flags: dict[str, Any], called: str, decided: Collection[str]) -> list[str]:
    """Takes out of the flags what cannot be carried over, and says of each why."""
    notes = []
    for name in sorted(flags):
        value = flags[name]
        if name.partition(".")[0] in decided:
            notes.append(f"--{name} (decided by the roles)")
        elif name in _FILES and re.fullmatch(r"[\w.-]+(/[\w.-]+)*\.(jinja2?|py)", str(value)):
            notes.append(f"--{name} {value} (a file of the original image)")
        elif SHELL_VARIABLE.search(str(value)):
            raise RecipeError(
                f"vllm_serve_recipe={called!r}: --{name} takes {value!r} from the original tool's shell. "
                "Copy the recipe and write the value there."
            )
        else:
            continue
        del flags[name]
    return notes


def _environment(given: Mapping[str, Any], notes: list[str]) -> dict[str, str]:
    """The environment that can be carried over, as text; a variable of null is none."""
    kept = {}
    for name, value in given.items():
        if value is None:
            continue
        text, refused = str(value), environment.not_of_recipe(name, value)
        shown = f"env.{name}" if environment.is_variable_name(name) else f"env.{str(name)!r}"
        if _DECIDED_ENVIRONMENT.fullmatch(str(name)) or secret_name(name, text):
            notes.append(f"{shown} (decided by the fabric plan or a secret)")
        elif SHELL_VARIABLE.search(text):
            notes.append(f"{shown} (from the original tool's shell)")
        elif problems := check_environment({str(name): text}):
            notes.append(f"{shown} ({problems[0].what})")
        elif refused:
            notes.append(f"{shown} ({refused[0]}; {refused[1]})")
        else:
            kept[str(name)] = text
    return kept
