# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a prompt takes to be read: what it computes, what its steps read, and what the split sends over RoCE.

A prompt is read in steps of ``max_num_batched_tokens``. A token takes::

    the longer of (operations / rate, weights / bandwidth / tokens of a step) + passes over its states + all-reduces

Norms, residuals and quantization pass over a token's state in each layer, on every rank the whole of it, and over each
of the streams that hyper-connections keep side by side. So a wider split helps such a model little: its passes stay.

The figures are chosen by the rows of tests/truth/prefills.json that are marked *basis*; the others tell how often the
range holds (docs/planning.md). Stages of a pipeline read different steps at the same time, so they help from the second
step on; no measured row has them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import FULL, WINDOW
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.speed import (
    LINK,
    REACHED,
    SpeedStep,
    layers_of,
    spread,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import Reads

#: operations per second of a Spark that are reached: by experts, of which each gets a few tokens of a step, and by the
#: matrices of a dense model in 8 or 4 bits; no measured row has a dense model in 16 bits or with integer weights
RATE, DENSE_RATE = 40e12, 140e12
_DENSE_RATE_OF = ("fp8", "nvfp4", "mxfp4")
#: how often a layer reads or writes a token's state beside its matrices
PASSES = 50
#: positions that sparse attention reads, where config.json does not say it
SELECTED = 2048
#: prompts, in tokens, of which it is planned how long they take
PROMPTS = (2048, 8192, 32768, 131072)


def prefill_flops(shape: Shape, length: int) -> int:
    """Operations that the last prompt token of a whole context costs: the dearest one that a step can hold.

    Two (multiply, add) for each parameter that the token passes, and four for each position that it attends to and
    each element of the heads (scores and values). The embedding and the head of the vocabulary are looked up, or
    computed for one token of the prompt.
    """
    positions = length * shape.count(FULL)
    positions += sum(min(layer.window, length) for layer in shape.layers if layer.cache == WINDOW)
    return 2 * _params(shape) + 4 * shape.heads * shape.head_dim * positions


def _params(shape: Shape) -> int:
    return sum(
        layer.attention_params
        + layer.kv_params
        + layer.dense_params
        + layer.active_expert_params
        + layer.replicated_params
        + layer.whole_params
        for layer in shape.layers
    )


def selected(text: Mapping[str, Any], shape: Shape) -> int | None:
    """How many positions a token attends to where an index chooses them; None of attention to all of them."""
    for name in ("index_topk", "indexer_budget"):
        value = text.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    sparse = any(layer.sparse or layer.ratio or layer.index_dim for layer in shape.layers)
    return SELECTED if sparse else None


def seconds(shape: Shape, reads: Reads, step: SpeedStep, batched: int, prompt: int, chosen: int | None) -> float:
    """What a prompt of so many tokens takes, of one stream and nothing cached; ``chosen`` as `selected` gives it."""
    # a token attends to half of the prompt on average
    half = prompt // 2
    positions = shape.count(FULL) * (half if chosen is None else min(chosen, half))
    positions += sum(min(layer.window, half) for layer in shape.layers if layer.cache == WINDOW)
    tokens = min(batched, prompt)
    dense = not shape.experts and shape.quantization in _DENSE_RATE_OF
    computed = (
        2 * _params(shape) / (DENSE_RATE if dense else RATE) + 4 * shape.heads * shape.head_dim * positions / RATE
    )
    read = (reads.always + reads.experts) / (step.bandwidth * REACHED) / tokens
    state = layers_of(shape) * shape.hidden * 2  # of 16 bits
    token = max(computed, read) / step.tensor + PASSES * state * shape.streams / step.bandwidth
    # a ring sends each token's state nearly twice, after the attention and after the feed-forward part
    token += 2 * state * 2 * (step.tensor - 1) / step.tensor / LINK
    steps = math.ceil(prompt / tokens)
    return token * prompt * (steps + step.pipeline - 1) / (steps * step.pipeline)


def prompts(
    shape: Shape, reads: Reads, step: SpeedStep, batched: int, length: int, chosen: int | None
) -> dict[int, dict[str, list[float]]]:
    """By tokens of the prompt: tokens per second, and seconds to the first token of the answer, least and most of each.

    Only prompts that fit into ``length``.
    """
    speeds: dict[int, dict[str, list[float]]] = {}
    for prompt in PROMPTS:
        if prompt < length:
            taken = seconds(shape, reads, step, batched, prompt, chosen)
            speeds[prompt] = {
                "tokens_per_second": spread(prompt / taken),
                "seconds_to_first_token": spread(taken + step.seconds(shape, reads)),
            }
    return speeds
