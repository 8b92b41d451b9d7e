# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of this package, by the verb that calls them on a host."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

#: verb -> the module whose ``main(arguments)`` it is; only that one is loaded
VERBS = {
    "compiled": "compiled",
    "console": "console_service",
    "container": "container",
    "exporter": "exporter",
    "front-config": "front_config",
    "front-tokens": "front_tokens",
    "hang": "hang",
    "launch": "launch",
    "nodes-prepare": "nodes_prepare",
    "on-demand": "on_demand_service",
    "power-guard": "power_guard",
    "rank": "rank_group",
    "ray-gate": "ray_gate",
    "ray-prepare": "ray_prepare",
    "vllm-prepare": "vllm_prepare",
    "watchdog": "watchdog_service",
}


def main(argv: Sequence[str]) -> int:
    """The exit status of the verb's program; 2 where there is no such verb."""
    verb, arguments = (argv[0], list(argv[1:])) if argv else ("", [])
    if verb not in VERBS:
        usage = f"usage: sparkthor_host {'|'.join(VERBS)} [ARGUMENTS]\n"
        wants_help = verb in ("--help", "-h")
        (sys.stdout if wants_help else sys.stderr).write(usage)
        return 0 if wants_help else 2
    status: int = importlib.import_module(f".{VERBS[verb]}", __package__).main(arguments)
    return status
