# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One line of what a planned model comes to on its hosts: the verdict with its numbers.

Every page, table and message prints a planned number by the functions at the end, which have one rule: what is promised
is rounded down, what is allowed is rounded up. So one bound reads alike wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import traffic
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.speed import ANY
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import gib
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.groups import names_of

_WORDS = {"fits": "fits", "tight": "fits, but it is tight"}
_UNSIZED = "sizes only, the hosts' memory is not known"
#: measured with an 8B model: 202 tokens/s on one GPU, and over sockets 192 with PP, 139 with TP=2, 83 with TP=4
_TCP = "(an 8B model kept 69 % of one GPU's tokens/s with TP=2, 41 % with TP=4, and 95 % with PP)"
#: tokens of the prompt whose time is told
ORDINARY = 8192
_IN_PART = "is planned without its drafter"


def line(planned: Mapping[str, Any], over_tcp: bool = False) -> str:
    """Of a serving plan; says so where its sizes are not known.

    ``over_tcp``: the parts of a layer are on several hosts that are joined by TCP.
    """
    memory = planned.get("memory")
    names = names_of(planned["served_model_name"], str(planned.get("model") or ""))
    world = planned["tensor_parallel"] * planned["pipeline_parallel"]
    on = f"{names[0]} on {world} GPU{'s' if world > 1 else ''}"
    if not memory:
        return f"{on}: its size is not known here, so nobody checked whether it fits"
    if memory.get("unknown") and memory.get("request_bytes_per_rank") is None:
        return "; ".join(part.rstrip(".") for part in (on, *memory["reasons"], *memory["suggestions"]))
    cache, surely_held = (
        [number for number in memory["ranks"][name] if number is not None]
        for name in ("kv_cache_bytes", "kv_cache_bytes_at_least")
    )
    unsized = _IN_PART if memory.get("unknown") else _UNSIZED
    parts = [
        f"{on} {_WORDS.get(memory['verdict'], unsized)}",
        f"weights {gib(memory['weights_bytes'])}, {gib(memory['weights_bytes_per_rank'])} on the fullest GPU",
    ]
    if cache:
        surely = f", at least {gib(min(surely_held))}" if min(surely_held) < min(cache) else ""
        parts.append(f"about {gib(min(cache))} of cache on each{surely}")
    length, concurrent = memory["max_model_len"], memory.get("max_concurrent_sequences")
    if concurrent is not None:
        parts.append(at_once(concurrent, length))
    bound = memory.get("decode_tokens_per_second_bound")
    if bound and over_tcp:
        parts.append(_over_tcp(memory, planned["tensor_parallel"], bound))
    elif bound:
        parts.append(f"about {_speeds(memory)} for one stream (memory bandwidth allows {most(bound)})")
        parts += _first_token(memory)
    if memory["verdict"] == "tight" or memory.get("unknown"):
        parts += [*memory["reasons"], *memory["suggestions"]]
    return "; ".join(part.rstrip(".") for part in parts)


def _over_tcp(memory: Mapping[str, Any], tensor: int, bound: float) -> str:
    """What the network allows, which is no estimate of what is reached."""
    sent, prompt = memory["traffic"], min(ORDINARY, memory["max_model_len"])
    allowed = traffic.over_tcp(sent, tensor, bound, prompt)
    return (
        f"with TP over TCP a token is summed {sent['all_reduces']} times, {sent['bytes_per_token'] / 1e6:.2g} MB from "
        f"each rank: memory and network allow {most(allowed['tokens_per_second'])} tokens/s for one stream, and "
        f"{prompt:,} tokens of a prompt take {least(allowed['seconds_of_prompt'])} s of network alone at 10 Gbit/s; "
        f"what is reached is not estimated {_TCP}"
    )


def _first_token(memory: Mapping[str, Any]) -> list[str]:
    """How long an answer to an ordinary prompt lets wait, or to the longest one that fits."""
    prompts = memory.get("prompts") or {}
    fit = [length for length in prompts if length <= ORDINARY]
    if not fit:
        return []
    planned = prompts[max(fit)]
    return [
        f"a prompt of {max(fit):,} tokens waits about {words(planned['seconds_to_first_token'])} s for its answer "
        f"({words(planned['tokens_per_second'])} tokens/s)"
    ]


def speed(memory: Mapping[str, Any]) -> tuple[float, float]:
    """Tokens/s that one stream may reach, at least and at most; with a drafter those of prose, which it helps least."""
    found = memory["tokens_per_second"]
    lower, upper = found.get(ANY) or found["prose"]
    return lower, upper


def _speeds(memory: Mapping[str, Any]) -> str:
    found = memory["tokens_per_second"]
    if ANY in found:
        return f"{words(found[ANY])} tokens/s"
    return f"{words(found['prose'])} tokens/s of prose and {words(found['structured'])} of structured text"


def words(range_: Sequence[float]) -> str:
    """``5 to 7.5``: the lower end rounded down, the upper one up."""
    lower, upper = range_
    return f"{least(lower)} to {most(upper)}"


def least(number: float) -> str:
    """A number that is reached at least, rounded down."""
    return _rounded(number, ROUND_FLOOR)


def most(number: float) -> str:
    """A number that is reached at most, such as what memory bandwidth allows, rounded up."""
    return _rounded(number, ROUND_CEILING)


def _rounded(number: float, direction: str) -> str:
    """With two digits that count, and of what has more all before the point: 0.83, 1.4, 13, 119."""
    exact = Decimal(str(number))
    digits = max(0, 1 - exact.adjusted())
    return f"{exact.quantize(Decimal(1).scaleb(-digits), direction).normalize():f}"


def at_once(concurrent: float, length: int) -> str:
    """How many requests of a length the cache holds: whole ones."""
    number = int(concurrent)
    return f"{number} request{'s' if number != 1 else ''} of {length:,} tokens at once"
