# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import outlook

GIB = 2**30
MEMORY = {
    "verdict": "fits",
    "reasons": ["Why."],
    "suggestions": [],
    "weights_bytes": 40 * GIB,
    "weights_bytes_per_rank": 20 * GIB,
    "ranks": {"kv_cache_bytes": [80 * GIB, 79 * GIB], "kv_cache_bytes_at_least": [70 * GIB, 69 * GIB]},
    "max_model_len": 131072,
    "max_concurrent_sequences": 6.5,
    "decode_tokens_per_second_bound": 50.0,
    "tokens_per_second": {"any": [20.0, 40.0]},
    "traffic": {"bytes_per_token": 655360, "all_reduces": 64},
}
PLAN = {"served_model_name": "m", "tensor_parallel": 2, "pipeline_parallel": 1, "memory": MEMORY}


def test_the_verdict_comes_with_its_numbers() -> None:
    assert outlook.line(PLAN) == (
        "m on 2 GPUs fits; weights 40.0 GiB, 20.0 GiB on the fullest GPU; about 79.0 GiB of cache on each, "
        "at least 69.0 GiB; "
        "6 requests of 131,072 tokens at once; about 20 to 40 tokens/s for one stream (memory bandwidth allows 50)"
    )


def test_how_long_a_prompt_lets_wait_is_said() -> None:
    prompts = {
        2048: {"tokens_per_second": [4000.0, 8000.0], "seconds_to_first_token": [0.26, 0.52]},
        8192: {"tokens_per_second": [3500.0, 7000.0], "seconds_to_first_token": [1.2, 2.4]},
        32768: {"tokens_per_second": [2500.0, 5000.0], "seconds_to_first_token": [6.6, 13.2]},
    }
    memory = {**MEMORY, "prompts": prompts}
    assert outlook.line({**PLAN, "memory": memory}).endswith(
        "(memory bandwidth allows 50); a prompt of 8,192 tokens waits about 1.2 to 2.4 s for its answer "
        "(3500 to 7000 tokens/s)"
    )
    # what fits into a short context
    short = {**MEMORY, "prompts": {2048: prompts[2048]}}
    assert "a prompt of 2,048 tokens waits about 0.26 to 0.52 s" in outlook.line({**PLAN, "memory": short})
    assert outlook.line({**PLAN, "memory": {**MEMORY, "prompts": {}}}) == outlook.line(PLAN)
    # over TCP each token of the prompt waits as well
    assert "a prompt of" not in outlook.line({**PLAN, "memory": memory}, over_tcp=True)


def test_a_model_with_several_names_is_called_by_the_first() -> None:
    assert outlook.line({**PLAN, "served_model_name": ["m", "default"]}) == outlook.line(PLAN)


def test_a_tight_one_says_why() -> None:
    line = outlook.line({**PLAN, "memory": {**MEMORY, "verdict": "tight"}})
    assert line.startswith("m on 2 GPUs fits, but it is tight; ")
    assert line.endswith("; Why")


def test_what_is_not_known_is_said() -> None:
    assert "nobody checked whether it fits" in outlook.line({**PLAN, "memory": None})
    nothing = {"kv_cache_bytes": [None, None], "kv_cache_bytes_at_least": [None, None]}
    bare = {**MEMORY, "ranks": nothing, "max_concurrent_sequences": None, "verdict": "unknown"}
    line = outlook.line({**PLAN, "memory": {**bare, "decode_tokens_per_second_bound": None}})
    assert line == (
        "m on 2 GPUs sizes only, the hosts' memory is not known; weights 40.0 GiB, 20.0 GiB on the fullest GPU"
    )


def test_the_ends_of_a_slow_range_differ() -> None:
    for ends, words in (([0.6, 0.9], "0.6 to 0.9"), ([0.92, 1.38], "0.92 to 1.4"), ([8.4, 12.6], "8.4 to 13")):
        memory = {**MEMORY, "tokens_per_second": {"any": ends}}
        assert f"about {words} tokens/s" in outlook.line({**PLAN, "memory": memory})


@pytest.mark.parametrize(
    ("number", "at_least", "at_most"),
    [
        *[(0.834, "0.83", "0.84"), (1.38, "1.3", "1.4"), (7.0, "7", "7"), (9.96, "9.9", "10"), (0.0, "0", "0")],
        *[(12.5, "12", "13"), (20.0, "20", "20"), (119.2, "119", "120"), (3500.0, "3500", "3500")],
    ],
)
def test_what_is_promised_is_rounded_down_and_what_is_allowed_up(number: float, at_least: str, at_most: str) -> None:
    assert (outlook.least(number), outlook.most(number)) == (at_least, at_most)
    assert outlook.words([number, number]) == f"{at_least} to {at_most}"


def test_one_bound_reads_alike_wherever_it_stands() -> None:
    """The range of a plan that the memory limits ends with what the memory allows."""
    memory = {**MEMORY, "tokens_per_second": {"any": [6.6, 12.5]}, "decode_tokens_per_second_bound": 12.5}
    assert "about 6.6 to 13 tokens/s for one stream (memory bandwidth allows 13)" in outlook.line(
        {**PLAN, "memory": memory}
    )


def test_requests_at_once_are_whole_ones() -> None:
    assert outlook.at_once(12.97, 32768) == "12 requests of 32,768 tokens at once"
    assert outlook.at_once(1.4, 2048) == "1 request of 2,048 tokens at once"


def test_with_a_drafter_the_speed_depends_on_the_text() -> None:
    speeds = {"prose": [15.0, 30.0], "code": [18.0, 36.0], "structured": [35.0, 70.0]}
    memory = {**MEMORY, "tokens_per_second": speeds}
    assert "about 15 to 30 tokens/s of prose and 35 to 70 of structured text" in outlook.line(
        {**PLAN, "memory": memory}
    )
    assert outlook.speed(memory) == (15.0, 30.0)


def test_a_pinned_cache_is_what_it_is() -> None:
    pinned = {"kv_cache_bytes": [8 * GIB], "kv_cache_bytes_at_least": [8 * GIB]}
    assert "; about 8.0 GiB of cache on each; " in outlook.line({**PLAN, "memory": {**MEMORY, "ranks": pinned}})


def test_over_tcp_the_network_says_what_is_allowed() -> None:
    line = outlook.line(PLAN, over_tcp=True)
    assert "about 20 to 40 tokens/s" not in line
    # 1 / (1 / 50 + 64 x 65 us), and 8,192 x 655,360 bytes / 1.25 GB/s
    assert (
        "with TP over TCP a token is summed 64 times, 0.66 MB from each rank: memory and network allow 42 tokens/s "
        "for one stream, and 8,192 tokens of a prompt take 4.3 s of network alone at 10 Gbit/s; what is reached is "
        "not estimated (an 8B model kept 69 % of one"
    ) in line
