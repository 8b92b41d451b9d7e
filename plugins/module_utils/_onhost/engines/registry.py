# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which engines there are on hosts, and which one a serving group has by its serving.json or group.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .base import EngineOnHost
from .llama_cpp import LLAMA_CPP
from .sglang import SGLANG
from .tensorrt_llm import TENSORRT_LLM
from .vllm import VLLM

#: the engine of a group whose files name none
DEFAULT = VLLM
ENGINES: dict[str, EngineOnHost] = {one.name: one for one in (VLLM, SGLANG, LLAMA_CPP, TENSORRT_LLM)}

#: distributions whose versions say which engine is installed
PACKAGES = tuple(name for one in ENGINES.values() for name in one.packages)

#: the one that is a few programs, which may lie beside another one's packages
BY_PROGRAMS = next(one for one in ENGINES.values() if one.programs)

#: how titles of their processes begin
TITLES = tuple(title for one in ENGINES.values() for title in one.titles)


def engine_of(config: Mapping[str, Any]) -> EngineOnHost:
    """The engine of a group, by its serving.json or group.json. Raises LookupError for one that is not known here."""
    name = str(config.get("engine") or DEFAULT.name)
    if name not in ENGINES:
        raise LookupError(f"no engine {name!r} is known on this host, only {', '.join(ENGINES)}; run site.yml again")
    return ENGINES[name]


def engine_that_says(metrics: str) -> EngineOnHost:
    """The engine whose ``/metrics`` this text is; the default where it is nobody's."""
    for one in ENGINES.values():
        if any(f"\n{name}" in f"\n{metrics}" for name in one.metrics.running):
            return one
    return DEFAULT


def alike(options: Mapping[str, str]) -> dict[str, str]:
    """An engine's options, with what several engines have under one name."""
    names = {theirs: ours for one in ENGINES.values() for theirs, ours in one.alike.items()}
    return {**{names[name]: value for name, value in options.items() if name in names}, **options}


def any_is_ours(name: str) -> bool:
    """Whether a process with this name, as the kernel keeps it, is one of any engine's."""
    return name.startswith(TITLES)


def named_model(text: str) -> str:
    """The model in the text of a configuration of whichever engine; empty where it cannot be told."""
    return next((model for one in ENGINES.values() if (model := one.named_model(text))), "")
