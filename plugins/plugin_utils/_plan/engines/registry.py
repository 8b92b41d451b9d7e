# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engines can be planned, which one a serving group has, and what of an inventory it cannot do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry as on_hosts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import executor as executors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import EngineDemands, PlannedEngine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.llama_cpp import PlannedLlamaCpp
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.sglang import PlannedSglang
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.tensorrt_llm import PlannedTensorrtLlm
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.vllm import PlannedVllm
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

VARIABLE = "serving_engine"
PROGRAMS = "engine_programs"
_PARSERS = ("vllm_serve_reasoning_parser", "vllm_serve_tool_call_parser")
ENGINES: dict[str, PlannedEngine] = {
    one.name: one for one in (PlannedVllm(), PlannedSglang(), PlannedLlamaCpp(), PlannedTensorrtLlm())
}
DEFAULT = ENGINES[on_hosts.DEFAULT.name]


def planned_engine(name: str) -> PlannedEngine:
    """The engine of a plan that has been checked; the default for a group that names none."""
    return ENGINES[name] if name else DEFAULT


def format_of(model: str) -> str:
    """``gguf`` for a name that means one model of that format, else empty: a folder may hold anything."""
    return "gguf" if model_source.in_gguf(model) else ""


def _adapters(args: Any) -> str:
    """The variable that wants adapters, with its key; empty where none does."""
    names = map(option_name, args if isinstance(args, Mapping) else ())
    return next((f"vllm_serve_args ({name})" for name in names if "lora" in name), "")


def _number(given: Any) -> int | None:
    return int(given) if isinstance(given, (int, str)) and str(given).isdigit() else None


def engine_demands(variables: Mapping[str, Any], hosts: int, kinds: Collection[str] = ()) -> EngineDemands:
    """What the variables of a head want of its engine."""
    executor = executors.asked(variables)
    return EngineDemands(
        hosts=hosts,
        executor="" if executor == executors.AUTO else executor,
        kinds=frozenset(kinds),
        runtime=str(variables.get("engine_runtime") or ""),
        format=format_of(str(variables.get("vllm_serve_model") or "")),
        tensor_parallel=_number(variables.get("vllm_serve_tensor_parallel_size")),
        pipeline_parallel=_number(variables.get("vllm_serve_pipeline_parallel_size")),
        parsers=tuple(name for name in _PARSERS if variables.get(name)),
        adapters=_adapters(variables.get("vllm_serve_args")),
        degraded=(_number(variables.get("vllm_serve_degraded_after")) or 0) > 0,
    )


def engine_problems(variables: Mapping[str, Any], hosts: int, place: str, kinds: Collection[str] = ()) -> list[Finding]:
    """Why a group of so many hosts cannot have the engine that its head's variables name, with those that can.

    ``place`` is where the variable is to be set, ``kinds`` those of the hosts where they are known.
    """
    name = str(variables.get(VARIABLE) or DEFAULT.name)
    wanted = engine_demands(variables, hosts, kinds)
    if name not in ENGINES:
        what = "no engine of this name can be served here"
        return [Finding("engine", what, f"set one of {', '.join(ENGINES)} in {place}", where=VARIABLE, value=name)]
    able = [one.name for one in ENGINES.values() if not one.lacks(wanted)]
    findings = []
    for variable, words in ENGINES[name].lacks(wanted):
        others = f"set {VARIABLE} to {' or '.join(able)} in {place}" if able else "no engine here can"
        change = f"{others}, or change {variable}" if able else f"change {variable}: {others}"
        fix = change if variable else others
        what = f"{ENGINES[name].title} cannot do {words}"
        findings.append(Finding("engine", what, fix, where=VARIABLE, value=name))
    programs = ENGINES[name].on_host.programs
    if programs and not variables.get(PROGRAMS):
        what = f"{ENGINES[name].title} is brought to the hosts as {' and '.join(programs)}, and no folder has them"
        fix = "set it to the controller's folder with a build for the hosts"
        findings.append(Finding("unset", what, fix, where=PROGRAMS))
    return findings
