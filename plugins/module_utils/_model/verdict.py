# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model fits its ranks, with the numbers, and the nearest changes that would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape

GIB = 1024**3
#: Where unified memory still leaves the operating system alone; above it a verdict is at best "tight".
USUAL_UTILIZATION = 0.85
EDGE_UTILIZATION = 0.90


def gib(number: float) -> str:
    return f"{number / GIB:.1f} GiB"


@dataclass(frozen=True)
class Rank:
    """All numbers of one rank."""

    stage: int
    layers: int
    kv: int  # per token, whole context
    window: int  # per sequence, at the asked length
    window_token: int
    state: int  # per sequence
    weights: int
    memory: int | None
    available: int | None
    budget: int | None
    overhead: int

    @property
    def free(self) -> int | None:
        return None if self.budget is None else self.budget - self.weights - self.overhead

    def sequence(self, length: int) -> int:
        return self.kv * length + self.window + self.state

    def tokens(self) -> int | None:
        """Tokens of one sequence that the free memory holds; a cache that does not grow has no such limit."""
        if self.free is None or not self.kv:
            return None
        return max(0, (self.free - self.window - self.state) // self.kv)


def concurrent_sequences(ranks: Sequence[Rank], length: int) -> float | None:
    counts = []
    for rank in ranks:
        if rank.free is None:
            return None
        each = rank.sequence(length)
        if each:
            counts.append(max(0, rank.free) / each)
    return round(min(counts), 2) if counts else None


def judge(
    shape: Shape,
    ranks: Sequence[Rank],
    names: Sequence[str],
    length: int,
    sequences: int,
    utilization: float,
    tensor: int,
    pipeline: int,
    kv_name: str,
    pinned: int | None,
) -> tuple[str, list[str], list[str]]:
    """The verdict, its numbers, and the nearest changes that would make it fit."""
    if any(rank.budget is None for rank in ranks):
        return "unknown", ["memory_bytes is not given: sizes only, no verdict."], []
    worst = min(ranks, key=lambda rank: (rank.free or 0) - rank.sequence(length))
    reasons = [
        reason
        for rank, name in zip(ranks, names, strict=True)
        for reason in _shortages(rank, name, length, utilization, pinned)
    ]
    if reasons:
        return "does_not_fit", reasons, _suggest(shape, ranks, worst, length, utilization, tensor, pipeline, kv_name)
    tight = False
    left = (worst.free or 0) - worst.sequence(length)
    name = names[list(ranks).index(worst)]
    reasons.append(
        f"{name} is the fullest: weights {gib(worst.weights)}, overhead {gib(worst.overhead)}, "
        f"cache {gib(worst.free or 0)} of {gib(worst.budget or 0)}; one sequence of {length} tokens takes "
        f"{worst.sequence(length) / 2**20:.0f} MiB of it."
    )
    if pinned is None and left < 0.05 * (worst.budget or 0):
        tight = True
        reasons.append(f"Less than 5 % of the budget is left after one full-length sequence ({gib(left)}).")
    concurrent = concurrent_sequences(ranks, length)
    if sequences > 1 and concurrent is not None and concurrent < sequences:
        reasons.append(
            f"{concurrent:g} sequences of {length} tokens fit at once; the {sequences} asked for (max_num_seqs) share "
            "the cache and wait or are preempted when all are that long."
        )
    if utilization > USUAL_UTILIZATION and pinned is None:
        tight = True
        edge = "is above the edge seen on unified memory" if utilization > EDGE_UTILIZATION else "is above the usual"
        reasons.append(f"gpu_memory_utilization {utilization:.2f} {edge} {USUAL_UTILIZATION:.2f}.")
    return ("tight" if tight else "fits"), reasons, []


def _shortages(rank: Rank, name: str, length: int, utilization: float, pinned: int | None) -> list[str]:
    """Why the model does not fit this rank, with its numbers; empty if it fits."""
    found: list[str] = []
    budget, free, memory = rank.budget or 0, rank.free or 0, rank.memory or 0
    if pinned is not None and budget > memory * EDGE_UTILIZATION:
        found.append(
            f"{name}: weights {gib(rank.weights)}, overhead {gib(rank.overhead)} and the pinned KV cache "
            f"{gib(pinned)} exceed {EDGE_UTILIZATION:.2f} of {gib(memory)}."
        )
    elif free <= 0:
        found.append(
            f"{name}: weights {gib(rank.weights)} and overhead {gib(rank.overhead)} exceed "
            f"{utilization:.2f} of {gib(memory)} ({gib(budget)})."
        )
    elif rank.sequence(length) > free:
        found.append(
            f"{name}: one sequence of {length} tokens needs {gib(rank.sequence(length))} of cache and "
            f"{gib(free)} is left after weights {gib(rank.weights)} and overhead {gib(rank.overhead)}."
        )
    wanted = int(memory * utilization) if pinned is None else budget
    if rank.available is not None and rank.available < wanted:
        found.append(
            f"{name}: {gib(rank.available)} of memory is available now and vLLM wants {gib(wanted)} "
            f"({utilization:.2f} of {gib(memory)}): stop what holds memory, or drop the page cache."
        )
    return found


def _suggest(
    shape: Shape,
    ranks: Sequence[Rank],
    worst: Rank,
    length: int,
    utilization: float,
    tensor: int,
    pipeline: int,
    kv_name: str,
) -> list[str]:
    """The nearest things that would fit, cheapest first."""
    suggestions: list[str] = []
    tokens = [rank.tokens() for rank in ranks]
    numbers = [number for number in tokens if number is not None]
    if numbers and min(numbers) >= 1024 and min(numbers) < length:
        fitting = min(numbers) // 1024 * 1024
        suggestions.append(f"max_model_len={fitting} fits this split.")
    if (worst.free or 0) > 0 and kv_name in ("bfloat16", "float16", "bf16", "fp16", "half") and worst.kv:
        # half the bytes for each token
        halves = (worst.free or 0) - worst.window // 2 - worst.state
        if halves // max(worst.kv // 2, 1) >= length:
            suggestions.append(f"kv_cache_dtype=fp8 makes {length} tokens fit.")
    for better in (0.80, 0.85, 0.90):
        if better > utilization and all(
            int((rank.memory or 0) * better) - rank.weights - rank.overhead >= rank.sequence(length) for rank in ranks
        ):
            if all(rank.available is None or rank.available >= int((rank.memory or 0) * better) for rank in ranks):
                suggestions.append(f"gpu_memory_utilization={better:.2f} fits.")
            break
    lower = [rank.available / rank.memory for rank in ranks if rank.available is not None and rank.memory]
    if lower and min(lower) < utilization:
        fraction = int(min(lower) * 100) / 100
        if all(
            int((rank.memory or 0) * fraction) - rank.weights - rank.overhead >= rank.sequence(length) for rank in ranks
        ):
            suggestions.append(f"gpu_memory_utilization={fraction:.2f} fits what is available now.")
    more = _more_hosts(shape, ranks, length, utilization, tensor, pipeline)
    if more:
        suggestions.append(more)
    if not suggestions:
        suggestions.append("A smaller checkpoint (a stronger quantization) is needed.")
    return suggestions


def _more_hosts(
    shape: Shape, ranks: Sequence[Rank], length: int, utilization: float, tensor: int, pipeline: int
) -> str | None:
    """The smallest number of further pipeline stages like these that would hold the model."""
    smallest = min(rank.memory or 0 for rank in ranks)
    stages = [ranks[index] for index in range(0, len(ranks), tensor)]
    weights = sum(rank.weights for rank in stages)
    cache = sum(rank.sequence(length) for rank in stages)
    overhead = ranks[0].overhead
    for count in range(pipeline + 1, min(shape.num_layers, pipeline + 64) + 1):
        if -(-(weights + cache) // count) * 1.03 + overhead <= int(smallest * utilization):
            total = count * tensor
            split = f"pipeline_parallel={count}" + (f" with tensor_parallel={tensor}" if tensor > 1 else "")
            return f"{total} GPUs of {gib(smallest)} would hold it ({split})."
    return None
