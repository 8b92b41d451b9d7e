# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a deployment the memory plan is told, by the names of its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import beside
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.defaults import SPARK
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import as_fraction, parse_length
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.overrides import PARTITION

#: What is asked for when neither the recipe nor the user says: vLLM's own default (0.92 since 0.20) is above what
#: unified memory survives.
DEFAULT_UTILIZATION = 0.85
#: arguments that are given to the memory plan as they are
_FLAGS_OF_SIZE = (
    *("enable-expert-parallel", "enable-prefix-caching", "load-format", "speculative-config"),
    *("enable-chunked-prefill", "performance-mode"),
)


def of_arguments(args: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What of the arguments and the environment decides sizes, as the memory plan wants it."""
    options: dict[str, Any] = {
        "dtype": str(args.get("dtype", "auto")),
        "kv_cache_dtype": str(args.get("kv-cache-dtype", "auto")),
        "gpu_memory_utilization": as_fraction(
            "gpu-memory-utilization", args.get("gpu-memory-utilization", DEFAULT_UTILIZATION)
        ),
        "enforce_eager": bool(args.get("enforce-eager", False)),
        "language_model_only": bool(args.get("language-model-only", False)),
        "mamba_ssm_cache_dtype": str(args.get("mamba-ssm-cache-dtype", "auto")),
    }
    for flag in _FLAGS_OF_SIZE:
        if args.get(flag) is not None:
            options[flag.replace("-", "_")] = args[flag]
    for number in ("max-num-batched-tokens", "max-num-seqs", "kv-cache-memory-bytes"):
        if args.get(number):
            options[number.replace("-", "_")] = parse_length(number, args[number])
    if taken := {name: args[name] for name in beside.ARGUMENTS if args.get(name) is not None}:
        options["beside"] = taken
    if PARTITION in environment:
        options["layer_partition"] = str(environment[PARTITION])
    return options


def of_engine(hosts: Sequence[str], kinds: Mapping[str, str] | None, version: str) -> dict[str, str]:
    """What serves: the head's process chooses for all hosts what no argument names."""
    return {"kind": (kinds or {}).get(hosts[0], SPARK), **({"vllm_version": version} if version else {})}
