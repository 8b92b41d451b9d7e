# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which port gets which address, and which addresses are refused."""

from __future__ import annotations

import typing as t
from ipaddress import IPv4Interface, IPv4Network

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import (
    fabric_plan,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils._plan.fabric_cases import cases


@given(cases(("switch",), least=3))
@settings(deadline=None, max_examples=60)
def test_a_host_added_at_the_end_changes_no_address(case: dict[str, t.Any]) -> None:
    whole = fabric_plan(**case)
    part = fabric_plan(**(case | {"hosts": case["hosts"][:-1]}))
    assert {host: entry["links"] for host, entry in part.items()} == {
        host: entry["links"] for host, entry in list(whole.items())[:-1]
    }


@given(cases(("direct", "ring", "switch")), st.data())
@settings(deadline=None, max_examples=60)
def test_any_allotted_address_can_be_overridden(case: dict[str, t.Any], data: st.DataObject) -> None:
    plan = fabric_plan(**case)
    host = data.draw(st.sampled_from(case["hosts"]))
    link = data.draw(st.sampled_from(plan[host]["links"]))
    taken = {IPv4Interface(other["address"]).ip for entry in plan.values() for other in entry["links"]}
    # the highest host address is the last one to be allotted
    free = IPv4Network(link["subnet"]).broadcast_address - 1
    assume(free not in taken)
    changed = fabric_plan(**case, overrides={host: {link["netdev"]: str(free)}})
    for name, entry in changed.items():
        for before, after in zip(plan[name]["links"], entry["links"], strict=True):
            moved = name == host and before["netdev"] == link["netdev"]
            assert after["address"] == (
                f"{free}/{IPv4Network(link['subnet']).prefixlen}" if moved else before["address"]
            )


def test_a_pair_keeps_its_addresses_behind_a_switch() -> None:
    direct = fabric_plan(["a", "b"], "direct", "10.1.0.0/24")
    switch = fabric_plan(["a", "b", "c"], "switch", "10.1.0.0/24")
    for host in "ab":
        assert [x["address"] for x in direct[host]["links"]] == [x["address"] for x in switch[host]["links"]]


def test_whole_subnet_can_be_moved_by_overriding_both_ends() -> None:
    overrides = {"a": {"enp1s0f1np1": "172.20.0.1/30"}, "b": {"enp1s0f1np1": "172.20.0.2/30"}}
    plan = fabric_plan(["a", "b"], "direct", "10.1.0.0/24", overrides=overrides)
    assert plan["a"]["control_address"] == "172.20.0.1"
    assert plan["b"]["links"][0]["subnet"] == "172.20.0.0/30"
