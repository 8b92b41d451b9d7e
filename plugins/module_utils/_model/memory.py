# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model needs of each rank's memory, computed from its config.json alone.

Pure and standard library only: the same file is imported by the filter on the controller, by the module on a
host, and by the parallelism planner. Nothing here touches a GPU; every number is a formula over the model's shape,
so that a split which cannot work is known before ten minutes of loading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import with_overrides
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.kv_cache import (
    kv_element,
    layer_kv_bytes,
    layer_state_bytes,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, STATE, WINDOW, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape, read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.split import (
    by_rank,
    check_split,
    rank_names,
    split_layers,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    SizingError,
    as_fraction,
    as_int,
    dtype_bytes,
    parse_length,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import (
    GIB,
    USUAL_UTILIZATION,
    Rank,
    concurrent_sequences,
    judge,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import (
    Weights,
    estimate_weights,
    weights_from_tensors,
)

#: Memory bandwidth of a GB10; the bound on decode speed is this divided by what each token has to read.
SPARK_BANDWIDTH = 273e9
#: CUDA context, NCCL buffers, allocator slack and captured graphs: measured on GB10 between 1 and 2 GiB a rank.
BASE_OVERHEAD = GIB
GRAPH_OVERHEAD = GIB // 2


def _overhead(
    shape: Shape, tensor_parallel: int, batched: int, sequences: int, eager: bool, declared: int | None
) -> int:
    """Memory beside weights and cache: the runtime's own, and the largest activations of one step."""
    if declared is not None:
        return as_int("overhead_bytes", declared, minimum=0)
    width = max(dtype_bytes("dtype", shape.dtype), 2)
    ffn = max(shape.intermediate, shape.moe_intermediate * max(shape.experts_per_token, 1))
    activations = batched * width * (10 * shape.hidden + 3 * ffn // tensor_parallel)
    logits = min(sequences, batched) * shape.vocab * 4 * 2 // tensor_parallel
    return BASE_OVERHEAD + (0 if eager else GRAPH_OVERHEAD) + activations + logits


def prefill_flops(shape: Shape, length: int) -> int:
    """Operations that the last prompt token of a whole context costs: the dearest one that a step can hold.

    Two (multiply, add) for each parameter that the token passes, and four for each position that it attends to and
    each element of the heads (scores and values). The embedding and the head of the vocabulary are looked up, or
    computed for one token of the prompt.
    """
    params = sum(
        layer.attention_params
        + layer.kv_params
        + layer.dense_params
        + layer.active_expert_params
        + layer.replicated_params
        for layer in shape.layers
    )
    positions = length * shape.count(FULL)
    positions += sum(min(layer.window, length) for layer in shape.layers if layer.cache == WINDOW)
    return 2 * params + 4 * shape.heads * shape.head_dim * positions


def plan(
    config: Mapping[str, Any],
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    kv_cache_dtype: str = "auto",
    max_model_len: int | str | None = None,
    memory_bytes: int | Sequence[int] | None = None,
    gpu_memory_utilization: float = USUAL_UTILIZATION,
    weights_bytes: int | None = None,
    memory_available_bytes: int | Sequence[int] | None = None,
    max_num_seqs: int = 1,
    max_num_batched_tokens: int = 8192,
    overhead_bytes: int | None = None,
    kv_cache_memory_bytes: int | str | None = None,
    enforce_eager: bool = False,
    language_model_only: bool = False,
    mamba_ssm_cache_dtype: str = "auto",
    memory_bandwidth: float = SPARK_BANDWIDTH,
    active_bytes: int | None = None,
    layer_partition: Sequence[int] | str | None = None,
    tensors: Mapping[str, int] | None = None,
    hosts: Sequence[str] | None = None,
    hf_overrides: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The memory plan of one model on one set of ranks; see the `memory_plan` filter for the meaning of each."""
    shape = read_shape(with_overrides(config, hf_overrides) if hf_overrides else config)
    tensor, pipeline = as_int("tensor_parallel", tensor_parallel), as_int("pipeline_parallel", pipeline_parallel)
    check_split(shape, tensor)
    stages = split_layers(shape.num_layers, pipeline, layer_partition)
    element = kv_element(kv_cache_dtype, shape)
    utilization = as_fraction("gpu_memory_utilization", gpu_memory_utilization)
    batched = as_int("max_num_batched_tokens", max_num_batched_tokens)
    sequences = as_int("max_num_seqs", max_num_seqs)
    cache = _Cache(shape, element, batched, _length(shape, max_model_len), str(mamba_ssm_cache_dtype or "auto"))
    weights = _weights(shape, stages, tensor, tensors, weights_bytes, language_model_only)
    memory = _of_ranks("memory_bytes", memory_bytes, tensor * pipeline, hosts)
    available = _of_ranks("memory_available_bytes", memory_available_bytes, tensor * pipeline, hosts)
    names = rank_names(hosts, tensor * pipeline)
    overhead = _overhead(shape, tensor, batched, sequences, bool(enforce_eager), overhead_bytes)
    pinned = _pinned_cache(kv_cache_memory_bytes)
    ranks = _plan_ranks(cache, stages, tensor, weights, memory, available, utilization, overhead, pinned)
    verdict, reasons, suggestions = judge(
        shape, ranks, names, cache.length, sequences, utilization, tensor, pipeline, element[2], pinned
    )
    active = as_int("active_bytes", active_bytes) if active_bytes is not None else weights.active
    return {
        "verdict": verdict,
        "reasons": reasons,
        "suggestions": suggestions,
        **_model_sizes(shape, weights, ranks),
        **_cache_sizes(cache, ranks),
        "active_bytes": active,
        "overhead_bytes_per_rank": overhead,
        "gpu_memory_utilization": utilization,
        "decode_tokens_per_second_bound": round(tensor * float(memory_bandwidth) / active, 1) if active else None,
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "ranks": _rank_table(names, ranks),
    }


@dataclass(frozen=True)
class _Cache:
    """What decides the size of the cache on every rank."""

    shape: Shape
    element: tuple[Fraction, int, str]
    batched: int
    length: int
    ssm_dtype: str  # or auto, which is the model's own

    def grows(self, layer: Layer) -> bool:
        """Whether a layer caches the whole context; a window as long as the context is no window at all."""
        return layer.cache == FULL or (layer.cache == WINDOW and layer.window >= self.length)

    def slides(self, layer: Layer) -> bool:
        return layer.cache == WINDOW and not self.grows(layer)

    def per_token(self, layers: Iterable[Layer], tensor: int = 1) -> int:
        return sum(layer_kv_bytes(layer, self.element, tensor) for layer in layers)

    def per_window(self, layers: Iterable[Layer], tensor: int) -> int:
        # while a chunk is processed, a window holds the chunk as well
        return sum(
            layer_kv_bytes(layer, self.element, tensor) * min(layer.window + self.batched, self.length)
            for layer in layers
        )

    def per_state(self, layers: Iterable[Layer], tensor: int = 1) -> int:
        ssm_dtype = None if self.ssm_dtype == "auto" else self.ssm_dtype
        return sum(layer_state_bytes(layer, self.shape, tensor, ssm_dtype) for layer in layers)


def _weights(
    shape: Shape,
    stages: Sequence[int],
    tensor: int,
    tensors: Mapping[str, int] | None,
    weights_bytes: int | None,
    language_model_only: bool,
) -> Weights:
    """From the tensors of the checkpoint where they are known, else from the shape of the model."""
    if tensors is not None:
        return weights_from_tensors(shape, tensors, stages, tensor, language_model_only)
    size = None if weights_bytes is None else as_int("weights_bytes", weights_bytes)
    return estimate_weights(shape, stages, tensor, size, language_model_only)


def _pinned_cache(value: int | str | None) -> int | None:
    return None if value in (None, "", 0) else parse_length("kv_cache_memory_bytes", value)


def _of_ranks(variable: str, value: Any, world: int, hosts: Sequence[str] | None) -> list[int | None]:
    if value is None:
        return [None] * world
    return list(by_rank(variable, value, world, len(hosts or ())))


def _plan_ranks(
    cache: _Cache,
    stages: Sequence[int],
    tensor: int,
    weights: Weights,
    memory: Sequence[int | None],
    available: Sequence[int | None],
    utilization: float,
    overhead: int,
    pinned: int | None,
) -> list[Rank]:
    """The numbers of every rank, pipeline stage by stage."""
    ranks: list[Rank] = []
    start = 0
    for stage, count in enumerate(stages):
        part = cache.shape.layers[start : start + count]
        start += count
        grows = [layer for layer in part if cache.grows(layer)]
        slides = [layer for layer in part if cache.slides(layer)]
        for lane in range(tensor):
            rank = stage * tensor + lane
            total = memory[rank]
            budget = None if total is None else int(total * utilization)
            if budget is not None and pinned is not None:
                budget = weights.by_rank[rank] + overhead + pinned
            ranks.append(
                Rank(
                    stage=stage,
                    layers=count,
                    kv=cache.per_token(grows, tensor),
                    window=cache.per_window(slides, tensor),
                    window_token=cache.per_token(slides, tensor),
                    state=cache.per_state(part, tensor),
                    weights=weights.by_rank[rank],
                    memory=total,
                    available=available[rank],
                    budget=budget,
                    overhead=overhead,
                )
            )
    return ranks


def _kv_per_rank(ranks: Sequence[Rank]) -> list[int]:
    """Bytes of one token on each rank: where nothing grows, what it costs until the window is full."""
    anything_grows = any(rank.kv for rank in ranks)
    return [rank.kv or (0 if anything_grows else rank.window_token) for rank in ranks]


def _max_tokens(ranks: Sequence[Rank], length: int) -> int | None:
    """The longest sequence that every rank holds; None where the memory is not known."""
    if any(rank.memory is None for rank in ranks):
        return None
    if not all(rank.free is None or rank.free > 0 for rank in ranks):
        # a stage without a growing cache sets no limit, and none of its own weights fit all the same
        return 0
    return min((tokens for tokens in (rank.tokens() for rank in ranks) if tokens is not None), default=length)


def _cache_sizes(cache: _Cache, ranks: Sequence[Rank]) -> dict[str, Any]:
    shape = cache.shape
    whole = cache.per_token(layer for layer in shape.layers if cache.grows(layer))
    windows = [layer for layer in shape.layers if cache.slides(layer)]
    within = whole + cache.per_token(windows)
    return {
        "kv_cache_dtype": cache.element[2],
        # nothing but windows: a token costs this much until the window is full
        "kv_bytes_per_token": within if windows and not whole else whole,
        "kv_bytes_per_token_within_window": within,
        "kv_bytes_per_token_per_rank": max(_kv_per_rank(ranks)),
        "window_bytes_per_sequence_per_rank": max(rank.window for rank in ranks),
        "state_bytes_per_sequence": cache.per_state(shape.layers),
        "state_bytes_per_sequence_per_rank": max(rank.state for rank in ranks),
        "max_model_len": cache.length,
        "prefill_flops_per_token": prefill_flops(shape, cache.length),
        "max_tokens": _max_tokens(ranks, cache.length),
        "max_concurrent_sequences": concurrent_sequences(ranks, cache.length),
    }


def _model_sizes(shape: Shape, weights: Weights, ranks: Sequence[Rank]) -> dict[str, Any]:
    return {
        "model_type": shape.model_type,
        "model_max_len": shape.max_position,
        "layers": shape.num_layers,
        "full_attention_layers": shape.count(FULL),
        "window_layers": shape.count(WINDOW),
        "state_layers": shape.count(STATE),
        "weights_bytes": weights.total,
        "weights_bytes_per_rank": max(rank.weights for rank in ranks),
        "weights_source": weights.source,
    }


def _rank_table(names: Sequence[str], ranks: Sequence[Rank]) -> dict[str, list[Any]]:
    return {
        "host": list(names),
        "stage": [rank.stage for rank in ranks],
        "layers": [rank.layers for rank in ranks],
        "kv_bytes_per_token_per_rank": _kv_per_rank(ranks),
        "weights_bytes_per_rank": [rank.weights for rank in ranks],
        "state_bytes_per_sequence_per_rank": [rank.state for rank in ranks],
        "memory_bytes": [rank.memory for rank in ranks],
        "memory_available_bytes": [rank.available for rank in ranks],
        "budget_bytes": [rank.budget for rank in ranks],
        "kv_cache_bytes": [None if rank.free is None else max(0, rank.free) for rank in ranks],
        "max_tokens": [rank.tokens() for rank in ranks],
    }


def _length(shape: Shape, asked: Any) -> int:
    limit = shape.max_position
    if asked in (None, "", "auto", -1, "-1"):
        if limit is None:
            raise SizingError(
                "max_model_len",
                asked,
                "is not given and the model's config names no limit",
                "Give the context length in tokens.",
            )
        return limit
    length = parse_length("max_model_len", asked)
    if limit is not None and length > limit:
        raise SizingError(
            "max_model_len",
            length,
            f"is longer than the model's own {limit} tokens",
            f"Ask for at most {limit}, or extend the positions by hf-overrides with {{rope_parameters: ...}} (under "
            "text_config where the model's config.json has it there).",
        )
    return length
