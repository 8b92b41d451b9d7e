# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a split sends for each token, and what that costs over TCP, where no range of tokens per second is planned.

Tensor parallelism sums a token's state over all ranks after the attention and after the feed-forward part of a layer. A
ring of ranks sends it nearly twice for that, by its neighbours alone, so a ring of cables carries what a switch does.
"""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import Shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.speed import layers_of

#: seconds of an all-reduce of one token over sockets: of two ranks, of more. By what a token of an 8B model with 36
#: layers took longer than its share of the memory: (1/139 - 1/404) / 72 and (1/83 - 1/808) / 72. It was measured inside
#: one host, so two hosts take no less.
SOCKETS_PAIR, SOCKETS_MORE = 6.5e-5, 1.5e-4
#: bytes per second of an ordinary Ethernet between hosts: 10 Gbit/s, as a Spark's own port has
ETHERNET = 1.25e9


def traffic(shape: Shape, tensor: int, pipeline: int) -> dict[str, int]:
    """Bytes that a rank sends for one token of a prompt or an answer, and how often it waits for the others."""
    sums = int(2 * layers_of(shape) / pipeline) if tensor > 1 else 0
    state = shape.hidden * 2  # of 16 bits
    hop = state if pipeline > 1 else 0
    return {"bytes_per_token": sums * state * 2 * (tensor - 1) // tensor + hop, "all_reduces": sums * pipeline}


def over_tcp(sent: dict[str, int], tensor: int, bound: float, prompt: int) -> dict[str, Any]:
    """At most so many tokens per second of one stream, and seconds that a prompt spends on an Ethernet alone.

    ``bound`` is what the memory allows. Without a drafter, which saves steps and sends more in each.
    """
    waits = sent["all_reduces"] * (SOCKETS_PAIR if tensor == 2 else SOCKETS_MORE)
    return {
        "tokens_per_second": round(1 / (1 / bound + waits), 1),
        "seconds_of_prompt": round(prompt * sent["bytes_per_token"] / ETHERNET, 1),
    }
