# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of a rank beside weights and cache: what is expected, and how much more some boots take.

The engine measures it at each start: what free memory fell by, the peak of one step with the most tokens, and the
graphs that it will capture. Which part each argument has follows from its source; how large a part is, from measured
starts (docs/developers.md). On unified memory the host's own part counts too, and two boots of the same host differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.layers import STATE, Layer
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import dtype_bytes

GIB = 1024**3
#: CUDA context, libraries' workspaces and the growth of the process itself.
RUNTIME = int(2.0 * GIB)
#: NCCL's buffers and those of a custom all-reduce, with more than one rank.
LINKS = int(1.0 * GIB)
#: Graphs: what the engine estimates before it captures any, for each size up to the sequences that run at once.
GRAPHS = int(1.0 * GIB)
GRAPH_SEQUENCES = 256
#: Copies of the widest tensors of a layer that live at once.
LIVE = 2.0
#: Copies of the logits of all sequences, in 32 bits: raw, scaled, sorted, probabilities.
LOGITS = 4
#: Experts kept whole on a rank: buffers of every expert's tokens.
EXPERTS = int(7.0 * GIB)
#: Loaders that stage weights outside of what the engine frees afterwards.
LOADERS = {"instanttensor": int(4.4 * GIB)}
#: How far a boot may stray from what is expected, as a share of the cache.
SPREAD = 0.12
#: ... and at least, where the cache is small.
SPREAD_LEAST = GIB


def spread(cache: int) -> int:
    """What a boot may leave less than the expected cache."""
    return max(int(SPREAD * cache), SPREAD_LEAST)


@dataclass(frozen=True)
class Step:
    """The largest step of the engine, and how it is run."""

    batched: int
    sequences: int
    eager: bool = False
    drafted: int = 0
    vision: bool = False  # the vision tower is loaded
    expert_parallel: bool = False
    load_format: str = "auto"


def _attention_width(layer: Layer, shape: Shape, tensor: int) -> int:
    if layer.cache == STATE:
        # mixed queries, keys, values; convolved, split; gate and output
        return (4 * layer.conv_width + 2 * shape.hidden) // tensor
    heads = shape.heads * max(layer.key_dim if not layer.latent else shape.head_dim, 1)
    keys = 2 * layer.kv_heads * layer.key_dim
    return (3 * heads + keys) // tensor + layer.key_dim


def _feed_forward_width(layer: Layer, shape: Shape, tensor: int, whole: bool) -> int:
    if layer.expert_params:
        chosen = max(shape.experts_per_token, 1)
        return chosen * (shape.hidden + 3 * shape.moe_intermediate // (1 if whole else tensor))
    return 3 * shape.intermediate // tensor


def token_bytes(shape: Shape, tensor: int, expert_parallel: bool = False) -> int:
    """Bytes of activations for each token of a step, at its peak."""
    width = max(dtype_bytes("dtype", shape.dtype), 2)
    widest = max(
        (
            max(_attention_width(layer, shape, tensor), _feed_forward_width(layer, shape, tensor, expert_parallel))
            for layer in shape.layers
        ),
        default=0,
    )
    return int(width * (4 * shape.hidden * shape.streams + LIVE * widest))


def overhead_parts(shape: Shape, tensor: int, world: int, step: Step) -> dict[str, int]:
    """What is expected beside weights and cache on each rank, by cause."""
    rows = min(step.sequences, step.batched)
    encoder = 4 * shape.vision_width * 2 * 10 if step.vision else 0
    parts = {
        "runtime": RUNTIME + (LINKS if world > 1 else 0),
        "activations": step.batched * token_bytes(shape, tensor, step.expert_parallel),
        "encoder": step.batched * encoder,
        "logits": rows * shape.vocab * 4 * LOGITS,
        "graphs": 0 if step.eager else GRAPHS * min(rows, GRAPH_SEQUENCES) // GRAPH_SEQUENCES,
        "experts": EXPERTS if step.expert_parallel and shape.experts else 0,
        "loader": LOADERS.get(step.load_format, 0),
    }
    return {cause: size for cause, size in parts.items() if size}
