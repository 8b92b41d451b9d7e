# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes as plan


def switch(count: int, halves: int = 2) -> dict[str, Any]:
    return {
        f"s{number}": {"links": [{"address": f"10.100.{half * 128}.{number}/17"} for half in range(halves)]}
        for number in range(1, count + 1)
    }


def ring(count: int) -> dict[str, Any]:
    fabric: dict[str, Any] = {f"s{number}": {"links": []} for number in range(1, count + 1)}
    for number in range(count):
        for half in range(2):
            subnet = f"10.100.{2 * number + half}"
            fabric[f"s{number + 1}"]["links"].append({"address": f"{subnet}.1/30"})
            fabric[f"s{(number + 1) % count + 1}"]["links"].append({"address": f"{subnet}.2/30"})
    return fabric


def first_upstreams(found: dict[str, plan.Route]) -> dict[str, str]:
    return {host: route.upstreams[0]["node"] for host, route in found.items() if route.upstreams}


def test_a_chain_over_a_switch_uses_both_halves_and_can_skip_a_host() -> None:
    found = plan.routes(switch(4), ["s2", "s1", "s3", "s4"])
    assert first_upstreams(found) == {"s1": "s2", "s3": "s1", "s4": "s3"}
    assert [entry["node"] for entry in found["s4"].upstreams] == ["s3", "s1", "s2"]
    assert found["s1"].upstreams[0]["paths"] == [["10.100.0.1", "10.100.0.2"], ["10.100.128.1", "10.100.128.2"]]
    assert found["s2"] == plan.Route([], ["s1", "s3", "s4"])
    assert found["s3"].behind == ["s4"]


def test_a_tree_has_two_branches() -> None:
    found = plan.routes(switch(7), [f"s{number}" for number in range(1, 8)], "tree")
    assert first_upstreams(found) == {"s2": "s1", "s3": "s1", "s4": "s2", "s5": "s2", "s6": "s3", "s7": "s3"}
    assert found["s2"].behind == ["s4", "s5"]


@pytest.mark.parametrize("shape", plan.SHAPES)
def test_a_ring_of_three_gets_everything_from_the_first_by_a_cable_each(shape: str) -> None:
    found = plan.routes(ring(3), ["s1", "s2", "s3"], shape)
    # two neighbours of each are all the others there are, so the shape would decide: cables of their own decide instead
    assert first_upstreams(found) == {"s2": "s1", "s3": "s1"}
    assert [entry["node"] for entry in found["s3"].upstreams] == ["s1", "s2"]
    assert all(len(entry["paths"]) == 2 for entry in found["s2"].upstreams)


def test_a_longer_ring_goes_both_ways_round_by_neighbours_alone() -> None:
    found = plan.routes(ring(5), ["s1", "s2", "s3", "s4", "s5"])
    assert first_upstreams(found) == {"s2": "s1", "s5": "s1", "s3": "s2", "s4": "s5"}
    assert {entry["node"] for entry in found["s3"].upstreams} == {"s2", "s4"}


def test_a_host_with_one_half_gets_one_path() -> None:
    fabric = switch(3)
    fabric["s3"]["links"].pop()
    assert plan.routes(fabric, ["s1", "s2", "s3"])["s3"].upstreams[0]["paths"] == [["10.100.0.3", "10.100.0.2"]]


@pytest.mark.parametrize(
    ("fabric", "message"),
    [
        ({**switch(2), "s3": {"links": []}}, "s3 has no link"),
        ({**switch(2), "s3": {"links": [{"address": "10.9.9.1/30"}]}}, "s3: no fabric link leads there from s1"),
    ],
)
def test_what_the_fabric_does_not_reach_is_named(fabric: dict[str, Any], message: str) -> None:
    with pytest.raises(plan.RouteError, match=message):
        plan.routes(fabric, ["s1", "s2", "s3"])


def test_an_unknown_shape() -> None:
    with pytest.raises(plan.RouteError, match="model_store_shape: 'star'"):
        plan.routes(switch(2), ["s1", "s2"], "star")


@pytest.mark.parametrize(
    ("total", "size"),
    [(0, 512), (2 << 30, 512), (3 << 30, 1024), (5 << 30, 2048), (379 << 30, 16384), (1 << 50, 16384)],
)
def test_parts_are_small_for_small_sets(total: int, size: int) -> None:
    """KiB for so many bytes."""
    assert plan.part_size(total) == size << 10


def test_the_seed_lacks_least_and_is_the_head_among_equals() -> None:
    assert plan.choose_seed({"a": 5, "b": 5, "c": 7}, "b") == "b"
    assert plan.choose_seed({"a": 5, "b": 0, "c": 7}, "a") == "b"
    assert plan.choose_seed({"a": 0, "b": 0, "c": 7}, "c") == "a"
