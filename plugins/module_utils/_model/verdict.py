# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model fits its ranks, with the numbers, and the nearest changes that would make it fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, STATE, WINDOW
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.overhead import SPREAD, SPREAD_LEAST, spread
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.pool import Pool
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
    pool: Pool
    limit: int | None  # the model's own longest context
    weights: int
    memory: int | None
    available: int | None
    budget: int | None
    overhead: int
    pinned: bool = False

    @property
    def free(self) -> int | None:
        """The cache that is expected."""
        return None if self.budget is None else self.budget - self.weights - self.overhead

    @property
    def surely(self) -> int:
        """The cache that is left in a boot that takes more than expected."""
        free = self.free or 0
        return free if self.pinned else free - spread(free)

    def sequence(self, length: int) -> int:
        """What the engine asks for one request; one block of the pool is never handed out."""
        return self.pool.bytes(self.stage, length) + self.pool.block_bytes(self.stage)

    def tokens(self, free: int | None = None) -> int | None:
        """Tokens of one sequence that the free memory holds; a cache that does not grow has no such limit."""
        free = self.free if free is None else free
        if free is None or not self.kv:
            return None
        return self.pool.longest(self.stage, max(free, 0), max(free, 0) // self.kv)


@dataclass(frozen=True)
class Asked:
    """What was asked, what a suggestion may change, and what the plan had to leave open."""

    length: int
    sequences: int
    utilization: float
    split: tuple[int, int]  # tensor, pipeline
    kv_name: str
    pinned: int | None
    batched: int
    parts: Mapping[str, int]  # of the overhead
    unknown: Sequence[str] = ()
    estimated: bool = True  # the overhead is
    weighed: bool = True  # the weights are known, though something of the cache may not be
    uncounted: str = ""  # a drafter that the numbers leave out
    risk: str = ""  # what may end the start, whatever fits


def usable_blocks(ranks: Sequence[Rank]) -> int | None:
    """Blocks of the pool: the least of all ranks; None where the memory is not known or nothing is cached."""
    counts = []
    for rank in ranks:
        if rank.free is None:
            return None
        size = rank.pool.block_bytes(rank.stage)
        if size:
            counts.append(max(0, rank.free) // size)
    return min(counts) if counts else None


def concurrent_sequences(ranks: Sequence[Rank], length: int) -> float | None:
    blocks = usable_blocks(ranks)
    return None if blocks is None else round(blocks / ranks[0].pool.blocks(length), 2)


def judge(shape: Shape, ranks: Sequence[Rank], names: Sequence[str], asked: Asked) -> tuple[str, list[str], list[str]]:
    """The verdict, its numbers, and the nearest changes that would make it fit.

    A drafter that is not known only adds to what is: without room for the rest it fits no more, and else nobody knows.
    """
    verdict, reasons, suggestions = _judged(shape, ranks, names, asked)
    if asked.uncounted:
        verdict = verdict if verdict == "does_not_fit" else "unknown"
        reasons = [*reasons, f"Not known, and so not counted: {asked.uncounted}. It comes on top of these numbers."]
    if asked.risk:
        reasons = [*reasons, f"Not sure to start: {asked.risk}."]
    return "tight" if asked.risk and verdict == "fits" else verdict, reasons, suggestions


def _judged(
    shape: Shape, ranks: Sequence[Rank], names: Sequence[str], asked: Asked
) -> tuple[str, list[str], list[str]]:
    length, utilization, pinned = asked.length, asked.utilization, asked.pinned
    doubts = _doubts(shape, asked)
    if any(rank.budget is None for rank in ranks):
        return "unknown", [*doubts, "memory_bytes is not given: sizes only, no verdict."], []
    if doubts:
        return _judge_weights(ranks, names, asked, doubts)
    worst = min(ranks, key=lambda rank: (rank.free or 0) - rank.sequence(length))
    reasons = [
        reason
        for rank, name in zip(ranks, names, strict=True)
        for reason in _shortages(rank, name, length, utilization, pinned)
    ]
    if reasons:
        found = _suggest(shape, ranks, worst, length, utilization, *asked.split, asked.kv_name)
        return "does_not_fit", reasons, [*found, *_smaller_steps(worst, length, asked)]
    name = names[list(ranks).index(worst)]
    reasons.append(
        f"{name} is the fullest: weights {gib(worst.weights)}, overhead {gib(worst.overhead)}, "
        f"cache {gib(worst.free or 0)} of {gib(worst.budget or 0)}; one sequence of {length} tokens takes "
        f"{worst.sequence(length) / 2**20:.0f} MiB of it."
    )
    suggestions: list[str] = []
    tight = False
    least = min(ranks, key=lambda rank: rank.surely - rank.sequence(length))
    if asked.estimated and least.surely < least.sequence(length):
        tight = True
        name = names[list(ranks).index(least)]
        short = least.sequence(length) - least.surely
        reasons.append(
            f"{name}: boots differ, and one that takes more leaves {gib(least.surely)} of cache, {gib(short)} less "
            f"than one sequence of {length} tokens needs; the engine would then refuse to start."
        )
        suggestions = _lower(least, length, utilization, asked)
    concurrent = concurrent_sequences(ranks, length)
    if asked.sequences > 1 and concurrent is not None and concurrent < asked.sequences:
        reasons.append(
            f"{concurrent:g} sequences of {length} tokens fit at once; the {asked.sequences} asked for (max_num_seqs) "
            "share the cache and wait or are preempted when all are that long."
        )
    if utilization > USUAL_UTILIZATION and pinned is None:
        tight = True
        edge = "is above the edge seen on unified memory" if utilization > EDGE_UTILIZATION else "is above the usual"
        reasons.append(f"gpu_memory_utilization {utilization:.2f} {edge} {USUAL_UTILIZATION:.2f}.")
    return "tight" if tight else "fits", reasons, suggestions


def _doubts(shape: Shape, asked: Asked) -> list[str]:
    """What is not known, and what was assumed for the split."""
    kinds = f"{shape.count(FULL)} layers that keep the whole context, {shape.count(WINDOW)} a window and "
    assumed = f"Assumed for the split: {kinds}{shape.count(STATE)} a state."
    found = [f"Not known: {what}. So no number of the cache is given." for what in asked.unknown]
    return [*found, assumed] if found else []


def _judge_weights(
    ranks: Sequence[Rank], names: Sequence[str], asked: Asked, doubts: Sequence[str]
) -> tuple[str, list[str], list[str]]:
    """Of a cache that is not known: whether the weights alone are too large."""
    reasons = [
        reason
        for rank, name in zip(ranks, names, strict=True)
        for reason in _shortages(rank, name, 0, asked.utilization, asked.pinned)
    ]
    if not (asked.weighed and reasons):
        return "unknown", list(doubts), []
    return "does_not_fit", [*doubts, *reasons], ["More GPUs, a smaller checkpoint or more free memory are needed."]


def _lower(rank: Rank, length: int, utilization: float, asked: Asked) -> list[str]:
    """What to lower, and by how much, so that a boot that takes more starts as well."""
    suggestions = []
    tokens = rank.tokens(rank.surely)
    if tokens is not None and tokens >= 1024:
        fitting = tokens // 1024 * 1024
        suggestions.append(f"Lower max_model_len by {length - fitting} to {fitting}.")
    suggestions += _smaller_steps(rank, length, asked)
    if rank.memory and not rank.pinned:
        one = rank.sequence(length)
        needed = (max(one / (1 - SPREAD), one + SPREAD_LEAST) + rank.weights + rank.overhead) / rank.memory
        higher = -(-int(needed * 1000) // 10) / 100 + 0.01
        if utilization < higher <= EDGE_UTILIZATION:
            suggestions.append(f"Or raise gpu_memory_utilization to {higher:.2f}.")
    return suggestions or ["Pin the cache by kv_cache_memory_bytes, or use more GPUs."]


def _smaller_steps(rank: Rank, length: int, asked: Asked) -> list[str]:
    """A step with fewer tokens, if that alone is enough."""
    each = (asked.parts.get("activations", 0) + asked.parts.get("encoder", 0)) / asked.batched
    for batched in (8192, 4096, 2048):
        if batched < asked.batched:
            spared = int((asked.batched - batched) * each)
            larger = (rank.free or 0) + spared
            if larger - spread(larger) >= rank.sequence(length):
                return [f"Lower max_num_batched_tokens to {batched}, which spares about {gib(spared)}."]
    return []


def _shortages(rank: Rank, name: str, length: int, utilization: float, pinned: int | None) -> list[str]:
    """Why the model does not fit this rank, with its numbers; empty if it fits. Without a length, by weights alone."""
    shortages: list[str] = []
    budget, free, memory = rank.budget or 0, rank.free or 0, rank.memory or 0
    if pinned is not None and budget > memory * EDGE_UTILIZATION:
        shortages.append(
            f"{name}: weights {gib(rank.weights)}, overhead {gib(rank.overhead)} and the pinned KV cache "
            f"{gib(pinned)} exceed {EDGE_UTILIZATION:.2f} of {gib(memory)}."
        )
    elif free <= 0:
        shortages.append(
            f"{name}: weights {gib(rank.weights)} and overhead {gib(rank.overhead)} exceed "
            f"{utilization:.2f} of {gib(memory)} ({gib(budget)})."
        )
    elif length and rank.sequence(length) > free:
        shortages.append(
            f"{name}: one sequence of {length} tokens needs {gib(rank.sequence(length))} of cache and "
            f"{gib(free)} is left after weights {gib(rank.weights)} and overhead {gib(rank.overhead)}."
        )
    wanted = int(memory * utilization) if pinned is None else budget
    if rank.available is not None and rank.available < wanted:
        shortages.append(
            f"{name}: {gib(rank.available)} of memory is available now and the engine wants {gib(wanted)} "
            f"({utilization:.2f} of {gib(memory)}): stop what holds memory, or drop the page cache."
        )
    return shortages


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
        if (worst.free or 0) >= worst.sequence(length) // 2 + worst.state:
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
    """The smallest number of GPUs that would hold the model: as further pipeline stages like these, whose layers are
    not equally large, or as tensor-parallel ranks, which share all alike but never a KV head."""
    smallest = min(rank.memory or 0 for rank in ranks)
    stages = [ranks[index] for index in range(0, len(ranks), tensor)]
    weights = sum(rank.weights for rank in stages)
    cache = sum(rank.sequence(length) for rank in stages)
    room = int(smallest * utilization) - ranks[0].overhead
    for total in range(tensor * pipeline + 1, min(shape.num_layers, pipeline + 64) * tensor + 1):
        count = total // tensor
        if total % tensor == 0 and -(-(weights + cache) // count) * 1.03 <= room:
            split = f"pipeline_parallel={count}" + (f" with tensor_parallel={tensor}" if tensor > 1 else "")
            return f"{total} GPUs of {gib(smallest)} would hold it ({split})."
        shared = min(total, shape.kv_heads or 1)
        divides = shape.heads and shape.heads % total == 0
        if tensor == 1 and divides and weights // total + cache // shared <= room:
            return f"{total} GPUs of {gib(smallest)} would hold it (tensor_parallel={total})."
    return None
