# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What llama.cpp takes of each host's memory for a model in GGUF, and the arguments that pin it.

The rules are those of ggml-org/llama.cpp 0c1e570 and 0.7.0: ``load_tensors`` (which layer is where),
``llama_context`` and ``llama_kv_cache`` (the cache of ``--ctx-size``, for all slots, made at the start). Layers go to
the workers in their order first and to the head last, with the output matrix; the token embedding stays on the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.gguf import TENSOR_TYPES, Gguf, tensor_layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int, parse_length
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import (
    EDGE_UTILIZATION,
    USUAL_UTILIZATION,
    gib,
)

MIB = 2**20
#: types of a cache's numbers, by llama.cpp's names
CACHE_TYPES = ("f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
#: what a context of CUDA and the process itself take; not measured
RUNTIME = 768 * MIB
#: tokens of one step (``--ubatch-size``)
STEP = 512
#: MiB of prompts that llama.cpp keeps in host memory unless it is told otherwise
PROMPT_CACHE = 8192
#: states of a prompt that it keeps of each slot in the head's memory, unless it is told otherwise
CHECKPOINTS = 32
_PAD = 256


@dataclass(frozen=True)
class HostShare:
    """Bytes of one host."""

    host: str
    layers: int
    weights: int
    cache: int
    compute: int
    prompts: int
    checkpoints: int
    memory: int | None
    available: int | None

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute + self.prompts + self.checkpoints + RUNTIME


@dataclass(frozen=True)
class CacheRequest:
    """What is asked for: tokens of one slot, slots, types of the cache, tokens of a step, MiB of kept prompts, states
    that are kept of a slot, and whether windows keep the whole context."""

    length: int
    slots: int
    key_type: str
    value_type: str
    step: int
    prompts: int
    checkpoints: int = CHECKPOINTS
    swa_full: bool = False

    @property
    def slot_cells(self) -> int:
        """Tokens that llama.cpp makes of the length of a slot."""
        return -(-self.length // _PAD) * _PAD

    @property
    def cells(self) -> int:
        """``--ctx-size``, which is of all slots together."""
        return self.slot_cells * self.slots


def _cache_row(kind: str, width: int) -> int:
    """Bytes of one token's keys or values; llama.cpp refuses widths that are no whole blocks."""
    names = {name.lower(): (block, size) for name, block, size in TENSOR_TYPES.values()}
    block, size = names[kind]
    if width % block:
        raise SizingError(
            "kv_cache_dtype", kind, f"needs widths that {block} divides, and the model has {width}", "Take f16."
        )
    return width // block * size


def _per_layer(model: Gguf, name: str, layer: int, default: int) -> int:
    """A field that is one number for all layers, or a list of one for each."""
    value = model.of(name, default)
    if isinstance(value, list):
        if layer >= len(value):
            _odd(model, name, value)
        value = value[layer]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        _odd(model, name, value)
    return int(value)


def _odd(model: Gguf, name: str, value: Any) -> None:
    field = f"{model.architecture}.{name}"
    raise SizingError(
        "model_path", model.paths[0], f"has {field} {value!r}, which is no size", "Choose another file of the model."
    )


def _number(model: Gguf, name: str, default: int = 0) -> int:
    return _per_layer(model, name, 0, default)


class Caches:
    """Bytes of the cache by layer.

    A layer with ``attn_k`` (or keys fused with others) has a cache that grows, one with ``ssm_`` tensors and no keys a
    state of each slot. A window counts where the file says which layers have one, else all keep the whole context.
    """

    def __init__(self, model: Gguf, request: CacheRequest) -> None:
        self.model, self.request = model, request
        self.parts: list[set[str]] = [set() for _layer in range(model.layers)]
        for name in model.tensors:
            number = tensor_layer(name)
            if number is not None:
                self.parts[number].add(name.split(".")[2])
        self.unshared = model.layers - _number(model, "attention.shared_kv_layers")

    def token(self, layer: int) -> int:
        """Bytes that one token takes in a layer."""
        parts = self.parts[layer]
        state = any(part.startswith("ssm_") for part in parts)
        keys = parts & {"attn_k", "attn_kv_a_mqa", "attn_kv_a", "attn_k_b"} or ("attn_qkv" in parts and not state)
        if not keys or layer >= self.unshared:
            return 0
        model, within = self.model, self._has_window(layer)
        heads = _per_layer(model, "attention.head_count", layer, 0)
        usual = _number(model, "embedding_length") // max(heads, 1)
        kv_heads = _per_layer(model, "attention.head_count_kv", layer, heads)
        key, value = (_number(model, f"attention.{name}_length", usual) for name in ("key", "value"))
        if within:
            key = _number(model, "attention.key_length_swa", key)
            value = _number(model, "attention.value_length_swa", value)
        found = _cache_row(self.request.key_type, key * kv_heads)
        # of latent attention the keys are all
        if not _number(model, "attention.key_length_mla"):
            found += _cache_row(self.request.value_type, value * kv_heads)
        return found

    def _has_window(self, layer: int) -> bool:
        """By the file, which says what a layer's keys are as well; ``--swa-full`` changes the cells alone."""
        pattern = self.model.of("attention.sliding_window_pattern")
        known = isinstance(pattern, list) and layer < len(pattern) and bool(pattern[layer])
        return known and _number(self.model, "attention.sliding_window") > 0

    def cells(self, layer: int) -> int:
        """Tokens that a layer keeps, of all slots."""
        request = self.request
        if request.swa_full or not self._has_window(layer):
            return request.cells
        kept = _number(self.model, "attention.sliding_window") + request.step
        return min(request.slot_cells, -(-kept // _PAD) * _PAD) * request.slots

    def state(self, layer: int) -> int:
        """Bytes of a slot's state in a layer without keys, as numbers of 32 bits."""
        if self.token(layer) or not any(part.startswith("ssm_") for part in self.parts[layer]):
            return 0
        inner, state = (_number(self.model, f"ssm.{name}") for name in ("inner_size", "state_size"))
        kernel, groups = (_number(self.model, f"ssm.{name}") for name in ("conv_kernel", "group_count"))
        return 4 * (max(kernel - 1, 0) * (inner + 2 * groups * state) + inner * state)

    def checkpoint(self, layer: int) -> int:
        """Bytes of a layer in one state that is kept of a slot (``create_checkpoint``): its window, or its own state.

        A context that keeps all of a window is rolled back without.
        """
        window = _number(self.model, "attention.sliding_window") if self._has_window(layer) else 0
        tokens = 0 if self.request.swa_full else min(window, self.request.slot_cells)
        return self.token(layer) * tokens + self.state(layer)

    def bytes(self, layer: int) -> int:
        return self.token(layer) * self.cells(layer) + self.state(layer) * self.request.slots


def compute_bytes(model: Gguf, request: CacheRequest, devices: int = 1) -> int:
    """Buffers of one step on a host that has layers: the widest tensors that live at once, and the mask.

    Over several devices llama.cpp works on up to four steps at once, and keeps what goes into each of them.
    Measured on CPUs alone (tests hold it against them); on a GPU it is an estimate.
    """
    hidden = _number(model, "embedding_length")
    wide = _per_layer(model, "feed_forward_length", 0, 4 * hidden)
    experts = _number(model, "expert_used_count") * _number(model, "expert_feed_forward_length")
    numbers = (16 if devices > 1 else 8) * hidden + 3 * max(wide, experts)
    logits = _vocabulary(model) * request.slots
    mask = (8 if devices > 1 else 6) * request.step * request.slot_cells
    return 4 * (request.step * numbers + logits) + mask


def _vocabulary(model: Gguf) -> int:
    table = model.tensors.get("token_embd.weight")
    return table.shape[-1] if table is not None and table.shape else 0


def _spread(loads: Sequence[int], beside: int, capacity: Sequence[int]) -> list[int]:
    """How many layers each host gets, in the engine's order, so that the fullest one is as empty as can be.

    ``loads`` are bytes by layer, ``beside`` those that the last host holds besides. Each host has one layer at least.
    """
    hosts, layers = len(capacity), len(loads)
    sums = [0]
    for load in loads:
        sums.append(sums[-1] + load)

    def share(begin: int, end: int, host: int) -> int:
        """Millionths of the host that these layers take."""
        held = sums[end] - sums[begin] + (beside if host == hosts - 1 else 0)
        return held * 10**6 // capacity[host]

    # by the layers before them: the fullest of the hosts so far, and where the last of these began
    fullest = [(share(0, end, 0), 0) for end in range(layers + 1)]
    began = [[0] * (layers + 1)]
    for host in range(1, hosts):
        row = [
            min(
                ((max(share(begin, end, host), fullest[begin][0]), begin) for begin in range(host, end)), default=(0, 0)
            )
            for end in range(layers + 1)
        ]
        fullest = row
        began.append([begin for _share, begin in row])
    counts, end = [], layers
    for host in reversed(range(hosts)):
        counts.append(end - began[host][end])
        end = began[host][end]
    return counts[::-1]


def _given(layers: int, hosts: int, partition: Any) -> list[int] | None:
    """Layers by host as the user said them, the head first."""
    if partition in (None, "", []):
        return None
    items = partition.split(",") if isinstance(partition, str) else list(partition)
    counts = [as_int("layer_partition", item, minimum=0) for item in items]
    if len(counts) != hosts or sum(counts) != layers:
        raise SizingError(
            "layer_partition",
            partition,
            f"has {len(counts)} numbers that make {sum(counts)}",
            f"Give {hosts} numbers, the head's first, that make {layers}.",
        )
    return counts


def _request(model: Gguf, options: dict[str, Any], hosts: int) -> CacheRequest:
    longest = _number(model, "context_length")
    asked = options.get("max_model_len")
    length = longest if asked in (None, "", "auto", -1, "-1") else parse_length("max_model_len", asked)
    if not length or (longest and length > longest):
        raise SizingError(
            "max_model_len", asked, f"is not 1 to the {longest} tokens of the model", f"Ask for at most {longest}."
        )
    kind = str(options.get("kv_cache_dtype") or "auto").lower()
    kind = {"auto": "f16", "float16": "f16", "bfloat16": "bf16"}.get(kind, kind)
    if kind not in CACHE_TYPES:
        raise SizingError(
            "kv_cache_dtype", kind, "is no type of llama.cpp's cache", f"Take one of {', '.join(CACHE_TYPES)}."
        )
    prompts = options.get("prompt_cache_mib")
    if prompts is None:
        prompts = PROMPT_CACHE if hosts == 1 else 0
    if hosts > 1 and int(prompts):
        raise SizingError(
            "prompt_cache_mib", prompts, "makes llama.cpp end where workers hold layers (its issue 26529)", "Take 0."
        )
    given = options.get("beside") or {}
    return CacheRequest(
        length=length,
        slots=as_int("max_num_seqs", options.get("max_num_seqs") or 1),
        key_type=kind,
        value_type=kind,
        step=as_int("max_num_batched_tokens", options.get("max_num_batched_tokens") or STEP),
        prompts=int(prompts),
        checkpoints=as_int("ctx-checkpoints", given.get("ctx-checkpoints", CHECKPOINTS), minimum=0),
        swa_full=bool(given.get("swa-full")),
    )


def _each(variable: str, value: Any, hosts: int) -> list[int | None]:
    if not value:
        return [None] * hosts
    given = [value] if isinstance(value, int) else list(value)
    given = given * hosts if len(given) == 1 else given
    if len(given) != hosts:
        raise SizingError(variable, value, f"has {len(given)} numbers", f"Give one, or one for each of {hosts} hosts.")
    return list(given)


def _shares(
    model: Gguf, request: CacheRequest, names: Sequence[str], options: dict[str, Any], head_computes: bool
) -> list[HostShare]:
    """The head first. ``head_computes``: it has a device for layers, as every host has where it is not a CPU alone."""
    hosts = len(names)
    memory = _each("memory_bytes", options.get("memory_bytes"), hosts)
    available = _each("memory_available_bytes", options.get("memory_available_bytes"), hosts)
    caches = Caches(model, request)
    cache = [caches.bytes(layer) for layer in range(model.layers)]
    checkpoints = request.checkpoints * request.slots * sum(caches.checkpoint(layer) for layer in range(model.layers))
    weights = model.layer_bytes()
    table = model.tensors.get("token_embd.weight")
    embedding = table.size if table else 0
    rest = model.size - sum(weights) - embedding
    # the output matrix is with the last layer: where it shares the embedding's numbers, a copy on another device
    one_device = hosts == 1 and not head_computes
    output = rest + (0 if "output.weight" in model.tensors or one_device else embedding)
    if head_computes and hosts > model.layers:
        raise SizingError("hosts", list(names), f"are more than the {model.layers} layers", "Take fewer hosts.")
    counts = _given(model.layers, hosts, options.get("layer_partition"))
    # as the engine has them: workers, then the head
    order = [*range(1, hosts), 0] if head_computes or one_device else list(range(1, hosts))
    if counts is None:
        capacity = [memory[host] or 1 for host in order]
        loads = [weights[layer] + cache[layer] for layer in range(model.layers)]
        spread = _spread(loads, output + (embedding + checkpoints if head_computes else 0), capacity)
        counts = [0] * hosts
        for host, count in zip(order, spread, strict=True):
            counts[host] = count
    shares: dict[int, HostShare] = {}
    begin, compute = 0, compute_bytes(model, request, len(order))
    for host in order if 0 in order else [*order, 0]:
        here = range(begin, begin + counts[host])
        begin = here.stop
        held = sum(weights[layer] for layer in here)
        held += output if host == order[-1] else 0
        held += embedding if host == 0 else 0
        shares[host] = HostShare(
            host=names[host],
            layers=len(here),
            weights=held,
            cache=sum(cache[layer] for layer in here),
            compute=compute,
            prompts=request.prompts * MIB if host == 0 else 0,
            checkpoints=checkpoints if host == 0 else 0,
            memory=memory[host],
            available=available[host],
        )
    return [shares[host] for host in range(hosts)]


def plan(model: Gguf, *, head_computes: bool = True, **options: Any) -> dict[str, Any]:
    """Bytes of each host, whether they fit, and the arguments that make llama.cpp do as planned.

    Options are those of the module ``memory_plan``. Raises SizingError.
    """
    pipeline = as_int("pipeline_parallel", options.get("pipeline_parallel") or 1)
    names = [str(name) for name in options.get("hosts") or []] or [f"host {n}" for n in range(pipeline)]
    if as_int("tensor_parallel", options.get("tensor_parallel") or 1) != 1:
        raise SizingError(
            "tensor_parallel",
            options["tensor_parallel"],
            "is not possible with llama.cpp, which puts whole layers on hosts",
            "Take 1, and as many hosts as pipeline_parallel; vllm and sglang split tensors.",
        )
    if len(names) != pipeline:
        raise SizingError("pipeline_parallel", pipeline, f"is not the {len(names)} hosts", f"Take {len(names)}.")
    request = _request(model, options, len(names))
    shares = _shares(model, request, names, options, head_computes)
    utilization = float(options.get("gpu_memory_utilization") or USUAL_UTILIZATION)
    verdict, reasons, suggestions = _judge(model, request, shares, utilization)
    return {
        "verdict": verdict,
        "reasons": reasons,
        "suggestions": suggestions,
        "model_type": model.architecture,
        "model_max_len": _number(model, "context_length"),
        "layers": model.layers,
        "max_model_len": request.slot_cells,
        "max_num_seqs": request.slots,
        "kv_cache_dtype": request.key_type,
        "kv_bytes_per_token": sum(Caches(model, request).token(layer) for layer in range(model.layers)),
        "weights_bytes": model.size,
        "weights_bytes_per_rank": max(share.weights for share in shares),
        "weights_source": "the header of the GGUF file",
        "ranks": {
            "host": [share.host for share in shares],
            "layers": [share.layers for share in shares],
            "weights_bytes": [share.weights for share in shares],
            "kv_cache_bytes": [share.cache for share in shares],
            "compute_bytes": [share.compute for share in shares],
            "total_bytes": [share.total for share in shares],
            "memory_bytes": [share.memory for share in shares],
        },
        "arguments": _arguments(request, shares),
    }


def _arguments(request: CacheRequest, shares: Sequence[HostShare]) -> dict[str, Any]:
    """Options of llama-server that pin what was planned; ``fit`` would change what does not seem to fit."""
    options: dict[str, Any] = {
        "ctx-size": request.cells,
        "parallel": request.slots,
        "cache-type-k": request.key_type,
        "cache-type-v": request.value_type,
        "ubatch-size": request.step,
        "cache-ram": request.prompts,
        "gpu-layers": sum(share.layers for share in shares) + 1,
        "fit": "off",
    }
    if len(shares) > 1:
        # the output matrix counts as a layer, and goes with the last ones
        counts = [share.layers for share in [*shares[1:], shares[0]]]
        holder = len(counts) - 1 if counts[-1] else len(counts) - 2
        counts[holder] += 1
        options["tensor-split"] = ",".join(map(str, counts))
    return options


def _judge(
    model: Gguf, request: CacheRequest, shares: Sequence[HostShare], utilization: float
) -> tuple[str, list[str], list[str]]:
    reasons, short = [], 0
    for share in shares:
        if share.memory is None:
            continue
        room = int(share.memory * EDGE_UTILIZATION)
        parts = f"weights {gib(share.weights)}, cache {gib(share.cache)}, buffers {gib(share.compute)}"
        parts += f", kept prompts {gib(share.prompts)}" if share.prompts else ""
        parts += f", ctx-checkpoints {gib(share.checkpoints)}" if share.checkpoints else ""
        if share.total > room:
            reasons.append(
                f"{share.host}: {parts} and the process exceed {EDGE_UTILIZATION:.2f} of {gib(share.memory)}."
            )
            short = max(short, share.total - room)
        elif share.available is not None and share.total > share.available:
            reasons.append(
                f"{share.host}: {parts} and the process need {gib(share.total)}, and {gib(share.available)} are "
                "available now: stop what holds memory."
            )
            short = max(short, share.total - share.available)
    if reasons:
        return "does_not_fit", reasons, _suggestions(model, request, shares, short)
    known = [share for share in shares if share.memory]
    tight = [share for share in known if share.total > (share.memory or 0) * utilization]
    for share in tight or known[:1]:
        reasons.append(f"{share.host}: {gib(share.total)} of {gib(share.memory or 0)} are taken.")
    return "tight" if tight else "fits", reasons, []


def _suggestions(model: Gguf, request: CacheRequest, shares: Sequence[HostShare], short: int) -> list[str]:
    suggestions = []
    if request.prompts and short <= request.prompts * MIB:
        suggestions.append(f"Lower prompt_cache_mib by {-(-short // MIB)} to {request.prompts - -(-short // MIB)}.")
    held = shares[0].checkpoints
    if held >= short:
        suggestions.append(f"ctx-checkpoints={int(request.checkpoints * (1 - short / held))} fits.")
    worst = max(shares, key=lambda share: share.cache)
    if request.cells and worst.cache > short:
        fitting = int((worst.cache - short) / worst.cache * request.slot_cells) // _PAD * _PAD
        if fitting >= _PAD:
            suggestions.append(f"max_model_len={fitting} fits, with {request.slots} at once.")
    if request.key_type == "f16" and worst.cache * 15 // 32 > short:
        suggestions.append("kv_cache_dtype=q8_0 makes it fit.")
    return suggestions or ["More hosts, a stronger quantization of the model or more free memory are needed."]
