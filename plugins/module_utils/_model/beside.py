# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that arguments take beside weights and cache: buffers of adapters, and what an engine keeps in host memory.

On unified memory there is one memory: what the engine calls the host's is what its share of the GPU's leaves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import NONE, STATE, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, as_int

GIB = 1024**3
#: arguments that are read here, of the default engine and of others
ARGUMENTS = (
    *("enable-lora", "max-loras", "max-lora-rank", "max-cpu-loras", "fully-sharded-loras"),
    *("kv-offloading-size", "cpu-offload-gb", "mm-processor-cache-gb", "engram-config"),
    *("decode-context-parallel-size", "mamba-cache-mode", "num-gpu-blocks-override"),
)
OF_SGLANG = ("enable-hierarchical-cache", "hicache-ratio", "hicache-size", "cpu-offload-gb")
_HOST_CACHE = "kv-cache-config.host_cache_size"
OF_TENSORRT_LLM = (_HOST_CACHE,)
OF_LLAMA_CPP = ("swa-full", "ctx-checkpoints")
#: the engine's defaults: adapters at once, their rank, and GiB of processed images, kept by two processes of the head
_LORAS, _RANK, _IMAGES, _KEPT_BY = 1, 16, 4, 2
#: adapters are kept in 16 bits
_WIDTH = 2
#: what system and daemons need of a host beside all that is planned
SYSTEM = 4 * GIB


def read(args: Mapping[str, Any], names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The option of the memory plan with those of an engine's arguments that are given."""
    found = {name: args[name] for name in names if args.get(name) is not None}
    return {"beside": found} if found else {}


def _number(given: Mapping[str, Any], name: str, default: float, unit: str = "") -> float:
    value = given.get(name)
    try:
        size = float(default if value is None else value)
    except (TypeError, ValueError):
        size = -1.0
    if not 0 <= size < 1 << 20:
        raise SizingError(name, value, f"is no number{unit}", "Give it as 8 or 0.5.")
    return size


def _gib(given: Mapping[str, Any], name: str, default: float = 0) -> int:
    return int(_number(given, name, default, " of GiB") * GIB)


def _matrices(layer: Layer, shape: Shape, tensor: int) -> Iterator[tuple[int, int, int]]:
    """(copies, what goes in, what comes out) of the matrices that an adapter changes, as a rank holds them."""
    if layer.cache == STATE:
        yield 1, shape.hidden, 4 * layer.conv_width // tensor
        yield 1, layer.conv_width // tensor, shape.hidden
    elif layer.cache != NONE:
        width = max(shape.heads * (shape.head_dim if layer.latent else layer.key_dim) // tensor, 1)
        yield 1, shape.hidden, width
        yield 2, shape.hidden, max(layer.kv_heads // tensor, 1) * layer.key_dim
        yield 1, width, shape.hidden
    if layer.expert_params:
        inner = max(shape.moe_intermediate // tensor, 1)
        yield 2 * shape.experts, shape.hidden, inner
        yield shape.experts, inner, shape.hidden
    elif layer.dense_params:
        inner = max(shape.intermediate // tensor, 1)
        yield 2, shape.hidden, inner
        yield 1, inner, shape.hidden


def adapters(given: Mapping[str, Any], shape: Shape, stages: tuple[int, ...], tensor: int) -> int:
    """Bytes of the buffers for adapters on the fullest rank; 0 without ``enable-lora``.

    The engine makes them at the start for each adapter at once, of the full rank and for every matrix, experts as well
    (0.32, lora/layers): the half that reads is whole on each rank, the half that writes divides.
    """
    if not given.get("enable-lora"):
        return 0
    count = as_int("max-loras", given.get("max-loras") or _LORAS)
    rank = as_int("max-lora-rank", given.get("max-lora-rank") or _RANK)
    split = tensor if given.get("fully-sharded-loras") else 1
    fullest, start = 0, 0
    for size in stages:
        layers = shape.layers[start : start + size]
        start += size
        elements = sum(
            copies * rank * (into // split + out)
            for layer in layers
            for copies, into, out in _matrices(layer, shape, tensor)
        )
        fullest = max(fullest, elements)
    return count * fullest * _WIDTH


def _hierarchical(given: Mapping[str, Any], cache: int) -> int:
    """SGLang's copies of the cache, GB on each rank or so many times the cache (0.5.23, ``HostKVCache``).

    Without either that release takes less than its default of twice the cache where less is free, and older ones end.
    """
    if not given.get("enable-hierarchical-cache"):
        return 0
    size = as_int("hicache-size", given.get("hicache-size") or 0, minimum=0)
    return size * 10**9 or int(cache * _number(given, "hicache-ratio", 2))


def in_host_memory(given: Mapping[str, Any], vision: bool, tensor: int, adapter: int, cache: int) -> dict[str, int]:
    """Bytes that the engine keeps in a host's memory, by cause; the head's, which has most.

    ``vision`` is whether images are read, ``adapter`` the bytes of one adapter in the buffers, ``cache`` those of the
    rank's cache.
    """
    cached = max(0, as_int("max-cpu-loras", given.get("max-cpu-loras") or 0, minimum=0)) if adapter else 0
    parts = {
        "KV offloading": _gib(given, "kv-offloading-size") // tensor,
        "hierarchical cache (hicache-ratio, hicache-size)": _hierarchical(given, cache),
        "host cache (host_cache_size)": as_int(_HOST_CACHE, given.get(_HOST_CACHE) or 0, minimum=0),
        "processed images": _KEPT_BY * _gib(given, "mm-processor-cache-gb", _IMAGES) if vision else 0,
        "adapters kept": cached * adapter,
    }
    return {cause: size for cause, size in parts.items() if size}


def remarks(given: Mapping[str, Any]) -> Iterator[str]:
    """What takes memory whose size is not known here, or frees none."""
    if _gib(given, "cpu-offload-gb"):
        yield "cpu-offload-gb moves weights within one memory here, so it frees nothing: leave it out"
    tables = given.get("engram-config")
    if isinstance(tables, Mapping) and tables.get("cpu_offload"):
        yield "engram-config keeps the n-gram tables in host memory, whose size is not known here: it is not counted"


def unreckoned(given: Mapping[str, Any], shape: Shape) -> Iterator[str]:
    """What changes the size of the cache in a way that nobody reckons here."""
    ranks, blocks = given.get("decode-context-parallel-size"), given.get("num-gpu-blocks-override")
    if ranks and as_int("decode-context-parallel-size", ranks) > 1:
        yield f"how much of the cache each rank holds with decode-context-parallel-size={ranks}"
    if given.get("mamba-cache-mode") == "all" and shape.count(STATE):
        yield "the states of mamba-cache-mode=all, which grow with the context"
    if blocks:
        yield f"the cache of num-gpu-blocks-override={blocks}"


def more_than_memory(parts: Mapping[str, int], memory: int | None, budget: int | None) -> tuple[str, str]:
    """(verdict, reason) where what is kept in host memory does not go beside the engine's share; empty where it does.

    ``memory`` and ``budget`` are bytes of a host and of what the engine takes of it.
    """
    kept = sum(parts.values())
    if not kept or memory is None or budget is None:
        return "", ""
    left = memory - budget
    told = ", ".join(f"{cause} {size / GIB:.1f} GiB" for cause, size in parts.items())
    words = f"{told} in host memory, which is the same memory: the engine's share leaves {left / GIB:.1f} GiB of it"
    if kept > left:
        return "does_not_fit", f"{words}. Ask for less there, or for a smaller share."
    if kept > left - SYSTEM:
        return "tight", f"{words}, and the system needs about {SYSTEM // GIB} GiB."
    return "", ""
