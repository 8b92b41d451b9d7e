# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The split that serves best what the inventory wants, and what the other ones would give.

Every split of the GPUs that the model and the cables allow is planned whole, and the plans are compared: tokens/s of
one stream, tokens/s of all streams that the cache holds, or the longest context.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.speed import STREAMS
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import outlook
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

VARIABLE = "vllm_serve_goal"
GOALS = ("latency", "throughput", "context")
#: tokens of prompt and answer by which it is counted how many streams a cache holds
ORDINARY = 8192
_NAMED = re.compile(r"^(?:recipe \S+: )?(?:vllm_serve_\w+(?: x vllm_serve_\w+)?=\S+(?: x \S+)? ?:? )?")
#: variables that name the split, so that there is nothing to choose
SPLIT = ("tensor_parallel", "pipeline_parallel")

#: plans the model with a split of (tensor, pipeline), or on one host alone; raises RecipeError or SizingError
Planner = Callable[[int, int], Mapping[str, Any]]


class PlannedSplit(NamedTuple):
    """A split, what its plan comes to, and why it cannot be, if it cannot."""

    tensor: int
    pipeline: int
    one: tuple[float, float] | None = None
    #: how many streams the cache holds, and what they get together
    streams: int = 1
    together: tuple[float, float] | None = None
    context: int = 0
    refused: str = ""

    @property
    def name(self) -> str:
        return f"TP={self.tensor} PP={self.pipeline}"

    def score(self, goal: str) -> tuple[float, ...]:
        """The larger one is the better one; of equal ones the faster for a single stream."""
        one, together = (range_[0] if range_ else 0.0 for range_ in (self.one, self.together))
        return {"latency": (one,), "throughput": (together, one), "context": (self.context, one)}[goal]

    def words(self, times: int = 1) -> str:
        many = f"{times} x " if times > 1 else ""
        parts = [f"{many}{outlook.words(self.one)} tokens/s of one stream"] if self.one else []
        if self.together and self.streams > 1:
            parts.append(f"{many}{outlook.words(self.together)} of {self.streams} streams")
        return ", ".join([*parts, f"a context of up to {self.context:,} tokens"])


def splits(world: int) -> list[tuple[int, int]]:
    """(tensor, pipeline), the widest tensor parallelism first."""
    return [(size, world // size) for size in range(world, 0, -1) if world % size == 0]


def candidate(tensor: int, pipeline: int, planner: Planner, estimated: bool) -> PlannedSplit:
    """``estimated``: whether the speed of such a split can be planned, which that of TP over TCP cannot."""
    try:
        memory = planner(tensor, pipeline)["memory"]
    except (RecipeError, SizingError) as error:
        return PlannedSplit(tensor, pipeline, refused=str(error))
    if not memory or memory.get("max_tokens") is None or not memory.get("tokens_per_second"):
        return PlannedSplit(tensor, pipeline, refused="the model's size or the hosts' memory is not known")
    limit = memory.get("model_max_len") or memory["max_tokens"]
    context = min(int(memory["max_tokens"]), int(limit))
    if not estimated:
        return PlannedSplit(tensor, pipeline, context=context)
    held = int(memory.get("kv_cache_tokens") or 0) // ORDINARY
    streams = max((number for number in STREAMS if number <= held), default=1)
    of_streams = memory["tokens_per_second_of_streams"]
    together = of_streams[streams] if streams > 1 else outlook.speed(memory)
    return PlannedSplit(tensor, pipeline, outlook.speed(memory), streams, tuple(together), context)


class GoalChoice(NamedTuple):
    """The chosen split, one sentence of why, and lines of what others would give."""

    tensor: int
    pipeline: int
    why: str
    others: list[str]
    #: the others that can be, the best first
    next: list[tuple[int, int]]
    #: those that can be as well, and whose speed nobody can plan
    uncompared: list[tuple[int, int]]


def choose(
    goal: str,
    hosts: Sequence[str],
    world: int,
    planner: Planner,
    alone: Callable[[], Mapping[str, Any]],
    widest_estimated: int,
) -> GoalChoice:
    """The best split for the goal. Raises RecipeError where none can be, with the variable, the hosts and a fix.

    ``alone`` plans a replica on the first host; ``widest_estimated`` is the widest TP whose speed can be planned.
    """
    candidates = [candidate(*split, planner, split[0] <= widest_estimated) for split in splits(world)]
    possible = [choice for choice in candidates if not choice.refused and (goal == "context" or choice.one)]
    if not possible:
        reasons = "; ".join(f"{choice.name}: {_first(choice.refused)}" for choice in candidates if choice.refused)
        raise RecipeError(
            f"{VARIABLE}={goal} cannot be met on {', '.join(hosts)}: no split can be planned ({reasons}). Name the "
            "split (vllm_serve_tensor_parallel_size, vllm_serve_pipeline_parallel_size) and leave the goal out, or "
            "serve what fits.",
            "split",
        )
    order = sorted(possible, key=lambda choice: choice.score(goal), reverse=True)
    best = order[0]
    others = [f"{choice.name} would give {choice.words()}" for choice in order[1:]]
    for choice in candidates:
        if choice.refused:
            others.append(f"{choice.name} cannot be: {_first(choice.refused)}")
        elif choice not in possible:
            others.append(f"{choice.name} is not compared: over TCP each token waits for the network twice a layer")
    if len(hosts) > 1:
        others += _replicas(hosts, alone, best, goal)
    why = f"{best.name}: {VARIABLE}={goal}: {best.words()}."
    left = [(other.tensor, other.pipeline) for other in candidates if not other.refused and other not in possible]
    following = [(choice.tensor, choice.pipeline) for choice in order[1:]]
    return GoalChoice(best.tensor, best.pipeline, why, others, following, left)


def _first(reason: str) -> str:
    """The first sentence, without the name of the recipe and of a variable that nobody has set."""
    text = _NAMED.sub("", reason)
    return text.partition(". ")[0].rstrip(".")


def _replicas(hosts: Sequence[str], alone: Callable[[], Mapping[str, Any]], best: PlannedSplit, goal: str) -> list[str]:
    """What a replica on each host would give, if the model fits on one."""
    world = best.tensor * best.pipeline
    own = candidate(world // len(hosts), 1, lambda _tensor, _pipeline: alone(), estimated=True)
    if own.refused:
        return []
    better = own.together and best.together and len(hosts) * own.together[0] > best.together[0]
    advice = ", which is more for many streams" if goal == "throughput" and better else ""
    return [f"a replica on each host would give {own.words(len(hosts))}{advice} (serving_groups, docs/groups.md)"]
