# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which split serves best what the inventory wants."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import goal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serving import (
    ServingError,
    plan_serving,
    plan_whole,
)

from tests.unit.planned_cluster import planned


def served(hosts: str, topology: str = "switch", **variables: Any) -> dict[str, Any]:
    first, cluster, _fabric, nodes = planned(list(hosts), topology, **variables)
    return plan_serving(first, cluster, nodes, ".")


def split(serving: dict[str, Any]) -> tuple[int, int]:
    return serving["tensor_parallel"], serving["pipeline_parallel"]


def test_every_split_of_the_gpus_is_looked_at() -> None:
    assert goal.splits(6) == [(6, 1), (3, 2), (2, 3), (1, 6)]


@pytest.mark.parametrize(("wanted", "found"), [("latency", (4, 1)), ("throughput", (1, 4)), ("context", (1, 4))])
def test_a_latent_cache_is_the_same_on_each_rank_so_goals_differ(wanted: str, found: tuple[int, int]) -> None:
    """GLM-5.2 keeps one latent for all heads: TP copies it to each rank, PP divides the layers that have one."""
    serving = served("abcd", vllm_serve_recipe="glm-5.2-int4", vllm_serve_goal=wanted)
    assert split(serving) == found
    assert serving["why"].startswith(f"TP={found[0]} PP={found[1]}: vllm_serve_goal={wanted}: ")
    others = serving["goal"]["others"]
    assert [line.partition(" would give ")[0] for line in others[:2]] == [
        f"TP={tensor} PP={pipeline}" for tensor, pipeline in serving["goal"]["next"]
    ]
    assert "of one stream" in others[0]
    assert "a context of up to" in others[0]


def test_the_best_has_the_best_number_of_what_was_wanted() -> None:
    found = {wanted: served("abcd", vllm_serve_recipe="glm-5.2-int4", vllm_serve_goal=wanted) for wanted in goal.GOALS}
    memory = {wanted: serving["memory"] for wanted, serving in found.items()}
    one = {wanted: sizes["tokens_per_second"]["any"][0] for wanted, sizes in memory.items()}
    assert one["latency"] == max(one.values()) > one["throughput"]
    assert memory["context"]["max_tokens"] == max(sizes["max_tokens"] for sizes in memory.values())


def test_a_model_that_one_host_holds_has_replicas_to_compare_with() -> None:
    given = {"vllm_serve_recipe": "gpt-oss-120b", "topology": "direct"}
    serving = served("ab", vllm_serve_goal="throughput", **given)
    [line] = [line for line in serving["goal"]["others"] if "replica" in line]
    assert line.startswith("a replica on each host would give 2 x ")
    assert "which is more for many streams (serving_groups, docs/groups.md)" in line
    [line] = [line for line in served("ab", vllm_serve_goal="latency", **given)["goal"]["others"] if "replica" in line]
    assert "which is more" not in line


def test_the_speed_of_tp_over_tcp_is_not_planned_and_so_not_compared() -> None:
    serving = served("ab", "lan", vllm_serve_recipe="qwen3.6-27b-fp8", vllm_serve_goal="latency")
    assert split(serving) == (1, 2)
    assert (
        "TP=2 PP=1 is not compared: over TCP each token waits for the network twice a layer"
        in (serving["goal"]["others"])
    )
    # the context is one of memory
    assert served("ab", "lan", vllm_serve_recipe="qwen3.6-27b-fp8", vllm_serve_goal="context")["goal"]


@pytest.mark.parametrize(
    "own", [{"vllm_serve_tensor_parallel_size": 1}, {"vllm_serve_pipeline_parallel_size": 2}, {"vllm_serve_goal": ""}]
)
def test_a_split_of_the_inventory_goes_before_the_goal(own: dict[str, Any]) -> None:
    given = {"vllm_serve_goal": "latency", "vllm_serve_recipe": "qwen3.6-27b-fp8", **own}
    serving = served("ab", "direct", **given)
    assert serving["goal"] == {}
    assert "vllm_serve_goal" not in serving["why"]
    if own != {"vllm_serve_goal": ""}:
        assert split(serving) == (1, 2)


def test_one_gpu_leaves_nothing_to_choose() -> None:
    assert served("a", "lan", vllm_serve_recipe="qwen3.6-27b-fp8", vllm_serve_goal="latency")["goal"] == {}


def test_what_cannot_be_is_said_in_one_sentence() -> None:
    serving = served("abc", vllm_serve_recipe="qwen3.5-397b-a17b-nvfp4", vllm_serve_goal="throughput")
    assert split(serving) == (1, 3)
    [line] = serving["goal"]["others"]
    assert line.startswith("TP=3 PP=1 cannot be: 32 attention heads do not divide by 3; ")
    assert "Possible here" not in line


@pytest.mark.parametrize("wanted", goal.GOALS)
def test_a_goal_that_no_split_meets_names_variable_hosts_and_fix(wanted: str) -> None:
    # nobody knows the shape of a model that lies on the hosts alone
    first, cluster, _fabric, nodes = planned(["a", "b"], vllm_serve_model="/srv/mine", vllm_serve_goal=wanted)
    with pytest.raises(RecipeError, match=rf"^vllm_serve_goal={wanted} cannot be met on a, b: no split can be planned"):
        plan_serving(first, cluster, nodes, ".")
    given = {"vllm_serve_recipe": "qwen3.6-27b-fp8", "vllm_serve_goal": wanted}
    first, cluster, _fabric, nodes = planned(["a", "b"], "direct", **given)
    small = {host: {**node, "mem_total_bytes": 20 << 30} for host, node in nodes.items()}
    with pytest.raises(ServingError, match=rf"^vllm_serve_goal={wanted} cannot be met on a, b: .*Name the split"):
        plan_whole({**first, "inventory_dir": "."}, cluster, small)
