# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the inventory that can be seen without a host's facts."""

from __future__ import annotations

import sys
import typing as t

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems

from tests.unit.plugins.plugin_utils._plan.fabric_cases import AB, ABC


class TestInventoryStage:
    GROUPS: t.ClassVar = {"ray_head": ["a"], "ray_workers": ["b"]}

    def test_good_inventories_have_no_problem(self) -> None:
        assert fabric_problems("direct", AB, "10.0.0.0/24", groups=self.GROUPS) == []
        assert fabric_problems("ring", ABC, "10.0.0.0/24") == []
        assert fabric_problems("lan", AB, groups=self.GROUPS | {"thors": ["b"]}) == []
        assert fabric_problems("direct", AB, "10.0.0.0/24", management={"a": "192.168.1.1", "b": "spark-2.lan"}) == []
        assert fabric_problems("direct", AB, "10.0.0.0/24", management={"a": "127.0.0.1", "b": "127.0.0.1"}) == []

    def test_all_faults_are_named_at_once(self) -> None:
        problems = fabric_problems("ring", AB, "10.0.0.1/24", cage=3, mtu=1)
        assert [problem.where for problem in problems] == [
            "fabric_cage",
            "fabric_mtu",
            "fabric_topology",
            "fabric_cidr",
        ]

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"groups": {"ray_head": [], "ray_workers": AB}}, "exactly one head"),
            ({"groups": {"ray_head": AB, "ray_workers": []}}, "group ray_head is a, b"),
            ({"groups": {"ray_head": ["a"], "ray_workers": AB}}, "group ray_workers of host a"),
            ({"groups": {"ray_head": ["a"], "ray_workers": []}}, "group cluster of host b"),
            ({"groups": GROUPS | {"sparks": ["b"], "thors": ["b"]}}, "group thors of host b"),
            ({"groups": GROUPS | {"thors": ["b"]}}, "kind of host b is thor"),
            ({"management": {"a": "10.0.0.7"}}, "overlaps the management network 10.0.0.7/32 of host a"),
            ({"management": {"a": "10.9.0.7", "b": "10.9.0.7"}}, "host a has the same address"),
            ({"overrides": {"a": {"enp1s0f1np1": "10.0.0.2"}}}, "given twice"),
            ({"overrides": ["a"]}, "not a mapping"),
            ({"cidr": "10.0.0.0/30"}, "too small"),
        ],
    )
    def test_faults(self, arguments: dict[str, t.Any], words: str) -> None:
        (problem,) = fabric_problems("direct", AB, **({"cidr": "10.0.0.0/24"} | arguments))
        assert words in str(problem)

    def test_without_netaddr_that_is_the_only_problem(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "netaddr", None)
        (problem,) = fabric_problems("direct", AB, "10.0.0.1/24", cage=3)
        assert str(problem).startswith("Python package netaddr is not installed: ")
        assert str(problem).endswith(f"{sys.executable} -m pip install netaddr")

    def test_overrides_are_refused_on_a_lan(self) -> None:
        (problem,) = fabric_problems("lan", AB, overrides={"a": {"eth0": "10.0.0.1"}})
        assert "keep the addresses they have" in str(problem)
