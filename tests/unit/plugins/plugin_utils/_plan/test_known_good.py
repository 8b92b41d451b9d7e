# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe was served with, and hosts that have something else."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.known_good import differs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError, validated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import plan_serving

from tests.unit.planned_cluster import planned
from tests.unit.plugins.plugin_utils._plan import minimal_recipe

SET = {"driver": "580.159.03", "os": "Ubuntu 24.04.4", "date": "2026-08-31", "source": "https://example.org/r"}
SAME = {"driver": "580.159.03", "kernel": "6.17.0-1008-nvidia", "os": {"pretty": "Ubuntu 24.04.4 LTS"}}


def test_hosts_that_have_something_else_are_named_with_what_they_have() -> None:
    nodes = {"a": SAME, "b": {**SAME, "driver": "590.44"}, "c": {**SAME, "driver": "590.44"}, "d": {"driver": ""}}
    assert list(differs(SET, "r", nodes)) == [
        "b, c: NVIDIA driver 590.44, and recipe r was served with 580.159.03 (2026-08-31, https://example.org/r)"
    ]
    system = {"a": {**SAME, "os": {"pretty": "Ubuntu 24.04.3 LTS"}}}
    assert [line.partition(" (")[0] for line in differs(SET, "r", system)] == [
        "a: operating system Ubuntu 24.04.3 LTS, and recipe r was served with Ubuntu 24.04.4"
    ]


def test_a_series_names_all_its_releases_and_a_note_is_told() -> None:
    series = {**SET, "driver": "580", "note": "590 has a deadlock"}
    assert list(differs(series, "r", {"a": SAME})) == []
    [line] = differs(series, "r", {"a": {**SAME, "driver": "5801.1"}})
    assert line.endswith("; 590 has a deadlock)")
    assert list(differs({}, "r", {"a": SAME})) == []


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ([], "is not a dictionary"),
        ({**SET, "gpu": "GB10"}, r"known_good\.gpu is unknown"),
        ({"driver": "580"}, "lacks date, source"),
        ({**SET, "source": "a forum"}, "is no address"),
        ({**SET, "driver": 580.1}, "is no version. Write it in quotes"),
        ({**SET, "kernel": "6.17\nx"}, "is no version"),
    ],
)
def test_a_set_without_its_source_is_refused(known: Any, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        validated({**minimal_recipe.MINIMAL, "known_good": known}, "r")
    assert validated({**minimal_recipe.MINIMAL, "known_good": SET}, "r")["known_good"] == SET


def test_a_run_tells_and_refuses_nothing() -> None:
    first, cluster, _fabric, nodes = planned(["a"], "lan", vllm_serve_recipe="qwen3.6-35b-a3b-nvfp4")
    assert plan_serving(first, cluster, nodes, ".")["told"] == []
    nodes = {"a": {**nodes["a"], **SAME, "driver": "590.44"}}
    [line] = plan_serving(first, cluster, nodes, ".")["told"]
    assert line.startswith("a: NVIDIA driver 590.44, and recipe qwen3.6-35b-a3b-nvfp4 was served with 580.159.03 (")
