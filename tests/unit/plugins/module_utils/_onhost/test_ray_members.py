# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_members

from tests.unit.plugins.module_utils._onhost.ray_cluster import engine_view, text


def test_resources_in_use_are_zero_not_absent():
    by_address = {row.address: row for row in engine_view("pending").rows}
    assert by_address["10.89.0.10"].available["GPU"] == 0.0
    assert by_address["10.89.0.11"].available["GPU"] == 1.0
    assert "bundle_group_0_f1194e8d26465a0bb1270a49280801000000" not in by_address["10.89.0.12"].total


def test_dashboard_status_agrees_with_the_engine():
    available, _demands = ray_members.read_dashboard_status(text("pending.dashboard_status.json"))
    for row in engine_view("pending").rows:
        assert available[row.node_id] == row.available


def actors(*dead: str, named: str = "RayWorkerProc", left_out: int = 0) -> str:
    """A cluster that served six times on three nodes, with these processes of it dead."""
    answer = json.loads(text("served.dashboard_actors.json"))
    found = answer["data"]["result"]
    for item in found["result"]:
        item["class_name"] = named
        if str(item["pid"]) in dead:
            item["state"] = "DEAD"
    found["total"] += left_out
    return json.dumps(answer)


def living() -> dict[str, str]:
    rows = json.loads(text("served.dashboard_actors.json"))["data"]["result"]["result"]
    return {row["node_id"]: str(row["pid"]) for row in rows if row["state"] == "ALIVE"}


def test_ranks_of_earlier_engines_stay_listed_as_dead() -> None:
    assert ray_members.read_dashboard_ranks(actors()) == dict.fromkeys(living(), True)
    assert len(living()) == 3


def test_a_node_whose_last_rank_ended() -> None:
    (first, pid), *_others = living().items()
    assert [node for node, lives in ray_members.read_dashboard_ranks(actors(pid)).items() if not lives] == [first]
    assert ray_members.read_dashboard_ranks(actors(pid, named="RayWorkerWrapper"))[first] is False


def test_actors_that_are_no_ranks_and_a_list_cut_short_tell_nothing() -> None:
    assert ray_members.read_dashboard_ranks(actors(*living().values(), named="Checkpointer")) == {}
    assert ray_members.read_dashboard_ranks(actors(*living().values(), left_out=1)) == {}


@pytest.mark.parametrize("read", [ray_members.read_dashboard_nodes, ray_members.read_dashboard_ranks])
@pytest.mark.parametrize(
    "body", ["", "[]", "null", "{}", '{"result": false, "msg": "x"}', '{"result": true, "data": {}}', "<html>"]
)
def test_strange_dashboard_answers_raise_value_error(read, body):
    with pytest.raises(ValueError):  # noqa: PT011  json's own error is one, its words are not ours
        read(body)
