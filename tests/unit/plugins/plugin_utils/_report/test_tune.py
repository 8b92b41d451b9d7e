# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which splits are measured, and which of them is kept."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import tune
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.bench import BenchError

CHOICE = {
    **{"tensor": 4, "pipeline": 1, "next": [(2, 2)], "uncompared": [(1, 4)]},
    "others": ["TP=2 PP=2 would give 9 tokens/s"],
}


def rows(one: float, many: float) -> list[dict[str, Any]]:
    return [{"streams": 1, "throughput": one}, {"streams": 1, "throughput": one}, {"streams": 8, "throughput": many}]


@pytest.mark.parametrize(
    ("serves", "most", "found"),
    [
        ((1, 4), 3, [(1, 4), (4, 1), (2, 2)]),
        ((1, 4), 2, [(1, 4), (4, 1)]),
        ((4, 1), 3, [(4, 1), (2, 2), (1, 4)]),
        # named by the inventory, and not among the plan's
        ((2, 1), 3, [(2, 1), (4, 1), (2, 2)]),
    ],
)
def test_what_serves_comes_first_and_then_the_best_of_the_plan(
    serves: tuple[int, int], most: int, found: list[tuple[int, int]]
) -> None:
    assert tune.splits(CHOICE, serves, most) == found


def test_the_split_that_serves_is_known_by_its_options() -> None:
    assert tune.used({"option tensor-parallel-size": "3", "vllm of a": "0.32"}) == (3, 1)
    assert tune.used({"option pipeline-parallel-size": "2"}) == (1, 2)


@pytest.mark.parametrize(
    ("choice", "most", "words"),
    [
        (CHOICE, 1, r"^tune_splits: 1: two or three splits are measured\. Give 2 or 3"),
        (CHOICE, 4, "^tune_splits: 4: "),
        ({}, 3, r"^vllm_serve_tensor_parallel_size and .*there is one GPU alone.*Leave them out of -e"),
        ({**CHOICE, "next": [], "uncompared": []}, 3, r"TP=4 PP=1 serves, and these hosts allow no other .* TP=2 PP=2"),
    ],
)
def test_nothing_to_measure_says_why(choice: dict[str, Any], most: int, words: str) -> None:
    with pytest.raises(BenchError, match=words):
        tune.splits(choice, (4, 1), most)


@pytest.mark.parametrize(("goal", "found"), [("latency", 1), ("throughput", 2)])
def test_the_best_is_the_best_by_what_was_wanted(goal: str, found: int) -> None:
    tried = [
        {"split": [1, 4], "rows": rows(10, 40), "kept": "first"},
        {"split": [4, 1], "rows": rows(20, 41)},
        {"split": [2, 2], "rows": rows(15, 60)},
    ]
    assert tune.best(goal, tried) == found
    text = tune.text(goal, tried)
    assert text.count(", and serves") == 1
    tensor, pipeline = tried[found]["split"]
    assert f"TP={tensor} PP={pipeline}: {20 if found == 1 else 60} tokens/s of " in text
    sizes = f"vllm_serve_tensor_parallel_size: {tensor}, vllm_serve_pipeline_parallel_size: {pipeline}"
    assert f"the next site.yml serves TP=1 PP=4 again: {sizes}\n" in text
    assert text.endswith("Back to TP=1 PP=4: rollback.yml -e roll_back_to=first")


def test_two_runs_of_one_speed_and_what_does_not_serve_change_nothing() -> None:
    tried = [
        {"split": [1, 2], "rows": rows(10, 40), "kept": "first"},
        {"split": [2, 1], "rows": rows(10.2, 40)},
        {"split": [1, 1], "failed": "it does not start"},
    ]
    assert tune.best("latency", tried) == 0
    text = tune.text("latency", tried)
    assert "TP=1 PP=1: left, because of: it does not start\n" in text
    assert "Nothing is to be changed: no other split is 1.03 times as fast" in text


def test_what_was_not_measured_is_left_and_stops_nothing() -> None:
    tried = [{"split": [1, 2], "rows": rows(10, 40), "kept": "first"}, {"split": [2, 1], "rows": [{"streams": 1}]}]
    assert tune.best("latency", tried) == 0
    assert "TP=2 PP=1: left, because of: no speed was measured\n" in tune.text("latency", tried)


@pytest.mark.parametrize(("goal", "refused"), [("latency", True), ("throughput", False)])
def test_streams_that_say_nothing_of_the_goal_are_refused(goal: str, refused: bool) -> None:
    """Before the first split is changed, and not when the second one already serves."""
    expected = pytest.raises(BenchError, match=r"^bench_streams: latency is ") if refused else contextlib.nullcontext()
    with expected:
        tune.check(goal, [([128], [8, 64])])
    tune.check(goal, [([128], [1]), ([2048], [8])])
