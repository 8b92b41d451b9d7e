# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Suggestions of a plan, each planned before it is given: what does not help is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

GIB = 1024**3
#: what a suggestion changes, by its words; others stand for themselves
_CHANGES = (
    (re.compile(r"max_model_len(?:=| by \d+ to )(\d+)"), "max_model_len", int),
    (re.compile(r"kv_cache_dtype=(\w+)"), "kv_cache_dtype", str),
    (re.compile(r"gpu_memory_utilization(?:=| to )([\d.]+\d)"), "gpu_memory_utilization", float),
    (re.compile(r"max_num_batched_tokens to (\d+)"), "max_num_batched_tokens", int),
)
_GPUS = re.compile(r"(\d+) GPUs of ")
#: beyond an estimate of how many GPUs are needed
_TRIED_BEYOND = 4
#: steps that are tried, largest first
_STEPS = (8192, 4096, 2048)

#: a plan of the same model with these options changed
Planner = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def proved(result: Mapping[str, Any], replanned: Planner, batched: int, pinned: bool) -> list[str]:
    """The suggestions of ``result`` that make it better, and for a pinned cache the pin and the step that fit."""
    if result["verdict"] not in ("does_not_fit", "tight") or result["request_bytes_per_rank"] is None:
        return list(result["suggestions"])
    given: Sequence[str] = result["suggestions"]
    kept: list[str] = []
    for text in given:
        if found := _GPUS.match(text):
            kept += _more_gpus(result, replanned, int(found[1]))
        elif not (change := _change(text)) or helps(result, replanned, change):
            kept.append(text)
    if pinned and result["verdict"] == "does_not_fit":
        kept = [*_of_pinned(result, replanned, batched), *kept]
    fallback = "A smaller checkpoint (a stronger quantization) or more GPUs are needed."
    return kept or ([fallback] if given else [])


def _change(text: str) -> dict[str, Any]:
    for pattern, option, kind in _CHANGES:
        if found := pattern.search(text):
            return {option: kind(found[1])}
    return {}


def _more_gpus(result: Mapping[str, Any], replanned: Planner, estimate: int) -> Iterator[str]:
    """The smallest number of GPUs like these that holds the model, with the widest split over them that does."""
    world = result["tensor_parallel"] * result["pipeline_parallel"]
    smallest = min(result["ranks"]["memory_bytes"])
    alike = {"memory_bytes": smallest, "memory_available_bytes": None, "hosts": None, "layer_partition": None}
    for total in range(world + 1, estimate + _TRIED_BEYOND):
        for tensor in (size for size in range(total, 0, -1) if total % size == 0):
            split = {"tensor_parallel": tensor, "pipeline_parallel": total // tensor}
            if helps(result, replanned, {**alike, **split}):
                words = " with ".join(f"{name}={size}" for name, size in split.items() if size > 1)
                yield f"{total} GPUs of {smallest / GIB:.1f} GiB would hold it ({words})."
                return


def helps(result: Mapping[str, Any], replanned: Planner, change: Mapping[str, Any]) -> bool:
    """Whether a model that does not fit does so then, and one that may not start in every boot does."""
    try:
        replan = replanned(change)
    except SizingError:
        return False
    if result["verdict"] == "does_not_fit":
        # a drafter that is not known leaves the verdict open at best
        return bool(replan["verdict"] != "does_not_fit" and replan["request_bytes_per_rank"] is not None)
    return bool(replan["verdict"] != "does_not_fit" and not any("boots differ" in text for text in replan["reasons"]))


def _of_pinned(result: Mapping[str, Any], replanned: Planner, batched: int) -> Iterator[str]:
    """Of a cache of fixed size: a size that holds one request, and a step with which one takes no more."""
    asked = result["request_bytes_per_rank"]
    tenths = -(-int(asked) * 10 // GIB)
    if helps(result, replanned, {"kv_cache_memory_bytes": tenths * GIB // 10}):
        yield f"kv_cache_memory_bytes={tenths * GIB // 10} ({tenths / 10:.1f} GiB) fits."
    for step in _STEPS:
        change = {"max_num_batched_tokens": step}
        if step < batched and helps(result, replanned, change):
            needed = replanned(change)["request_bytes_per_rank"] / GIB
            yield f"max_num_batched_tokens={step} fits: one sequence then takes {needed:.1f} GiB of cache."
            return
