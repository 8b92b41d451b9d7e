# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's fabric variables, each read and checked on its own."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import plan_cluster
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import (
    fabric_plan,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import unused
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import PATCHES

from tests.unit import planned_cluster
from tests.unit.plugins.plugin_utils._plan.fabric_cases import (
    AB,
    ABC,
    RING_MANAGEMENT,
    check_refused,
)


def test_values_as_text_are_read() -> None:
    assert fabric_plan(["a", "b"], "direct", "10.1.0.0/24", cage="0", mtu="1500") == fabric_plan(
        ["a", "b"], "direct", "10.1.0.0/24", cage=0, mtu=1500
    )


def test_an_address_with_a_mask_or_a_zone_is_understood() -> None:
    plan = fabric_plan(ABC, "ring", "10.100.0.0/16", management=RING_MANAGEMENT | {"a": "192.168.1.11/255.255.255.0"})
    assert plan["a"]["management_address"] == "192.168.1.11/24"
    plan = fabric_plan(AB, "direct", "10.100.0.0/24", management={"a": "fe80::1%enP7s7/64", "b": "fe80::2%enP7s7"})
    assert plan["a"]["management_address"] == "fe80::1%enP7s7/64"


BAD: list[tuple[str, dict[str, t.Any], str, str]] = [
    ("no such topology", {"hosts": AB, "topology": "star"}, "fabric_topology", "star"),
    ("topology undefined", {"hosts": AB, "topology": None}, "fabric_topology", "undefined"),
    ("direct with 3", {"hosts": ABC, "topology": "direct"}, "fabric_topology", "direct with 3 hosts"),
    ("direct with 1", {"hosts": ["a"], "topology": "direct"}, "fabric_topology", "direct with 1 host:"),
    ("ring with 2", {"hosts": AB, "topology": "ring"}, "fabric_topology", "use direct"),
    ("line with 2", {"hosts": AB, "topology": "line"}, "fabric_topology", "use direct"),
    ("ring with 1", {"hosts": ["a"], "topology": "ring"}, "fabric_topology", "at least 3"),
    (
        "a patch of nobody",
        {"hosts": AB, "topology": "direct", "nccl_patch": "NCCL_X"},
        "fabric_nccl_patch",
        "SKIP_TREE",
    ),
    (
        "a patch off a ring",
        {"hosts": AB, "topology": "direct", "nccl_patch": PATCHES[0]},
        "fabric_nccl_patch",
        "a ring does",
    ),
    ("places of a ring", {"hosts": ABC, "topology": "ring", "reserved": [2]}, "fabric_reserved", "of its cables"),
    ("places of a lan", {"hosts": ABC, "topology": "lan", "reserved": "2"}, "fabric_reserved", "a lan allots no"),
    ("three cages", {"hosts": AB, "topology": "direct", "cage": [0, 1, 1]}, "fabric_cages", "each once"),
    ("a cage twice", {"hosts": AB, "topology": "direct", "cage": [1, 1]}, "fabric_cages", "each once"),
    ("no cage", {"hosts": AB, "topology": "direct", "cage": []}, "fabric_cages", "each once"),
    ("cages of one", {"hosts": AB, "topology": "switch", "cage": {"a": [0, 1], "b": 1}}, "fabric_cages", "b is [1]"),
    ("cages of a ring", {"hosts": ABC, "topology": "ring", "cage": [0, 1]}, "fabric_cages", "both cages already"),
    ("cages of a lan", {"hosts": ABC, "topology": "lan", "cage": [0, 1]}, "fabric_cages", "no choice"),
    (
        "two cages without management",
        {"hosts": AB, "topology": "direct", "cage": [0, 1]},
        "management address",
        "undef",
    ),
    ("switch with 1", {"hosts": ["a"], "topology": "switch"}, "fabric_topology", "at least 2"),
    ("no hosts", {"hosts": [], "topology": "lan"}, "fabric_topology", "no hosts"),
    ("hosts as text", {"hosts": "a,b", "topology": "direct"}, "hosts", "not a list"),
    ("host twice", {"hosts": ["a", "a"], "topology": "direct"}, "hosts", "twice"),
    ("no cidr", {"hosts": AB, "topology": "direct", "cidr": None}, "fabric_cidr", "undefined"),
    ("empty cidr", {"hosts": AB, "topology": "direct", "cidr": ""}, "fabric_cidr", "10.100.0.0/24"),
    ("IPv6", {"hosts": AB, "topology": "direct", "cidr": "fd00::/64"}, "fabric_cidr", "IPv6"),
    ("host bits", {"hosts": AB, "topology": "direct", "cidr": "10.0.0.1/24"}, "fabric_cidr", "10.0.0.0/24"),
    ("netmask form", {"hosts": AB, "topology": "direct", "cidr": "10.0.0.0/255.0.0.0"}, "fabric_cidr", "form"),
    ("no prefix", {"hosts": AB, "topology": "direct", "cidr": "10.0.0.0"}, "fabric_cidr", "form"),
    ("not a range", {"hosts": AB, "topology": "direct", "cidr": "10.0.0/24"}, "fabric_cidr", "form"),
    ("loopback", {"hosts": AB, "topology": "direct", "cidr": "127.0.0.0/24"}, "fabric_cidr", "loopback"),
    ("public", {"hosts": AB, "topology": "direct", "cidr": "11.0.0.0/24"}, "fabric_cidr", "it is public"),
    ("half public", {"hosts": AB, "topology": "direct", "cidr": "10.0.0.0/7"}, "fabric_cidr", "10.100.0.0/24"),
    ("link-local", {"hosts": AB, "topology": "direct", "cidr": "169.254.0.0/24"}, "fabric_cidr", "link-local"),
    ("cage 2", {"hosts": AB, "topology": "direct", "cage": 2}, "fabric_cage", "2"),
    ("cage text", {"hosts": AB, "topology": "direct", "cage": "left"}, "fabric_cage", "left"),
    ("cage of one host", {"hosts": AB, "topology": "direct", "cage": {"b": 2}}, "fabric_cage", "of host b is 2"),
    ("cage bool", {"hosts": AB, "topology": "direct", "cage": True}, "fabric_cage", "True"),
    ("mtu low", {"hosts": AB, "topology": "direct", "mtu": 1279}, "fabric_mtu", "1280 to 9216"),
    ("mtu high", {"hosts": AB, "topology": "direct", "mtu": 9217}, "fabric_mtu", "9217"),
    ("mtu text", {"hosts": AB, "topology": "direct", "mtu": "jumbo"}, "fabric_mtu", "jumbo"),
    ("thor", {"hosts": AB, "topology": "direct", "kinds": {"b": "thor"}}, "kind", "fabric_topology: lan"),
    ("kind", {"hosts": AB, "topology": "direct", "kinds": {"b": "orin"}}, "kind", "orin"),
    ("management nonsense", {"hosts": AB, "topology": "direct", "management": {"b": "x"}}, "management address", "x"),
    ("ring without management", {"hosts": ABC, "topology": "ring"}, "management address", "undefined"),
    (
        "ring with IPv6 management",
        {"hosts": ABC, "topology": "ring", "management": RING_MANAGEMENT | {"b": "fd00::2/64"}},
        "management address",
        "IPv6",
    ),
    (
        "override nonsense",
        {"hosts": AB, "topology": "direct", "overrides": {"b": {"enp1s0f1np1": "10.0.0.300"}}},
        "fabric_overrides[enp1s0f1np1]",
        "not an IPv4 address",
    ),
    (
        "a mask that is none",
        {"hosts": ABC, "topology": "ring", "management": RING_MANAGEMENT | {"b": "192.168.1.12/255.0.255.0"}},
        "management address",
        "not an address",
    ),
    (
        "a short form of an address",
        {"hosts": ABC, "topology": "ring", "management": RING_MANAGEMENT | {"b": "10/8"}},
        "management address",
        "not an address",
    ),
    (
        "a signed length",
        {"hosts": AB, "topology": "direct", "overrides": {"b": {"enp1s0f1np1": "10.100.0.9/+25"}}},
        "fabric_overrides[enp1s0f1np1]",
        "not an IPv4 address",
    ),
    (
        "override with the broadcast address",
        {"hosts": AB, "topology": "direct", "overrides": {"b": {"enp1s0f1np1": "10.100.0.127"}}},
        "fabric_overrides[enp1s0f1np1]",
        "no host can have",
    ),
    (
        "overrides as text",
        {"hosts": AB, "topology": "direct", "overrides": {"b": "10.100.0.9"}},
        "fabric_overrides[b]",
        "not a mapping",
    ),
]


@pytest.mark.parametrize(("arguments", "variable", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_one_clear_message(arguments: dict[str, t.Any], variable: str, words: str) -> None:
    check_refused(arguments, variable, words)


@pytest.mark.parametrize(
    ("hosts", "topology", "given", "words"),
    [
        (ABC, "ring", {"fabric_nccl_patch": PATCHES[0]}, ["fabric_nccl_patch is NCCL_SKIP_TREE_CONNECT: a ring of 3 "]),
        ("abcd", "ring", {"fabric_nccl_patch": PATCHES[0]}, []),
        (AB, "direct", {"fabric_cage": 1, "fabric_cages": [0, 1]}, ["fabric_cage of host a, b is 1: fabric_cages is "]),
        (AB, "direct", {"fabric_cage": 1, "fabric_cages": []}, []),
        (AB, "switch", {"fabric_cage": 1, "fabric_reserved": [2]}, []),
    ],
)
def test_what_changes_nothing_is_said(
    hosts: t.Sequence[str], topology: str, given: dict[str, t.Any], words: list[str]
) -> None:
    found = unused(topology, hosts, dict.fromkeys(hosts, given))
    assert [line[: len(word)] for line, word in zip(found, words, strict=True)] == words
    assert all("remove" in line for line in found)
    groups = {"cluster": list(hosts), "ray_head": [hosts[0]], "ray_workers": list(hosts[1:])}
    nodes = {host: planned_cluster.node(number, "spark") for number, host in enumerate(hosts, 1)}
    first = {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/16", **given}
    assert plan_cluster(groups, list(hosts), dict.fromkeys(hosts, first), nodes)[2] == found
