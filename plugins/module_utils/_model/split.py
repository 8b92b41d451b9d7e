# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Splitting a model over ranks by an engine's rules: layers over pipeline stages, heads over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int


def split_layers(num_layers: int, pipeline_parallel: int, partition: Sequence[int] | str | None = None) -> list[int]:
    """Layers of each pipeline stage, by the engine's rule.

    What does not divide goes, one layer each, to the stages before the last one, backwards: the last stage
    already carries the output head. `partition` overrides the rule.
    """
    layers = as_int("num_hidden_layers", num_layers)
    stages = as_int("pipeline_parallel", pipeline_parallel)
    if partition not in (None, "", []):
        parts = partition.split(",") if isinstance(partition, str) else list(partition)
        counts = [as_int("layer_partition", part, minimum=0) for part in parts]
        if len(counts) != stages or sum(counts) != layers:
            raise SizingError(
                "layer_partition",
                partition,
                f"does not name {stages} stages with {layers} layers in all",
                f"Give {stages} numbers that add up to {layers}.",
            )
        return counts
    if stages > layers:
        raise SizingError(
            "pipeline_parallel",
            stages,
            f"is more than the model's {layers} layers",
            f"Choose at most {layers} stages.",
        )
    counts = [layers // stages] * stages
    for back in range(2, layers % stages + 2):
        counts[-back] += 1
    return counts


def stages_of(shape: Shape, pipeline_parallel: int, partition: Sequence[int] | str | None = None) -> list[int]:
    """`split_layers` of a model that can have stages: later ones do not get the words that a table is looked up by."""
    sources = [index for index, layer in enumerate(shape.layers) if layer.source]
    if pipeline_parallel > 1 and sources:
        return _with_whole_groups(shape, sources, split_layers(shape.num_layers, pipeline_parallel, partition))
    if pipeline_parallel > 1 and any(layer.table_params for layer in shape.layers):
        raise SizingError(
            "pipeline_parallel",
            pipeline_parallel,
            "cannot be: a model whose layers look words up in a table is served without pipeline stages",
            "Use tensor parallelism, over RoCE between hosts.",
        )
    return split_layers(shape.num_layers, pipeline_parallel, partition)


def _with_whole_groups(shape: Shape, sources: Sequence[int], counts: list[int]) -> list[int]:
    """DeepSeek V4.1: layers that read one layer's cache are on its stage, and tables on the first one."""
    last_table = max((index for index, layer in enumerate(shape.layers) if layer.table_params), default=-1)
    possible = [source for source in sources if source > max(0, last_table)]
    begins = [sum(counts[:stage]) for stage in range(1, len(counts))]
    if all(begin in possible for begin in begins):
        return counts
    raise SizingError(
        "pipeline_parallel",
        len(counts),
        f"begins stages with layers {', '.join(map(str, begins))}, but layers that read one cache are on one stage, "
        "and tables of n-grams on the first",
        "Use tensor parallelism, over RoCE"
        + (f"; or let a stage begin with layer {' or '.join(map(str, possible))}." if possible else "."),
    )


def check_split(shape: Shape, tensor_parallel: int) -> None:
    """Stop a tensor split that an engine would refuse after its imports: heads and KV heads must divide."""
    size = tensor_parallel
    if shape.heads and shape.heads % size:
        raise SizingError(
            "tensor_parallel",
            size,
            f"does not divide the model's {shape.heads} attention heads",
            f"Possible: {_divisors_text(shape.heads)}; or use pipeline_parallel={size}.",
        )
    for kv_heads in sorted({layer.kv_heads for layer in shape.layers if layer.kv_heads and not layer.latent}):
        if kv_heads % size and size % kv_heads:
            raise SizingError(
                "tensor_parallel",
                size,
                f"neither divides the model's {kv_heads} KV heads nor is a multiple of them",
                f"Use a divisor or a multiple of {kv_heads}, or pipeline_parallel={size}.",
            )


def _divisors_text(number: int, limit: int = 64) -> str:
    return ", ".join(str(value) for value in range(1, min(number, limit) + 1) if number % value == 0)


def by_rank(variable: str, value: Any, world: int, hosts: int = 0) -> list[int]:
    """One integer for all ranks, or a list with one entry a rank, or a host, whose ranks share it."""
    if isinstance(value, (list, tuple)):
        numbers = [as_int(f"{variable}[{index}]", item) for index, item in enumerate(value)]
        if len(numbers) == hosts and world % hosts == 0:
            each = world // hosts
            return [number // each for number in numbers for _index in range(each)]
        if len(numbers) == 1:
            return numbers * world
        if len(numbers) != world:
            raise SizingError(
                variable,
                value,
                f"has {len(numbers)} entries for {world} ranks",
                f"Give one number, or one for each of the {world} ranks (pipeline stage by stage), or of the hosts.",
            )
        return numbers
    return [as_int(variable, value)] * world


def rank_names(hosts: Sequence[str] | None, world: int) -> list[str]:
    if not hosts:
        return [f"rank {number}" for number in range(world)]
    names = [str(name) for name in hosts]
    if len(names) == world:
        return names
    if world % len(names) == 0:
        each = world // len(names)
        return [name for name in names for _index in range(each)]
    raise SizingError("hosts", names, f"does not match {world} ranks", "Name one host a rank.")
