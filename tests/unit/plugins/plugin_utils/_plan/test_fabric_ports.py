# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which port gets which address, and which addresses are refused."""

from __future__ import annotations

import typing as t
from ipaddress import IPv4Interface, IPv4Network

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import (
    fabric_plan,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils._plan.fabric_cases import (
    AB,
    ABC,
    LAN_NICS,
    RING_MANAGEMENT,
    cases,
    check_refused,
    names,
)


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


BAD: list[tuple[str, dict[str, t.Any], str, str]] = [
    ("cidr too small", {"hosts": AB, "topology": "direct", "cidr": "10.0.0.0/30"}, "fabric_cidr", "/29 or larger"),
    ("too small", {"hosts": names(64), "topology": "switch", "cidr": "10.0.0.0/26"}, "fabric_cidr", "use a /24 or"),
    (
        "ring too small",
        {"hosts": ABC, "topology": "ring", "cidr": "10.0.0.0/28", "management": RING_MANAGEMENT},
        "fabric_cidr",
        "/27 or larger",
    ),
    (
        "management inside the range",
        {"hosts": AB, "topology": "direct", "management": {"b": "10.100.0.40/24"}},
        "fabric_cidr",
        "management network 10.100.0.0/24 of host b",
    ),
    (
        "range inside the management network",
        {"hosts": AB, "topology": "switch", "management": {"a": "10.1.2.3/8"}},
        "fabric_cidr",
        "10.0.0.0/8",
    ),
    (
        "management twice",
        {"hosts": ABC, "topology": "ring", "management": RING_MANAGEMENT | {"c": "192.168.1.11/24"}},
        "management address",
        "host a has the same",
    ),
    ("lan without NIC", {"hosts": AB, "topology": "lan", "management": RING_MANAGEMENT}, "management NIC", "undefined"),
    (
        "lan over two subnets",
        {"hosts": AB, "topology": "lan", "management": {"a": "10.1.0.1/24", "b": "10.2.0.1/24"}, "nics": LAN_NICS},
        "management address",
        "one subnet",
    ),
    (
        "lan without prefix",
        {"hosts": AB, "topology": "lan", "management": {"a": "10.1.0.1", "b": "10.1.0.2"}, "nics": LAN_NICS},
        "management address",
        "a.b.c.d/24",
    ),
    (
        "lan with overrides",
        {
            "hosts": AB,
            "topology": "lan",
            "management": RING_MANAGEMENT,
            "nics": LAN_NICS,
            "overrides": {"a": {"eth0": "10.1.1.1"}},
        },
        "fabric_overrides",
        "keep the addresses",
    ),
    (
        "override of a stranger",
        {"hosts": AB, "topology": "direct", "overrides": {"z": {"enp1s0f1np1": "10.100.0.9"}}},
        "fabric_overrides",
        "not in the cluster",
    ),
    (
        "override of an unplanned NIC",
        {"hosts": AB, "topology": "direct", "overrides": {"b": {"enp1s0f0np0": "10.100.0.9"}}},
        "fabric_overrides",
        "override one of enp1s0f1np1, enP2p1s0f1np1",
    ),
    (
        "override twice",
        {"hosts": AB, "topology": "direct", "overrides": {"b": {"enp1s0f1np1": "10.100.0.1"}}},
        "fabric_overrides",
        "given twice, to enp1s0f1np1 of a and to enp1s0f1np1 of b",
    ),
    (
        "override at one end",
        {"hosts": AB, "topology": "direct", "overrides": {"b": {"enp1s0f1np1": "172.16.0.9/24"}}},
        "fabric_overrides[enp1s0f1np1]",
        "both ends",
    ),
    (
        "override into the other half",
        {
            "hosts": AB,
            "topology": "direct",
            "overrides": {"a": {"enp1s0f1np1": "10.100.0.140/25"}, "b": {"enp1s0f1np1": "10.100.0.141/25"}},
        },
        "fabric_overrides[enp1s0f1np1]",
        "two NICs in one subnet",
    ),
    (
        "override into the management network",
        {
            "hosts": AB,
            "topology": "direct",
            "management": RING_MANAGEMENT,
            "overrides": {"a": {"enp1s0f1np1": "192.168.1.1/24"}, "b": {"enp1s0f1np1": "192.168.1.2/24"}},
        },
        "fabric_overrides[enp1s0f1np1]",
        "management network 192.168.1.0/24",
    ),
]


@pytest.mark.parametrize(("arguments", "variable", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_one_clear_message(arguments: dict[str, t.Any], variable: str, words: str) -> None:
    check_refused(arguments, variable, words)
