# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens per second of one stream: what a step reads, what its split sends over the fabric, and what a drafter saves.

One step takes::

    layers x (time of a layer + two all-reduces where a layer is split) + bytes that it reads / bandwidth

and gives one token, or with a drafter as many as are accepted. The figures are chosen by the rows of
tests/truth/speeds.json that are marked *basis*; the others tell how often the range holds (docs/planning.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import Reads

#: part of the memory's bandwidth that is reached
REACHED = 0.90
#: seconds of a layer beside what it reads, and further ones without CUDA graphs
LAYER, EAGER = 3e-4, 3e-4
#: seconds of an all-reduce of one token over RoCE: of two ranks, of more (measured between Sparks: 25 to 95 us)
PAIR, MORE = 4e-5, 6e-5
#: seconds to pass a token's state to the next pipeline stage
HOP = 1e-4
#: how likely a drafted token is accepted, by what is written
ACCEPTED = {"prose": 0.60, "code": 0.65, "structured": 0.90}
#: of a step without a drafter every text takes the same
ANY = "any"
#: upper over lower end of a range
SPREAD = 2.0
#: numbers of streams for which their tokens per second together are planned
STREAMS = (4, 16, 64)
#: bytes per second of the link between two hosts, by design: 200 Gbit/s
LINK = 25e9


@dataclass(frozen=True)
class SpeedStep:
    """How one step of one stream is run."""

    tensor: int
    pipeline: int
    bandwidth: float  # bytes per second of one GPU
    drafted: int = 0
    eager: bool = False

    def seconds(self, shape: Shape, reads: Reads, streams: int = 1) -> float:
        tokens = streams * (1 + self.drafted)
        # each further token may need experts that no other one of the step does
        experts = reads.experts * (1 - (1 - reads.share) ** tokens)
        taken = layers_of(shape) * (LAYER + (EAGER if self.eager else 0.0))
        taken += (reads.always + experts) / (self.tensor * self.bandwidth * REACHED)
        if self.tensor > 1:
            sent = (streams - 1) * shape.hidden * 2 / LINK
            taken += 2 * layers_of(shape) * ((PAIR if self.tensor == 2 else MORE) + sent)
        return taken + (self.pipeline - 1) * HOP


def layers_of(shape: Shape) -> float:
    """A layer is a part that mixes tokens and one that does not; some models count each of them as one."""
    return sum(
        0.5 * bool(layer.attention_params or layer.cache != "none")
        + 0.5 * bool(layer.dense_params or layer.expert_params)
        for layer in shape.layers
    )


def tokens_per_second(shape: Shape, reads: Reads, step: SpeedStep, allowed: float) -> dict[str, list[float]]:
    """Least and most tokens per second of one stream, by kind of text where something drafts.

    ``allowed``: what the memory's bandwidth allows, as the plan says it beside the range.
    """
    taken = step.seconds(shape, reads)
    if not step.drafted:
        least, most = spread(1 / taken)
        # no faster than the memory, by both ways to count what is read
        bound = step.tensor * step.bandwidth / (reads.always + reads.experts * reads.share)
        return {ANY: [least, max(least, min(most, allowed, round(bound, 2)))]}
    return {
        kind: spread((1 - chance ** (step.drafted + 1)) / (1 - chance) / taken) for kind, chance in ACCEPTED.items()
    }


def of_streams(shape: Shape, reads: Reads, step: SpeedStep) -> dict[int, list[float]]:
    """Least and most tokens per second of so many streams together, of prose where something drafts.

    Stages of a pipeline work at the same time, each on its part of the streams. Reading a long prompt is not counted.
    """
    chance = ACCEPTED["prose"]
    given = (1 - chance ** (step.drafted + 1)) / (1 - chance) if step.drafted else 1.0
    return {
        streams: spread(streams * given / step.seconds(shape, reads, math.ceil(streams / step.pipeline)))
        for streams in STREAMS
    }


def spread(middle: float) -> list[float]:
    """Least and most around what is expected."""
    half = SPREAD**0.5
    return [round(middle / half, 2), round(middle * half, 2)]
