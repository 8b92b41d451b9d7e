# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers that a memory plan does not give, because they would rest on what is not known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

#: numbers of the plan, and lists of its ranks, that are of the cache, of the weights, and of the computation
OF_CACHE = (
    *("kv_bytes_per_token", "kv_bytes_per_token_within_window", "kv_bytes_per_token_per_rank", "kv_bytes_of_token"),
    *("window_bytes_of_token", "window_bytes_per_sequence_per_rank", "state_bytes_per_sequence"),
    *("state_bytes_per_sequence_per_rank", "block_bytes_per_rank", "request_bytes_per_rank", "request_bytes"),
    *("max_tokens", "max_concurrent_sequences", "kv_cache_tokens", "kv_cache_bytes", "kv_cache_bytes_at_least"),
)
OF_WEIGHTS = (
    *("weights_bytes", "weights_bytes_per_rank", "active_bytes", "decode_tokens_per_second_bound"),
    *("tokens_per_second", "tokens_per_second_of_streams", "prompts"),
)
#: what nobody can say without the drafter's own cache, which shares the blocks of the model's
OF_DRAFTER = ("max_tokens", "max_concurrent_sequences", "kv_cache_tokens")


def withheld(result: Mapping[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """A plan of what is not known gives no number that rests on a guess."""
    ranks = {name: [None] * len(row) if name in gone else row for name, row in result["ranks"].items()}
    return {**{name: None if name in gone else value for name, value in result.items()}, "ranks": ranks}
