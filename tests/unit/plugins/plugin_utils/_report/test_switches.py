# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A link between two switches that is up and slow is told from a slow port of a host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import measurements, switches, verify

from tests.unit.plugins.plugin_utils._report.planned_fabric import plan

HOSTS = list("abcd")
FABRIC = plan("switch", HOSTS)


def judged(gbits: Callable[[str, str], float]) -> list[dict[str, Any]]:
    """The lines of four hosts on switches whose pairs reach ``gbits`` over one half; 0 stands for an error."""
    planned = measurements.link_tests(FABRIC, HOSTS, {})
    tests = [test for host in HOSTS for test in planned[host]]
    results: dict[str, dict[str, Any]] = {}
    for test in tests:
        reached = gbits(test["host"], test["peer"]) * len(test["paths"])
        answer = {"gbits": reached} if reached else {"error": "Connection refused"}
        results[test["id"]] = {"how": "rdma", "mtu": 9000, **answer}
    cluster = {"kinds": dict.fromkeys(HOSTS, "spark"), "topology": "switch"}
    lines = verify.link_lines(tests, results, cluster, {}, {}, FABRIC)
    return switches.between_lines(lines, tests)


@pytest.mark.parametrize("parts", ["ab cd", "ac bd", "ad bc"])
def test_a_slow_link_between_two_switches_is_named_by_the_hosts_of_each(parts: str) -> None:
    first, second = (set(part) for part in parts.split())
    (line,) = judged(lambda one, two: 97.0 if {one, two} <= first or {one, two} <= second else 9.4)
    assert line["where"] == " to ".join(", ".join(sorted(part)) for part in (first, second))
    assert (line["verdict"], line["value"], line["threshold"]) == (verify.FAIL, 9.4, 85.0)
    assert line["note"] == "only pairs across are slow; within these parts it is 97 Gb/s or more"
    assert "RSTP" in line["fix"]


def test_nothing_is_said_of_switches_where_all_is_well_or_all_is_slow() -> None:
    assert judged(lambda _one, _two: 97.0) == []
    assert judged(lambda _one, _two: 9.4) == []


def test_a_slow_host_is_no_slow_switch() -> None:
    assert judged(lambda one, two: 9.4 if "c" in (one, two) else 97.0) == []


def test_a_pair_without_a_number_is_another_fault() -> None:
    assert judged(lambda one, two: 0.0 if {one, two} in ({"b", "c"}, {"a", "d"}) else 97.0) == []


def test_hosts_that_are_cabled_to_each_other_have_no_switch_to_measure() -> None:
    ring = plan("ring", HOSTS)
    assert all(measurements.further(ring, host, HOSTS) == [] for host in HOSTS)
    assert measurements.further(plan("switch"), "a", ("a", "b", "c")) == []
