# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a prompt takes to be read: what it computes, what its steps read, and what the split sends over RoCE.

A prompt is read in steps of ``max_num_batched_tokens``. A token takes::

    the longer of (operations / rate, weights / bandwidth / tokens of a step) + layers x time of a layer + all-reduces

The figures stand beside measured prompts in tests/truth/prefills.json (docs/planning.md). Stages of a pipeline read
different steps at the same time, so they help from the second step on; no measured row has them.
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

#: operations per second of a Spark that are reached (as the watchdog's patience has it), and by models whose
#: attention asks an index; this one and LAYER were chosen with all of the rows in view
RATE, SPARSE_RATE = 40e12, 24e12
#: seconds of a token in a layer beside its matrices
LAYER = 1e-6
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
    operations = 2 * _params(shape) + 4 * shape.heads * shape.head_dim * positions
    tokens = min(batched, prompt)
    computed = operations / (step.tensor * (RATE if chosen is None else SPARSE_RATE))
    read = (reads.always + reads.experts) / (step.tensor * step.bandwidth * REACHED) / tokens
    token = max(computed, read) + layers_of(shape) * LAYER
    # a ring sends each token's state of 16 bits nearly twice, after the attention and after the feed-forward part
    token += 2 * layers_of(shape) * shape.hidden * 2 * 2 * (step.tensor - 1) / step.tensor / LINK
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
