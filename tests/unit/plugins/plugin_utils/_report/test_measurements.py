# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who measures towards whom."""

from __future__ import annotations

import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import measurements

from tests.unit.plugins.plugin_utils._report.planned_fabric import HOSTS, plan


@pytest.mark.parametrize(
    ("topology", "hosts", "count"),
    [
        ("direct", ["a", "b"], 6),
        ("switch", HOSTS, 9),
        # three to the next host, and one half to the one after it
        ("switch", list("abcd"), 16),
        ("ring", HOSTS, 18),
        ("line", HOSTS, 12),
        ("ring", list("abcd"), 24),
        ("lan", HOSTS, 3),
    ],
)
def test_every_half_and_both_in_every_direction(topology, hosts, count):
    tests = measurements.link_tests(plan(topology, hosts), hosts, {})
    everything = [test for host in hosts for test in tests[host]]
    assert len(everything) == count
    assert len({test["id"] for test in everything}) == count
    sending = {(test["host"], path["netdev"]) for test in everything for path in test["paths"]}
    taking = {(test["peer"], path["peer_netdev"]) for test in everything for path in test["paths"]}
    assert sending == taking
    assert {test["how"] for test in everything} == ({"tcp"} if topology == "lan" else {"rdma"})
    json.dumps(tests)


def test_two_cages_are_measured_each_by_itself():
    tests = measurements.link_tests(plan("direct", ["a", "b"], cage=[0, 1]), ["a", "b"], {})
    assert len({test["id"] for found in tests.values() for test in found}) == 12
    halves = {(test["cage"], tuple(path["netdev"] for path in test["paths"])) for test in tests["a"]}
    assert ("np1", ("enp1s0f1np1", "enP2p1s0f1np1")) in halves
    assert all(netdev.endswith(cage) for cage, netdevs in halves for netdev in netdevs)


def test_a_ring_measures_along_its_cables():
    tests = measurements.link_tests(plan("ring"), HOSTS, {})
    [first] = [test for test in tests["a"] if test["id"] == "a>b:0"]
    assert (first["paths"][0]["netdev"], first["paths"][0]["peer_netdev"]) == ("enp1s0f0np0", "enp1s0f1np1")
    assert first["paths"][0]["wanted_mtu"] == 9000


def test_on_a_lan_the_smaller_mtu_of_both_ends_is_wanted():
    fabric = plan("lan", ["a", "b"])
    fabric["b"]["lan_mtu"] = 1466
    tests = measurements.link_tests(fabric, ["a", "b"], {})
    assert [path["wanted_mtu"] for found in tests.values() for path in found[0]["paths"]] == [1466, 1466]
    fabric["b"]["lan_mtu"] = 9000
    assert measurements.link_tests(fabric, ["a", "b"], {})["a"][0]["paths"][0]["wanted_mtu"] == 1500


def test_four_on_switches_measure_one_half_past_the_next_host_too():
    tests = measurements.link_tests(plan("switch", list("abcd")), list("abcd"), {})
    assert [(test["peer"], len(test["paths"])) for test in tests["a"]] == [("b", 1), ("b", 1), ("b", 2), ("c", 1)]


def test_hosts_that_are_away_are_left_out():
    tests = measurements.link_tests(plan("switch"), ["a", "c"], {})
    assert {test["peer"] for test in tests["a"]} == {"c"}
    assert measurements.link_tests(plan("switch"), ["a"], {}) == {"a": []}


def test_a_host_tells_of_its_own_measurements_alone():
    tests = {
        "a": [{"id": "a>b", "how": "rdma"}],
        "b": [{"id": "b>a", "how": "tcp"}],
        "c": [{"id": "c>a", "how": "tcp"}],
    }
    slow, forged = {"id": "b>a", "gbits": 1.0}, {"id": "b>a", "gbits": 200.0}
    for order in ("abc", "cba"):
        measured = {"a": {"tests": [forged, {"id": "x"}]}, "b": {"tests": [slow]}, "c": {"error": "away"}}
        found = measurements.found_by_test(tests, {host: measured[host] for host in order})
        assert found == {"b>a": slow, "c>a": {"error": "away", "id": "c>a", "how": "tcp"}}
