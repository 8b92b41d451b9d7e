# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serving groups that share a host: what those beside its own one get of the memory, and what is left for that one.

Those beside are planned first. Each gets the memory that its model needs, pinned by ``kv-cache-memory-bytes``, so that
no other engine on the host can change it. The host's own group gets what is left below the usual share of the memory.
"""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import (
    EDGE_UTILIZATION,
    USUAL_UTILIZATION,
    gib,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

UTILIZATION, PINNED = "gpu-memory-utilization", "kv-cache-memory-bytes"
#: caches are pinned in steps of this
STEP = 64 * 2**20
#: what is read of the host's own variables is its own group's; a group beside it has these unless it says otherwise
_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("vllm_serve_recipe", "vllm_serve_served_model_name", "vllm_serve_max_model_len")),
    **dict.fromkeys(("vllm_serve_tensor_parallel_size", "vllm_serve_pipeline_parallel_size", "vllm_serve_replicas")),
    **dict.fromkeys(("vllm_serve_reasoning_parser", "vllm_serve_tool_call_parser", "vllm_serve_prefix_caching")),
    **dict.fromkeys(("vllm_serve_kv_cache_dtype", "vllm_serve_degraded_recipe", "vllm_serve_fallback")),
    "vllm_serve_draft_config": None,
    "vllm_serve_model": "",
    "vllm_serve_args": {},
    "vllm_serve_env": {},
    "vllm_serve_acknowledged": [],
    "vllm_serve_from_hub": False,
    "vllm_serve_degraded_after": 0,
    "vllm_serve_executor": "mp",
    "vllm_serve_goal": "",
}


def overlaid(over: Mapping[str, Any], variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """``variables`` with some replaced."""
    return ChainMap(dict(over), cast("dict[str, Any]", variables))


def variables_of(given: Mapping[str, Any], variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the planners read for a group beside the own one of a host: what it says, and the host's for all else."""
    return overlaid({**_DEFAULTS, **given}, variables)


def with_args(variables: Mapping[str, Any], args: Mapping[str, Any]) -> Mapping[str, Any]:
    """``variables`` with arguments of the engine, before which those go that the inventory gives."""
    given = given_args(variables)
    planned = {name: value for name, value in args.items() if name not in given}
    own = {option_name(key): value for key, value in (variables.get("vllm_serve_args") or {}).items()}
    return overlaid({"vllm_serve_args": {**planned, **own}}, variables)


def given_args(variables: Mapping[str, Any]) -> set[str]:
    engine = registry.planned_engine(str(variables.get(registry.VARIABLE) or registry.DEFAULT.name))
    return set(engine.merged_arguments(variables.get("vllm_serve_args") or {}))


@dataclass(frozen=True)
class Share:
    """What a group takes of the memory of one host; parts are None where the model's shape is not known."""

    group: str
    total: int
    weights: int | None = None
    overhead: int | None = None

    @property
    def cache(self) -> int | None:
        return None if self.weights is None or self.overhead is None else self.total - self.weights - self.overhead

    def __str__(self) -> str:
        if not self.total:
            return f"{self.group}, whose memory is not planned"
        if self.weights is None or self.overhead is None or self.cache is None:
            return f"{self.group} {gib(self.total)}"
        parts = f"weights {gib(self.weights)}, overhead {gib(self.overhead)}, cache {gib(self.cache)}"
        return f"{self.group} {gib(self.total)} ({parts})"


def told(host: str, memory: int, shares: Sequence[Share]) -> str:
    """The memory of a host and what each group takes of it, for people."""
    taken = sum(share.total for share in shares)
    return f"memory of {host}: {gib(taken)} of {gib(memory)} planned: {', '.join(map(str, shares))}"


def share_of(group: str, sizes: Mapping[str, Any] | None, memory: int, utilization: float) -> Share:
    """Of the memory plan of a group, whose first rank is on the host in question."""
    ranks = (sizes or {}).get("ranks") or {}
    budget = (ranks.get("budget_bytes") or [None])[0]
    weights = (ranks.get("weights_bytes_per_rank") or [None])[0]
    if budget is None or weights is None:
        return Share(group, int(memory * utilization))
    return Share(group, int(budget), int(weights), int((sizes or {})["overhead_bytes_per_rank"]))


def whole_of(group: str, sizes: Mapping[str, Any] | None) -> Share:
    """Of a memory plan without a share that the engine is told; nothing where it knows no size."""
    return Share(group, sum((sizes or {}).get("ranks", {}).get("budget_bytes", [])))


def needed_cache(sizes: Mapping[str, Any] | None, asked: bool) -> int | None:
    """Bytes of cache for a group beside another: one sequence of the whole context and a quarter more; what its share
    leaves where the inventory asks for one. None where the plan does not know."""
    known = sizes or {}
    if asked:
        cache = ((known.get("ranks") or {}).get("kv_cache_bytes") or [None])[0]
        return None if cache is None else int(cache) // STEP * STEP
    sequence = known.get("request_bytes_per_rank")
    return None if sequence is None else -(-int(sequence) * 5 // 4 // STEP) * STEP


def fraction(part: int, memory: int) -> float:
    """The share of the memory as the engine is told it, rounded up."""
    return math.ceil(part / memory * 1000) / 1000


def left_for_own(others: Sequence[Share], memory: int, utilization: float) -> float:
    """The share that a host's own group may take: the one it would have alone, or what the others leave below the
    usual one."""
    ceiling = min(max(utilization, USUAL_UTILIZATION), EDGE_UTILIZATION)
    room = ceiling - sum(share.total for share in others) / memory
    return min(utilization, math.floor(round(room * 1000, 6)) / 1000)


def too_much(host: str, memory: int, available: int | None, shares: Sequence[Share]) -> list[Finding]:
    """What is wrong if the groups of one host together take more than it has, with the numbers of each."""
    taken, limit = sum(share.total for share in shares), int(memory * EDGE_UTILIZATION)
    over = taken > limit
    if not over and (available is None or taken <= available):
        return []
    room = f"{gib(limit)} may be taken ({EDGE_UTILIZATION:.2f} of {gib(memory)})"
    if not over:
        room = f"{gib(available or 0)} are available now"
    what = f"its serving groups need {gib(taken)} together and {room}: {', '.join(map(str, shares))}"
    last = shares[-1].group
    fix = (
        f"lower {PINNED} or vllm_serve_max_model_len of {last}, or {UTILIZATION} of {shares[0].group} (in "
        f"vllm_serve_args), or give {last} a host of its own"
    )
    return [Finding("memory", what, fix if over else f"stop what else holds memory, or {fix}", host)]
