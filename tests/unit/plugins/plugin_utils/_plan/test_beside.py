# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import beside
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.beside import Share

GIB = 2**30


def test_a_group_beside_another_takes_over_nothing_that_the_other_serves() -> None:
    host = {"vllm_serve_recipe": "big", "vllm_serve_args": {"max-num-seqs": 2}, "vllm_serve_executor": "ray"}
    host |= {"vllm_serve_degraded_after": 60, "engine_cache_dir": "/c", "vllm_serve_prefix_caching": True}
    found = beside.variables_of({"vllm_serve_model": "org/small"}, host)
    assert (found["vllm_serve_recipe"], found["vllm_serve_model"]) == (None, "org/small")
    assert (found["vllm_serve_args"], found["vllm_serve_executor"]) == ({}, "mp")
    assert (found["vllm_serve_degraded_after"], found["vllm_serve_prefix_caching"]) == (0, None)
    # what is the host's stays the host's, and its own variables are not touched
    assert (found["engine_cache_dir"], host["vllm_serve_recipe"]) == ("/c", "big")


def test_an_argument_of_the_inventory_goes_before_a_planned_one() -> None:
    given = {"vllm_serve_args": {"gpu_memory_utilization": 0.3}}
    planned = beside.with_args(given, {"gpu-memory-utilization": 0.1, "kv-cache-memory-bytes": 5})
    assert planned["vllm_serve_args"] == {"gpu-memory-utilization": 0.3, "kv-cache-memory-bytes": 5}
    assert beside.given_args(given) == {"gpu-memory-utilization"}
    assert beside.given_args({}) == set()
    alias = {"vllm_serve_args": {"device-memory-utilization": 0.3}}
    assert beside.with_args(alias, {"gpu-memory-utilization": 0.1})["vllm_serve_args"] == alias["vllm_serve_args"]


def test_a_share_is_told_with_its_parts_as_far_as_they_are_known() -> None:
    sizes = {
        "ranks": {"budget_bytes": [6 * GIB, 9 * GIB], "weights_bytes_per_rank": [2 * GIB, 2 * GIB]},
        "overhead_bytes_per_rank": 3 * GIB,
    }
    share = beside.share_of("embed", sizes, 100 * GIB, 0.5)
    assert share == Share("embed", 6 * GIB, 2 * GIB, 3 * GIB)
    assert str(share) == "embed 6.0 GiB (weights 2.0 GiB, overhead 3.0 GiB, cache 1.0 GiB)"
    assert str(beside.share_of("big", None, 100 * GIB, 0.5)) == "big 50.0 GiB"
    assert beside.told("a", 100 * GIB, [share, Share("big", 50 * GIB)]) == (
        "memory of a: 56.0 GiB of 100.0 GiB planned: embed 6.0 GiB (weights 2.0 GiB, overhead 3.0 GiB, cache 1.0 GiB), "
        "big 50.0 GiB"
    )


def test_the_cache_is_one_sequence_and_a_quarter_or_what_the_inventory_asks_for() -> None:
    sizes = {"request_bytes_per_rank": 100 * 2**20, "ranks": {"kv_cache_bytes": [200 * 2**20]}}
    assert beside.needed_cache(sizes, asked=False) == 128 * 2**20
    assert beside.needed_cache(sizes, asked=True) == 192 * 2**20
    assert beside.needed_cache(None, asked=False) is beside.needed_cache({}, asked=True) is None


@pytest.mark.parametrize(
    ("utilization", "left"),
    # what fits stays; 0.85 less 0.041 of the others; what a recipe asks for above that; never above the edge
    [(0.7, 0.7), (0.85, 0.809), (0.88, 0.839), (0.95, 0.859)],
)
def test_the_hosts_own_group_gets_what_the_others_leave(utilization: float, left: float) -> None:
    assert beside.left_for_own([Share("embed", 41)], 1000, utilization) == pytest.approx(left)


def test_what_does_not_fit_is_refused_with_the_numbers_of_each_group() -> None:
    shares = [Share("big", 80 * GIB, 60 * GIB, 5 * GIB), Share("embed", 12 * GIB, 2 * GIB, 3 * GIB)]
    [finding] = beside.too_much("spark-01", 100 * GIB, None, shares)
    text = str(finding)
    assert text.startswith(
        "host spark-01: its serving groups need 92.0 GiB together and 90.0 GiB may be taken (0.90 of"
    )
    assert "big 80.0 GiB (weights 60.0 GiB, overhead 5.0 GiB, cache 15.0 GiB), embed 12.0 GiB (weights 2.0 GiB" in text
    assert "lower kv-cache-memory-bytes or vllm_serve_max_model_len of embed" in text
    assert "gpu-memory-utilization of big" in text
    assert beside.too_much("spark-01", 110 * GIB, None, shares) == []
    [finding] = beside.too_much("spark-01", 110 * GIB, 91 * GIB, shares)
    assert "91.0 GiB are available now" in finding.what
    assert finding.fix.startswith("stop what else holds memory")
