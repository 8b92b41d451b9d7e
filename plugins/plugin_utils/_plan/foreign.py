# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recipes of other tools have in common once their command is read, and how it becomes a recipe of ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import environment, vllm_args, vllm_config
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import secret_name
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import (
    SERVE_FIELDS,
    RecipeError,
    validated,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import SHELL_VARIABLE

#: What the roles decide; a translated recipe must not bring it.
_DECIDED = (frozenset(vllm_config.OWNED) - frozenset(SERVE_FIELDS)) | {
    *("download-dir", "data-parallel-address", "data-parallel-rpc-port", "data-parallel-backend"),
}
#: Files that the original tool puts into the image; here only an absolute path can be meant.
_FILES = ("chat-template", "reasoning-parser-plugin", "tool-parser-plugin")
#: what `source` says of recipes that are for images of vLLM's own project
VLLM_PROJECT = "vllm-project"
#: the parser that a plugin brings
_PARSERS = {"reasoning-parser-plugin": "reasoning-parser", "tool-parser-plugin": "tool-call-parser"}
_TOOLS, _SWITCH = "tool-call-parser", "enable-auto-tool-choice"
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
    vllm: dict[str, Any] = field(default_factory=dict)
    weights_bytes: int | None = None
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
    plugins = {name: str(flags[name]) for name in _PARSERS if name in flags}
    notes = [*foreign.notes, *_taken_out(flags, called, foreign.decided)]
    if foreign.engine == registry.DEFAULT.name:
        left_out = {name: file for name, file in plugins.items() if name not in flags}
        # an image that a tool built can hold the plugin, one of vLLM's project does not
        notes += _idle_parsers(flags, left_out if foreign.source == VLLM_PROJECT else {})
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
            "vllm": foreign.vllm,
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


def _idle_parsers(flags: dict[str, Any], left_out: Mapping[str, str]) -> list[str]:
    """Takes out parsers that nothing would use: of plugins that were left out, and of tools without the switch.

    vLLM starts without the switch and reads no tool calls, so that this serves what the original serves.
    """
    notes = []
    known = vllm_args.find_table(vllm_args.shipped_versions()[-1])[0]["value_lists"]
    for plugin, file in left_out.items():
        parser = _PARSERS[plugin]
        if parser in flags and flags[parser] not in known[parser]:
            notes.append(f"--{parser} {flags.pop(parser)} (of the plugin {file}: copy it to the hosts and name both)")
            if parser == _TOOLS:
                flags.pop(_SWITCH, None)
    if _TOOLS in flags and not flags.get(_SWITCH):
        notes.append(f"--{_TOOLS} {flags.pop(_TOOLS)} (has no effect without --{_SWITCH}, which the recipe lacks)")
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
        elif problems := vllm_args.check_environment({str(name): text}):
            notes.append(f"{shown} ({problems[0].what})")
        elif refused:
            notes.append(f"{shown} ({refused[0]}; {refused[1]})")
        else:
            kept[str(name)] = text
    return kept
