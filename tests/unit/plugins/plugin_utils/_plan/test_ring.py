# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts cabled one to the next: NCCL there, ranks along the cables, and what cannot be served."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ring
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.parallel import plan_parallel

from tests.unit.published_models import model

MANAGEMENT = {host: f"192.168.1.{number + 11}/24" for number, host in enumerate("abcdefgh")}


def fabric(topology: str, hosts: str):
    return fabric_plan(list(hosts), topology, "10.100.0.0/16", management=MANAGEMENT)


@pytest.mark.parametrize("count", range(3, 9))
def test_ranks_that_talk_to_each_other_have_a_cable(count: int) -> None:
    """vLLM's groups are rows and columns of ranks; a ring of a group goes from each of its ranks to the next."""
    hosts = list("abcdefgh")[:count]
    cables = {frozenset(pair) for pair in itertools.pairwise([*hosts, hosts[0]])}
    for tensor in (size for size in range(1, count + 1) if count % size == 0):
        pipeline = count // tensor
        if ring.refused(tensor, pipeline, count):
            continue
        order = ring.rank_order(hosts, tensor, pipeline, "ring")
        assert order[0] == hosts[0], "the head has the API"
        rows = [order[start : start + tensor] for start in range(0, count, tensor)]
        talk = {frozenset(pair) for row in rows for pair in itertools.pairwise([*row, row[0]]) if tensor > 1}
        talk |= {frozenset(pair) for column in zip(*rows, strict=True) for pair in itertools.pairwise(column)}
        assert count == 3 or talk <= cables


def test_two_pairs_of_a_ring_of_four_use_all_its_cables() -> None:
    assert ring.rank_order(list("abcd"), 2, 2, "ring") == ["a", "b", "d", "c"]
    assert ring.rank_order(list("abcd"), 2, 2, "switch") == list("abcd")
    assert ring.rank_order(list("abcd"), 4, 1, "ring") == list("abcd")


@pytest.mark.parametrize("tensor", [2, 3, 4])
def test_what_is_refused_is_no_choice_of_the_planner_either(tensor: int) -> None:
    assert ring.refused(tensor, 12 // tensor, 12)
    plan = plan_parallel(12, 1, "ring", model("llama-3.1-8b"))
    assert plan["tensor_parallel"] in (1, 12)


def test_ray_is_refused_for_the_order_of_its_ranks_where_hosts_lie_across() -> None:
    variable, why = ring.serving_problem("ring", 4, "ray", {}) or ("", "")
    assert variable == "vllm_serve_executor"
    assert "an order of its own" in why
    assert ring.serving_problem("ring", 3, "ray", {}) is None
    assert ring.serving_problem("line", 4, "ray", {}) is None
    assert ring.serving_problem("ring", 4, "mp", {"VLLM_BATCH_INVARIANT": "0"}) is None
    assert (ring.serving_problem("ring", 4, "mp", {"VLLM_BATCH_INVARIANT": 1}) or [""])[0] == "vllm_serve_env"


@pytest.mark.parametrize(("topology", "hosts"), [("ring", "abc"), ("ring", "abcd"), ("line", "abcd")])
def test_two_neighbours_alone_are_a_pair_with_stock_settings(topology: str, hosts: str) -> None:
    plan = fabric(topology, hosts)
    ring.adapt(plan, ["b", "c"])
    for host, devices in (("b", "=rocep1s0f0,roceP2p1s0f0"), ("c", "=rocep1s0f1,roceP2p1s0f1")):
        env = plan[host]["env"]
        assert (env["NCCL_NET"], env["NCCL_IB_DISABLE"], env["NCCL_IB_HCA"]) == ("IB", "0", devices)
        assert not ring.VARIABLES & set(env)
        assert plan[host]["profile"] == "roce"
    assert plan["a"] == fabric(topology, hosts)["a"]


def test_hosts_without_a_closed_ring_of_their_own_use_sockets_and_say_so() -> None:
    for hosts, words in ((["a", "c"], "no cable joins a, c"), (["a", "b", "c"], "no closed ring of a, b, c")):
        plan = fabric("ring", "abcde")
        ring.adapt(plan, hosts)
        for host in hosts:
            env = plan[host]["env"]
            assert (env["NCCL_NET"], env["NCCL_IB_DISABLE"]) == ("Socket", "1")
            assert "NCCL_IB_HCA" not in env
            assert not ring.VARIABLES & set(env)
            assert words in plan[host]["profile_reason"]


def test_a_cluster_whose_hosts_all_serve_together_stays_as_it_was() -> None:
    for topology, hosts in (("ring", "abcd"), ("line", "abc"), ("switch", "abcd")):
        plan = fabric(topology, hosts)
        ring.adapt(plan, list(hosts) if topology != "switch" else ["a", "b"])
        assert plan == fabric(topology, hosts)
