# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model needs of each rank's memory, computed from its config.json alone.

Pure and standard library only: the same file is imported by the filter on the controller, by the module on a
host, and by the parallelism planner. Nothing here touches a GPU; every number is a formula over the model's shape,
so that a split which cannot work is known before ten minutes of loading. The engine is vLLM, whose rules these are;
another one that is planned by them (SGLang) is pinned to what they give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import (
    advice,
    beside,
    defaults,
    known,
    overhead,
    prefill,
    speed,
    traffic,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import (
    ATTENTION_FREE,
    text_config,
    with_overrides,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.drafter import Drafter, read_drafter
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.kv_cache import (
    Element,
    common_block,
    kv_element,
    layer_caches,
    unpacked_ends,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, STATE, WINDOW
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.pool import RING, Cache, Pool, Request, make_pool
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape, read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.split import (
    by_rank,
    check_split,
    rank_names,
    stages_of,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import (
    STRANGE,
    SizingError,
    as_fraction,
    as_int,
    blaming,
    parse_length,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import (
    USUAL_UTILIZATION,
    Asked,
    Rank,
    concurrent_sequences,
    judge,
    usable_blocks,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import (
    Weights,
    drafter_bytes,
    estimate_weights,
    loaded_share,
    reads,
    weights_from_tensors,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.withheld import (
    OF_CACHE,
    OF_DRAFTER,
    OF_WEIGHTS,
    withheld,
)

#: Memory bandwidth of a GB10; the bound on decode speed is this divided by what each token has to read.
SPARK_BANDWIDTH = 273e9


@dataclass(frozen=True)
class Options:
    """How a model is run, and on what; see the `memory_plan` filter for the meaning of each."""

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    dtype: str = "auto"
    kv_cache_dtype: str = "auto"
    max_model_len: int | str | None = None
    allow_long_max_model_len: bool = False
    memory_bytes: int | Sequence[int] | None = None
    gpu_memory_utilization: float = USUAL_UTILIZATION
    weights_bytes: int | None = None
    memory_available_bytes: int | Sequence[int] | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool = True
    performance_mode: str = ""
    kind: str = defaults.SPARK
    overhead_bytes: int | None = None
    kv_cache_memory_bytes: int | str | None = None
    enforce_eager: bool = False
    language_model_only: bool = False
    mamba_ssm_cache_dtype: str = "auto"
    memory_bandwidth: float = SPARK_BANDWIDTH
    active_bytes: int | None = None
    layer_partition: Sequence[int] | str | None = None
    tensors: Mapping[str, int] | None = None
    hosts: Sequence[str] | None = None
    hf_overrides: Mapping[str, Any] | None = None
    speculative_config: Mapping[str, Any] | str | None = None
    draft_config: Mapping[str, Any] | None = None
    draft_weights_bytes: int | None = None
    enable_expert_parallel: bool = False
    enable_prefix_caching: bool = True
    load_format: str = "auto"
    padded_heads: bool = False
    image_of_others: bool = False
    beside: Mapping[str, Any] | None = None
    vllm_version: str | None = None


def plan(config: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The memory plan of one model on one set of ranks, by `Options`."""
    asked = Options(**options)
    config = with_overrides(config, asked.hf_overrides) if asked.hf_overrides else config
    # its numbers may be too large or too small to go on with; all other errors after reading it are ours
    with blaming(config, ArithmeticError):
        result = _planned(config, asked)
    result["suggestions"] = advice.proved(
        result,
        lambda change: _planned(config, replace(asked, **change)),
        result["max_num_batched_tokens"],
        _pinned_cache(asked.kv_cache_memory_bytes) is not None,
    )
    return result


def _read(
    config: Mapping[str, Any], asked: Options, version: tuple[int, ...] | None
) -> tuple[Shape, Drafter, list[str], int | None]:
    """Shape and drafter, what is not known of the model, and how many positions a token attends to."""
    with blaming(config, *STRANGE):
        shape = _as_of(version, config, read_shape(config, str(asked.dtype or "auto")))
        text = text_config(config)
        return shape, _drafter(asked, config, shape), known.unknown_of(text), prefill.selected(text, shape)


def _planned(config: Mapping[str, Any], asked: Options) -> dict[str, Any]:
    """The plan with suggestions that nobody has tried yet; ``config`` is as it is served."""
    version = _version(asked.vllm_version)
    shape, drafter, strange, selected = _read(config, asked, version)
    tensor, pipeline = _split(asked)
    if not asked.padded_heads:
        check_split(shape, tensor)
    stages = stages_of(shape, pipeline, asked.layer_partition)
    step = _step(asked, shape, drafter)
    in_flight = step.batched * _batches(pipeline, version)
    cache, unsized = _cache_of_known_size(asked, shape, drafter, in_flight, tensor, stages)
    weights = _weights(asked, shape, stages, tensor, drafter)
    weighed = not strange or weights.measured
    strange = [*strange, *unsized, *beside.unreckoned(asked.beside or {}, shape)]
    parts = _overhead(asked, shape, stages, tensor, step)
    made = cache.pool()
    ranks = _plan_ranks(asked, cache, made, weights, sum(parts.values()))
    cache, ranks = _fitted(asked, cache, ranks)
    names = rank_names(asked.hosts, tensor * pipeline)
    verdict, reasons, suggestions = judge(
        shape,
        ranks,
        names,
        Asked(
            cache.length,
            1 if asked.max_num_seqs is None else step.sequences,
            as_fraction("gpu_memory_utilization", asked.gpu_memory_utilization),
            (tensor, pipeline),
            cache.element.name,
            _pinned_cache(asked.kv_cache_memory_bytes),
            step.batched,
            parts,
            strange,
            asked.overhead_bytes is None,
            weighed,
            drafter.unknown,
            drafter.risk,
        ),
    )
    kept, verdict, reasons = _beside_engine(asked, shape, step, ranks, verdict, reasons)
    result = {
        "verdict": verdict,
        "reasons": reasons,
        "suggestions": suggestions,
        "unknown": [*strange, *filter(None, [drafter.unknown])],
        **_model_sizes(shape, weights, ranks),
        **_cache_sizes(cache, made, ranks, version),
        **({"kv_cache_dtype": str(asked.kv_cache_dtype)} if unsized else {}),
        **_speed(asked, shape, weights, step, (cache.length, selected)),
        "overhead_bytes_per_rank": sum(parts.values()),
        "overhead_parts": parts,
        "gpu_memory_utilization": float(asked.gpu_memory_utilization),
        **{"max_num_batched_tokens": step.batched, "host_memory_parts": kept},
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "ranks": _rank_table(names, ranks, cache.length),
    }
    if strange:
        return withheld(result, {*OF_CACHE, *(() if weighed else OF_WEIGHTS), "prefill_flops_per_token"})
    return withheld(result, OF_DRAFTER) if drafter.unknown else result


def _split(asked: Options) -> tuple[int, int]:
    return as_int("tensor_parallel", asked.tensor_parallel), as_int("pipeline_parallel", asked.pipeline_parallel)


def _drafter(asked: Options, config: Mapping[str, Any], shape: Shape) -> Drafter:
    size = asked.draft_weights_bytes
    weights = None if size is None else as_int("draft_weights_bytes", size)
    return read_drafter(asked.speculative_config, config, shape, asked.draft_config, weights)


def _overhead(asked: Options, shape: Shape, stages: Sequence[int], tensor: int, step: overhead.Step) -> dict[str, int]:
    if asked.overhead_bytes is not None:
        return {"given": as_int("overhead_bytes", asked.overhead_bytes, minimum=0)}
    adapters = beside.adapters(asked.beside or {}, shape, tuple(stages), tensor)
    parts = overhead.overhead_parts(shape, tensor, tensor * len(stages), step)
    return {**parts, **({"adapters": adapters} if adapters else {})}


def _beside_engine(
    asked: Options, shape: Shape, step: overhead.Step, ranks: Sequence[Rank], verdict: str, reasons: Sequence[str]
) -> tuple[dict[str, int], str, list[str]]:
    """What the engine keeps in host memory, by cause, and verdict and reasons with it."""
    given = asked.beside or {}
    one = beside.adapters({**given, "max-loras": 1}, shape, (shape.num_layers,), 1)
    kept = beside.in_host_memory(given, step.vision, _split(asked)[0], one, max(0, ranks[0].free or 0))
    worse, reason = beside.more_than_memory(kept, ranks[0].memory, ranks[0].budget)
    words = [*filter(None, [reason]), *(f"{remark}." for remark in beside.remarks(given))]
    order = ("fits", "tight", "does_not_fit")
    if worse and verdict in order:
        verdict = max(verdict, worse, key=order.index)
    return kept, verdict, [*reasons, *words]


def _step(asked: Options, shape: Shape, drafter: Drafter) -> overhead.Step:
    batched, sequences = (
        None if given is None else as_int(name, given)
        for name, given in (
            ("max_num_batched_tokens", asked.max_num_batched_tokens),
            ("max_num_seqs", asked.max_num_seqs),
        )
    )
    chunked, mode = asked.enable_chunked_prefill, str(asked.performance_mode or "")
    length = _length(shape, asked)
    batched, sequences = defaults.step(str(asked.kind), length, batched, sequences, chunked, mode)
    return overhead.Step(
        batched=batched,
        sequences=sequences,
        eager=bool(asked.enforce_eager),
        drafted=drafter.tokens,
        vision=bool(shape.vision_params) and not asked.language_model_only,
        expert_parallel=bool(asked.enable_expert_parallel),
        load_format=str(asked.load_format or "auto"),
    )


def _speed(
    asked: Options, shape: Shape, weights: Weights, step: overhead.Step, context: tuple[int, int | None]
) -> dict[str, Any]:
    """``context``: the longest one, and how many of its positions a token attends to (`prefill.selected`)."""
    tensor, pipeline = _split(asked)
    bandwidth = float(asked.memory_bandwidth)
    active = weights.active if asked.active_bytes is None else as_int("active_bytes", asked.active_bytes)
    known_size = asked.weights_bytes if asked.tensors is None else weights.total
    read = reads(shape, known_size, asked.active_bytes)
    run = speed.SpeedStep(tensor, pipeline, bandwidth, step.drafted, step.eager)
    bound = round(tensor * bandwidth / active, 1) if active else None
    return {
        "active_bytes": active,
        "decode_tokens_per_second_bound": bound,
        "tokens_per_second": speed.tokens_per_second(shape, read, run, bound) if bound is not None else None,
        "tokens_per_second_of_streams": speed.of_streams(shape, read, run) if active else None,
        "prompts": prefill.prompts(shape, read, run, step.batched, *context) if active else None,
        "traffic": traffic.traffic(shape, tensor, pipeline),
    }


#: From these releases on Nemotron-H keeps its states in float32 where its config names no other type (before, in the
#: model's own), prefix caching keeps a checkpoint of Mamba 2 (0.30.1 has none, 0.32 has one), windows hold what every
#: batch in flight has scheduled, and "KV cache size: N tokens" is what that many requests of the whole length hold,
#: instead of the tokens of one group of caches.
_FLOAT32_STATE_FROM = (0, 20)
_MAMBA_CHECKPOINT_FROM = (0, 31)
_IN_FLIGHT_FROM = (0, 25)
_TOKENS_BY_CONCURRENCY_FROM = (0, 20)


def _version(value: str | None) -> tuple[int, ...] | None:
    numbers = [int(part) for part in str(value or "").partition("+")[0].split(".")[:2] if part.isdigit()]
    return tuple(numbers) if len(numbers) == 2 else None


def _as_of(version: tuple[int, ...] | None, config: Mapping[str, Any], shape: Shape) -> Shape:
    """The shape as an older release has it."""
    if version is not None and version < _MAMBA_CHECKPOINT_FROM:
        layers = tuple(replace(layer, checkpoints=0) if layer.groups else layer for layer in shape.layers)
        shape = replace(shape, layers=layers)
    older = version is not None and version < _FLOAT32_STATE_FROM and shape.model_type == "nemotron_h"
    if older and not text_config(config).get("mamba_ssm_cache_dtype"):
        return replace(shape, ssm_dtype=shape.dtype)
    return shape


def _batches(pipeline: int, version: tuple[int, ...] | None) -> int:
    """Batches that are scheduled and not yet settled: one for each stage, and one that is being prepared."""
    return 1 if version is not None and version < _IN_FLIGHT_FROM else pipeline + 1


@dataclass(frozen=True)
class _Cache:
    """What decides the size of the cache on every rank."""

    shape: Shape
    element: Element
    length: int
    ssm_dtype: str  # or auto, which is the model's own
    drafter: Drafter
    request: Request
    tensor: int
    stages: tuple[int, ...]

    def caches(self, tensor: int | None = None) -> list[Cache]:
        """Caches of all layers in their order, each with its stage; the drafter's are on the last one."""
        of_stage = [stage for stage, count in enumerate(self.stages) for _layer in range(count)]
        plain = kv_element(self.shape.dtype, self.shape)
        bare = unpacked_ends(self.shape, self.element)
        by_layer = []
        for index, layer in enumerate(self.shape.layers):
            element = plain if index in bare else self.element
            by_layer += [
                replace(cache, stage=of_stage[index])
                for cache in layer_caches(
                    layer, self.shape, element, tensor or self.tensor, self.drafter.tokens, self.ssm_dtype
                )
            ]
        drafting, waiting = self.drafter.shape, self.drafter.tokens if self.drafter.own_weights else 0
        for layer in drafting.layers if drafting else ():
            by_layer += [
                replace(cache, stage=len(self.stages) - 1)
                for cache in layer_caches(layer, drafting or self.shape, self.element, tensor or self.tensor, waiting)
            ]
        return by_layer

    def pool(self) -> Pool:
        caches = self.caches()
        return make_pool(caches, common_block(self.shape, caches), self.request, packed=self.shape.packed)


def _cache(
    asked: Options, shape: Shape, drafter: Drafter, in_flight: int, tensor: int, stages: Sequence[int]
) -> _Cache:
    return _Cache(
        shape,
        kv_element(asked.kv_cache_dtype, shape),
        _length(shape, asked),
        str(asked.mamba_ssm_cache_dtype or "auto"),
        drafter,
        # the engine keeps no copies of the states of models that have nothing else
        Request(
            in_flight,
            drafter.tokens,
            bool(asked.enable_prefix_caching) and shape.model_type not in ATTENTION_FREE,
        ),
        tensor,
        tuple(stages),
    )


def _cache_of_known_size(asked: Options, *how: Any) -> tuple[_Cache, list[str]]:
    """The cache, and what of its type is not known: an image of others may store one in ways of its own."""
    try:
        cache = _cache(asked, *how)
        cache.caches()
    except SizingError as error:
        if not asked.image_of_others or error.variable != "kv_cache_dtype":
            raise
        said = f"kv_cache_dtype {str(asked.kv_cache_dtype)!r} of an image of others, which {error.problem}"
        return _cache(replace(asked, kv_cache_dtype="auto"), *how), [said]
    return cache, []


def _weights(asked: Options, shape: Shape, stages: Sequence[int], tensor: int, drafter: Drafter) -> Weights:
    """From the tensors of the checkpoint where they are known, else from the shape of the model."""
    text_alone, tensors, size = bool(asked.language_model_only), asked.tensors, asked.weights_bytes
    if tensors is not None:
        share = loaded_share(shape, sum(tensors.values()))
        tensors = {name: int(part * share) for name, part in tensors.items()}
        weights = weights_from_tensors(shape, tensors, stages, tensor, text_alone, drafter.own_weights)
    else:
        size = None if size is None else as_int("weights_bytes", size)
        size = None if size is None else int(size * loaded_share(shape, size))
        weights = estimate_weights(shape, stages, tensor, size, text_alone)
    if drafter.own_weights and (tensors is not None or size is not None):
        return weights  # what the checkpoint holds of it is counted
    if drafter.weights is not None:
        more = -(-drafter.weights // tensor)
    elif drafter.shape is not None:
        more = drafter_bytes(drafter.shape, tensor, drafter.own_weights)
    else:
        return weights
    last = len(weights.by_rank) - tensor
    return replace(weights, by_rank=[size + (more if rank >= last else 0) for rank, size in enumerate(weights.by_rank)])


def _pinned_cache(value: int | str | None) -> int | None:
    return None if value in (None, "", 0) else parse_length("kv_cache_memory_bytes", value)


def _of_ranks(variable: str, value: Any, world: int, hosts: Sequence[str] | None) -> list[int | None]:
    if value is None:
        return [None] * world
    return list(by_rank(variable, value, world, len(hosts or ())))


def _plan_ranks(asked: Options, cache: _Cache, made: Pool, weights: Weights, beside: int) -> list[Rank]:
    """The numbers of every rank, pipeline stage by stage."""
    world = cache.tensor * len(cache.stages)
    memory = _of_ranks("memory_bytes", asked.memory_bytes, world, asked.hosts)
    available = _of_ranks("memory_available_bytes", asked.memory_available_bytes, world, asked.hosts)
    utilization = as_fraction("gpu_memory_utilization", asked.gpu_memory_utilization)
    pinned = _pinned_cache(asked.kv_cache_memory_bytes)
    caches = cache.caches()
    ranks: list[Rank] = []
    for stage, count in enumerate(cache.stages):
        here = [each for each in caches if each.stage == stage]
        for lane in range(cache.tensor):
            rank = stage * cache.tensor + lane
            total = memory[rank]
            budget = None if total is None else int(total * utilization)
            if budget is not None and pinned is not None:
                budget = weights.by_rank[rank] + beside + pinned
            ranks.append(
                Rank(
                    stage=stage,
                    layers=count,
                    kv=_per_token(here, FULL, cache.length),
                    window_token=_per_token(here, WINDOW, cache.length),
                    window=_per_window(here, cache.request.in_flight, cache.length),
                    state=sum(each.bytes for each in here if each.kind == STATE),
                    pool=made,
                    limit=cache.shape.max_position,
                    weights=weights.by_rank[rank],
                    memory=total,
                    available=available[rank],
                    budget=budget,
                    overhead=beside,
                    pinned=pinned is not None,
                )
            )
    return ranks


def _per_token(caches: Sequence[Cache], kind: str, length: int) -> int:
    """Bytes that a token adds; a window as long as the context is no window at all."""
    total = 0
    for cache in caches:
        if cache.kind in (STATE, RING):
            continue
        grows = cache.kind == FULL or cache.window >= length
        if grows == (kind == FULL):
            total += cache.bytes // cache.per_entry
    return total


def _per_window(caches: Sequence[Cache], in_flight: int, length: int) -> int:
    # while chunks are processed, a window holds them as well
    return sum(
        cache.bytes * min(cache.window - 1 + in_flight, length)
        for cache in caches
        if cache.kind not in (FULL, STATE, RING) and cache.window < length
    )


def _fitted(asked: Options, cache: _Cache, ranks: list[Rank]) -> tuple[_Cache, list[Rank]]:
    """The length that the engine takes for `auto` or -1: the longest that fits, at most the model's own."""
    found = [tokens for tokens in (rank.tokens() for rank in ranks) if tokens is not None]
    open_length = asked.max_model_len in ("auto", -1, "-1")
    if not open_length or any(rank.budget is None for rank in ranks) or not found or min(found) < 1:
        return cache, ranks
    return replace(cache, length=min(cache.length, *found)), ranks


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


def _cache_sizes(cache: _Cache, made: Pool, ranks: Sequence[Rank], version: tuple[int, ...] | None) -> dict[str, Any]:
    every = cache.caches(tensor=1)
    whole = _per_token(every, FULL, cache.length)
    within = whole + _per_token(every, WINDOW, cache.length)
    return {
        "kv_cache_dtype": cache.element.name,
        # nothing but windows: a token costs this much until the window is full
        "kv_bytes_per_token": whole or within,
        "kv_bytes_per_token_within_window": within,
        "kv_bytes_per_token_per_rank": max(_kv_per_rank(ranks)),
        "window_bytes_per_sequence_per_rank": max(rank.window for rank in ranks),
        "state_bytes_per_sequence": sum(each.bytes for each in every if each.kind == STATE),
        "state_bytes_per_sequence_per_rank": max(rank.state for rank in ranks),
        "block_bytes_per_rank": max(made.block_bytes(rank.stage) for rank in ranks),
        "request_bytes_per_rank": max(rank.sequence(cache.length) for rank in ranks),
        "max_model_len": cache.length,
        "prefill_flops_per_token": prefill.prefill_flops(cache.shape, cache.length),
        "max_tokens": _max_tokens(ranks, cache.length),
        "max_concurrent_sequences": concurrent_sequences(ranks, cache.length),
        "kv_cache_tokens": _reported_tokens(made, ranks, cache.length, version),
    }


def _reported_tokens(made: Pool, ranks: Sequence[Rank], length: int, version: tuple[int, ...] | None) -> int | None:
    """What the planned release writes as "KV cache size: N tokens"."""
    blocks = usable_blocks(ranks)
    if blocks is None or not made.groups:
        return None
    if version is not None and version < _TOKENS_BY_CONCURRENCY_FROM:
        return blocks // len(made.groups) * min(cache.block for cache in made.groups[0])
    return int(blocks / made.blocks(length) * length)


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


def _rank_table(names: Sequence[str], ranks: Sequence[Rank], length: int) -> dict[str, list[Any]]:
    return {
        "host": list(names),
        "kv_bytes_of_token": [rank.kv for rank in ranks],
        "window_bytes_of_token": [rank.window_token for rank in ranks],
        "stage": [rank.stage for rank in ranks],
        "layers": [rank.layers for rank in ranks],
        "kv_bytes_per_token_per_rank": _kv_per_rank(ranks),
        "weights_bytes_per_rank": [rank.weights for rank in ranks],
        "state_bytes_per_sequence_per_rank": [rank.state for rank in ranks],
        "memory_bytes": [rank.memory for rank in ranks],
        "memory_available_bytes": [rank.available for rank in ranks],
        "budget_bytes": [rank.budget for rank in ranks],
        "kv_cache_bytes": [None if rank.free is None else max(0, rank.free) for rank in ranks],
        "kv_cache_bytes_at_least": [None if rank.free is None else max(0, rank.surely) for rank in ranks],
        "request_bytes": [rank.pool.bytes(rank.stage, length) for rank in ranks],
        "max_tokens": [rank.tokens() for rank in ranks],
    }


def _length(shape: Shape, options: Options) -> int:
    limit, asked = shape.max_position, options.max_model_len
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
    if limit is not None and length > limit and not options.allow_long_max_model_len:
        raise SizingError(
            "max_model_len",
            length,
            f"is longer than the model's own {limit} tokens",
            f"Ask for at most {limit}, or extend the positions by hf-overrides with {{rope_parameters: ...}} (under "
            "text_config where the model's config.json has it there).",
        )
    return length
