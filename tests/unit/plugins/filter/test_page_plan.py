# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.filter.page_plan import FilterModule

from tests.unit import planned_cluster

page_plan = FilterModule().filters()["page_plan"]


@pytest.mark.parametrize(
    ("topology", "count", "cables", "middle"),
    [("direct", 2, 2, ""), ("ring", 3, 6, ""), ("switch", 4, 8, "200 GbE switch"), ("switch", 8, 16, "200 GbE switch")],
)
def test_each_half_of_each_cable_is_drawn_once(topology: str, count: int, cables: int, middle: str) -> None:
    hosts = [f"spark-{number:02}" for number in range(1, count + 1)]
    _first, cluster, fabric, _nodes = planned_cluster.planned(hosts, topology)
    drawing = page_plan(cluster, fabric)["drawing"]
    json.dumps(drawing, allow_nan=False)
    assert [box["host"] for box in drawing["boxes"]] == hosts
    assert drawing["boxes"][0]["words"].endswith(", head")
    assert (len(drawing["cables"]), drawing["middle_name"]) == (cables, middle)
    ends = [tuple(end) for cable in drawing["cables"] for end in cable["ends"]]
    planned = [(host, link["netdev"]) for host in hosts for link in fabric[host]["links"]]
    assert sorted(ends) == sorted(planned)
    for cable in drawing["cables"]:
        assert all(0 <= one <= drawing["width"] for one in cable["line"])


def test_one_host_has_no_drawing_and_no_plan_no_parts() -> None:
    _first, cluster, fabric, _nodes = planned_cluster.planned(["a", "b"], "direct")
    assert page_plan(cluster, {"a": fabric["a"]}) == {"drawing": None, "memory": {}}


def test_the_parts_are_those_of_the_report() -> None:
    _first, cluster, fabric, _nodes = planned_cluster.planned(["a", "b"], "direct")
    ranks = {
        **{"host": ["a"], "memory_bytes": [100], "budget_bytes": [80]},
        **{"weights_bytes_per_rank": [50], "kv_cache_bytes": [20]},
    }
    found = page_plan({**cluster, "serving": {"memory": {"ranks": ranks}}}, fabric)["memory"]
    assert found == {"a": {"weights": 50, "cache": 20, "overhead": 10, "reserve": 20}}
