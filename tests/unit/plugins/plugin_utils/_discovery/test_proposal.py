# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what machines saw of each other to a cluster; and what is wrong, each in one message."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import (
    RANGES,
    Cables,
    Machine,
    Proposal,
    once,
    propose,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import spark_netdev

Cable = tuple[tuple[str, int], tuple[str, int]]


class Lan:
    """Machines, and the cables between them."""

    def __init__(self, sparks: str = "", thors: str = "", generic: str = "") -> None:
        kinds = {**dict.fromkeys(sparks, "spark"), **dict.fromkeys(thors, "thor"), **dict.fromkeys(generic, "generic")}
        self.machines = {
            name: self.machine(name, kind, f"192.168.1.{10 + number}")
            for number, (name, kind) in enumerate(kinds.items())
        }

    @staticmethod
    def machine(name: str, kind: str, address: str) -> Machine:
        node: dict[str, Any] = {
            "hostname": name,
            "boot_id": f"boot-{name}",
            "kind": kind,
            "product": "",
            "gpu_names": [],
            "interfaces": [{"name": "enP7s7", "addresses": [{"address": f"{address}/24"}]}],
            "routes": [{"dst": "default", "dev": "enP7s7"}],
            "management": {"netdev": "enP7s7", "address": address, "cidr": f"{address}/24"},
        }
        ports = {
            spark_netdev(cage, half): {"cage": cage, "half": half, "carrier": False, "plugged": False}
            for cage in (0, 1)
            for half in (0, 1)
        }
        seen = {"ports": ports, "neighbours": {}, "lldp": {}} if kind == "spark" else {}
        return Machine(address, node, seen)

    def plug(self, name: str, cage: int) -> None:
        for half in (0, 1):
            self.machines[name].seen["ports"][spark_netdev(cage, half)]["plugged"] = True

    def join(self, *ends: tuple[str, int]) -> Lan:
        """A cable, or a switch with more than two ends; a broadcast reaches both halves."""
        for name, cage in ends:
            self.plug(name, cage)
            for half in (0, 1):
                others = self.machines[name].seen["neighbours"].setdefault(spark_netdev(cage, half), [])
                others += [
                    {"host": f"boot-{other}", "netdev": spark_netdev(far, 0)}
                    for other, far in ends
                    if (other, far) != (name, cage)
                ]
        return self

    def propose(self, wanted: str = "") -> Proposal:
        return propose(list(self.machines.values()), wanted)


def names(found: Proposal) -> list[str]:
    return [machine.name for machine in found.hosts]


def test_two_sparks_and_a_cable_between_different_cages() -> None:
    found = Lan("ab").join(("a", 1), ("b", 0)).propose()
    assert (found.topology, names(found), found.cages) == ("direct", ["a", "b"], {"a": 1, "b": 0})
    assert (found.cidr, found.findings) == (RANGES[0], [])


def test_two_cables_between_a_pair_are_both_used() -> None:
    found = Lan("ab").join(("a", 0), ("b", 0)).join(("a", 1), ("b", 1)).propose()
    assert (found.topology, found.cages) == ("direct", {"a": 0, "b": 0})
    assert found.both == {"a": [0, 1], "b": [0, 1]}
    assert "the second cable adds little speed" in found.notes[0]
    crossed = Lan("ab").join(("a", 0), ("b", 1)).join(("a", 1), ("b", 0)).propose()
    assert crossed.both == {"a": [0, 1], "b": [1, 0]}


def test_both_cages_on_switches_that_join_all_are_both_used() -> None:
    ends = [[(name, cage) for name in "abc"] for cage in (0, 1)]
    found = Lan("abc").join(*ends[0]).join(*ends[1]).propose()
    assert (found.topology, found.both) == ("switch", {name: [0, 1] for name in "abc"})
    assert not Lan("abc").join(*ends[0]).join(*ends[1][:2]).propose().both


@pytest.mark.parametrize(
    ("cables", "order"),
    [
        ([(("a", 0), ("b", 1)), (("b", 0), ("c", 1)), (("c", 0), ("a", 1))], ["a", "b", "c"]),
        ([(("a", 0), ("c", 1)), (("c", 0), ("b", 1)), (("b", 0), ("a", 1))], ["a", "c", "b"]),
    ],
)
def test_a_ring_is_listed_in_the_order_of_its_cables(cables: list[Cable], order: list[str]) -> None:
    lan = Lan("abc")
    for cable in cables:
        lan.join(*cable)
    found = lan.propose()
    assert (found.topology, names(found), found.cages, found.findings) == ("ring", order, {}, [])


def test_a_ring_with_one_machine_the_wrong_way_round_names_the_cables_to_swap() -> None:
    lan = Lan("abc").join(("a", 0), ("b", 0)).join(("b", 1), ("c", 1)).join(("c", 0), ("a", 1))
    (finding,) = lan.propose().findings
    assert finding.fix == "swap the two cables at b"


def test_a_ring_with_a_missing_cable_names_both_of_its_ends() -> None:
    found = Lan("abc").join(("a", 0), ("b", 1)).join(("b", 0), ("c", 1)).propose("ring")
    assert [(finding.host, finding.what[:22]) for finding in found.findings] == [
        ("a", "cage 1 has no cable, w"),
        ("c", "cage 0 has no cable, w"),
    ]


def test_more_than_two_on_one_cage_are_on_a_switch() -> None:
    found = Lan("abcd").join(("a", 1), ("b", 0), ("c", 1), ("d", 1)).propose()
    assert (found.topology, found.cages) == ("switch", {"a": 1, "b": 0, "c": 1, "d": 1})
    assert Cables(found.hosts).words("b", 0) == "switch, 3 others"


def test_lldp_tells_two_on_a_switch_from_two_on_a_cable() -> None:
    lan = Lan("ab").join(("a", 1), ("b", 1))
    lan.machines["a"].seen["lldp"][spark_netdev(1, 0)] = {"name": "crs812", "port": "qsfp56-1", "bridge": True}
    found = lan.propose()
    assert found.topology == "switch"
    assert Cables([lan.machines["a"]]).words("a", 1) == "switch crs812"


def test_a_thor_is_left_out_of_a_fabric_and_taken_into_a_lan() -> None:
    lan = Lan("ab", thors="t").join(("a", 1), ("b", 1))
    found = lan.propose()
    assert (found.topology, names(found), found.left_out[0][0].name) == ("direct", ["a", "b"], "t")
    found = lan.propose("lan")
    assert (found.topology, names(found), found.cidr, found.left_out) == ("lan", ["a", "b", "t"], "", [])


def lanes(lan: Lan, **addresses: list[str]) -> Lan:
    """QSFP lanes with a cable, by machine, each with an address or none."""
    for name, own in addresses.items():
        lan.machines[name].node["interfaces"] += [
            {"name": f"mgbe{number}_0", "carrier": True, "addresses": [{"address": address}] if address else []}
            for number, address in enumerate(own)
        ]
    return lan


def test_thors_reach_each_other_by_a_lane_of_their_cages_where_it_has_addresses() -> None:
    found = lanes(Lan(thors="tu"), t=["", "10.7.0.1/24"], u=["10.7.0.2/24", ""]).propose()
    assert (found.topology, found.lan_nics, found.findings) == ("lan", {"t": "mgbe1_0", "u": "mgbe0_0"}, [])
    assert "by a lane of their QSFP cages, in 10.7.0.0/24, over TCP" in found.notes[0]


def test_lanes_without_addresses_of_one_range_are_named_and_left() -> None:
    for own in (["", ""], ["10.8.0.2/24"]):
        found = lanes(Lan(thors="tu"), t=["10.7.0.1/24"], u=own).propose()
        assert (found.lan_nics, found.findings) == ({}, [])
        assert "no frame came over these lanes" in found.notes[0]
    # a Thor without a cable there, and a Spark beside them, have none of it
    for lan in (lanes(Lan(thors="tu"), t=["10.7.0.1/24"]), lanes(Lan("a", "t"), t=["10.7.0.1/24"])):
        found = lan.propose()
        assert (found.lan_nics, found.notes) == ({}, [])


def by_lane(lan: Lan, *ends: tuple[str, int]) -> Lan:
    """A cable or a switch between lanes of Thors: frames come in, and their ports are plugged."""
    for name, lane in ends:
        machine = lan.machines[name]
        machine.seen = machine.seen or {"ports": {}, "neighbours": {}, "lldp": {}}
        machine.seen["ports"][f"mgbe{lane}_0"] = {"cage": None, "half": None, "carrier": True, "plugged": True}
        machine.seen["neighbours"].setdefault(f"mgbe{lane}_0", []).extend(
            {"host": f"boot-{other}", "netdev": f"mgbe{far}_0"} for other, far in ends if other != name
        )
    return lan


def test_four_lanes_that_have_addresses_and_are_heard_are_all_used() -> None:
    addresses = {name: [f"10.0.{lane}.{number}/24" for lane in range(4)] for number, name in enumerate("tu", 1)}
    lan = lanes(Lan(thors="tu"), **addresses)
    # no frame: the addresses alone show a lane that somebody uses
    assert (lan.propose().topology, lan.propose().lan_nics) == ("lan", {"t": "mgbe0_0", "u": "mgbe0_0"})
    for lane in range(4):
        by_lane(lan, ("t", lane), ("u", lane))
    found = lan.propose()
    assert (found.topology, found.lanes, found.findings) == ("direct", [0, 1, 2, 3], [])


def test_two_thors_whose_lanes_are_cabled_are_a_pair_of_their_own() -> None:
    lan = Lan(thors="tu")
    for lane in (0, 1):
        by_lane(lan, ("t", lane), ("u", lane))
    found = lan.propose()
    assert (found.topology, names(found), found.lanes, found.findings) == ("direct", ["t", "u"], [0, 1], [])
    assert found.cidr == "10.100.0.0/16"
    # the owner's own choice is no fault of the cables
    chosen = lanes(lan, t=["", ""], u=["", ""]).propose("lan")
    assert (chosen.topology, chosen.lanes, chosen.findings) == ("lan", [], [])
    assert "no frame came" not in chosen.notes[0]
    assert "and discover_topology=lan takes the RJ45 ports" in chosen.notes[0]


def test_thors_on_a_switch_use_the_lanes_by_which_all_hear_all() -> None:
    lan = by_lane(by_lane(Lan(thors="tuv"), ("t", 0), ("u", 0), ("v", 0)), ("t", 2), ("u", 2))
    found = lan.propose()
    assert (found.topology, found.lanes, found.findings) == ("switch", [0], [])
    assert lan.propose("direct").findings[0].what == "discover_topology is direct, and 3 Jetson Thor answered"


def test_lanes_that_cross_or_that_leave_a_thor_out_are_findings() -> None:
    found = by_lane(Lan(thors="tu"), ("t", 0), ("u", 1)).propose()
    assert [(one.what, one.host) for one in found.findings] == [
        ("lane 0 is cabled to lane 1 of u", "t"),
        ("lane 1 is cabled to lane 0 of t", "u"),
    ]
    assert "move its end at u to lane 0" in found.findings[0].fix
    found = by_lane(Lan(thors="tuv"), ("t", 0), ("u", 0)).propose()
    assert [(one.host, one.what) for one in found.findings] == [
        ("v", "no lane of their QSFP cages joins all of the Thors: t lane 0 = lane 0 u")
    ]


def test_sparks_without_any_cable_are_a_lan() -> None:
    found = Lan("ab", thors="t").propose()
    assert (found.topology, names(found), found.findings) == ("lan", ["a", "b", "t"], [])


def test_a_spark_without_a_cable_among_cabled_ones_is_one_message() -> None:
    (finding,) = Lan("abc").join(("a", 1), ("b", 1)).propose().findings
    assert str(finding).startswith("host c (192.168.1.12): no QSFP cage of it has a cable; plug one in")


def test_a_cable_at_whose_end_nobody_answers_is_one_message() -> None:
    lan = Lan("ab")
    lan.plug("a", 1)
    lan.plug("b", 0)
    (finding,) = lan.propose().findings
    assert str(finding).startswith("host a: cage 1 has a cable, but none of the other machines answers")


def test_four_sparks_in_a_ring_are_asked_for_a_switch() -> None:
    lan = Lan("abcd")
    lan.join(("a", 0), ("b", 1))
    for name in "cd":
        lan.plug(name, 0)
    found = lan.propose()
    assert [finding.host for finding in found.findings] == ["c", "d"]
    assert "need a 200 GbE switch" in found.findings[0].fix


def test_two_machines_of_one_name_are_one_message() -> None:
    lan = Lan("ab")
    lan.machines["b"].node = {**lan.machines["b"].node, "hostname": "a.local"}
    (finding,) = lan.propose().findings
    assert "two machines have the name a: 192.168.1.10, 192.168.1.11" in str(finding)


def test_a_machine_of_another_kind_is_left_out_unless_it_was_asked_for_alone() -> None:
    lan = Lan("ab", generic="g").join(("a", 1), ("b", 1))
    found = lan.propose()
    assert (found.findings, [one.name for one, _why in found.left_out]) == ([], ["g"])
    lan.machines["g"].given = True
    (finding,) = lan.propose().findings
    assert "neither a DGX Spark nor a Jetson Thor (product unknown, GPUs none)" in finding.what


def test_only_other_machines_are_one_message() -> None:
    (finding,) = Lan(generic="gh").propose().findings
    assert "none of the machines that answered" in finding.what


@pytest.mark.parametrize(("topology", "stops"), [("direct", False), ("lan", True)])
def test_two_address_ranges_stop_only_what_needs_one(topology: str, stops: bool) -> None:
    lan = Lan("ab").join(("a", 1), ("b", 1))
    lan.machines["b"].node["management"]["cidr"] = "192.168.2.11/24"
    found = lan.propose(topology)
    told = [finding.what for finding in found.findings] if stops else found.notes
    assert any("192.168.1.0/24: a (192.168.1.10); 192.168.2.0/24: b" in text for text in told)
    assert bool(found.findings) is stops


def test_a_topology_that_was_asked_for_must_fit_the_number_of_machines() -> None:
    (finding,) = Lan("abc").join(("a", 1), ("b", 1), ("c", 1)).propose("direct").findings
    assert finding.what == "discover_topology is direct, and 3 DGX Spark answered"


def test_the_fabric_gets_a_range_that_no_machine_uses_or_reaches() -> None:
    lan = Lan("ab").join(("a", 1), ("b", 1))
    lan.machines["a"].node["routes"].append({"dst": "10.96.0.0/12", "dev": "wg0"})
    assert lan.propose().cidr == "10.112.0.0/16"


def test_the_default_route_of_a_vpn_takes_no_range() -> None:
    """OpenVPN writes it as two halves (redirect-gateway def1)."""
    lan = Lan("ab").join(("a", 1), ("b", 1))
    lan.machines["a"].node["routes"] += [{"dst": half, "dev": "tun0"} for half in ("0.0.0.0/1", "128.0.0.0/1")]
    assert lan.propose().cidr == RANGES[0]


def test_the_front_proxies_address_is_no_machines() -> None:
    """It is on one head today and on another tomorrow: an inventory that names it would be wrong then."""
    lan = Lan("ab")
    virtual = Lan.machine("a", "spark", "192.168.1.5")
    for machine in (virtual, *lan.machines.values()):
        machine.node["declared"] = {"virtual": "192.168.1.5"}
    found, _notes = once([virtual, *lan.machines.values()])
    assert [machine.address for machine in found] == ["192.168.1.10", "192.168.1.11"]
    alone = propose([virtual, lan.machines["b"]])
    assert [item.host for item in alone.findings] == ["a (192.168.1.5)"]
    assert "the address of all front proxies" in alone.findings[0].what


def test_a_machine_that_answers_twice_counts_once_by_its_wired_address() -> None:
    lan = Lan("ab")
    wifi = Lan.machine("a", "spark", "192.168.1.99")
    wifi.node["management"]["netdev"] = "wlP9s9"
    found, notes = once([wifi, *lan.machines.values()])
    assert [machine.address for machine in found] == ["192.168.1.10", "192.168.1.11"]
    assert notes == ["a answers on 192.168.1.10 and on 192.168.1.99: the first one is used"]


HOSTILE_NAMES = [
    "a:\n      vars:\n        x: \"{{ lookup('pipe', 'id') }}\"\n    b",
    "a\n",
    "a\x85b",
    "a\u2028b",
    "a\u2029b",
    "a\x1b]52;c;eA==\x07",
    "a\u202eb",
    "{{ lookup('pipe','id') }}",
    "{%if%}",
    "!unsafe",
    "&a",
    "*a",
    "a b",
    "a#b",
    "a_b",
    "a:b",
    "a/../b",
    "-a",
    "a-",
    ".a",
    "a..b",
    "a.b_c",
    "bücher",
    "a" * 64,
    "\u0661",
    " ",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_what_is_no_host_name_is_refused_with_the_machines_address(name: str) -> None:
    lan = Lan("ab").join(("a", 1), ("b", 1))
    lan.machines["b"].node = {**lan.machines["b"].node, "hostname": name}
    (finding,) = lan.propose().findings
    assert (finding.host, finding.where) == ("192.168.1.11", "hostname")
    assert str(finding).startswith("host 192.168.1.11: hostname: ")
    assert "hostnamectl" in finding.fix
    assert str(finding).isprintable()
    assert lan.machines["b"].name == "192.168.1.11"


@pytest.mark.parametrize("name", ["all", "localhost", "Cluster", "sparks", "localhost.localdomain", "ungrouped"])
def test_names_that_an_inventory_gives_to_something_else_are_refused(name: str) -> None:
    lan = Lan("ab").join(("a", 1), ("b", 1))
    lan.machines["b"].node = {**lan.machines["b"].node, "hostname": name}
    (finding,) = lan.propose().findings
    assert finding.host == "192.168.1.11"
    assert "what an inventory calls something else" in finding.what


def test_names_that_differ_in_case_alone_are_one_name() -> None:
    lan = Lan("ab")
    lan.machines["b"].node = {**lan.machines["b"].node, "hostname": "A"}
    (finding,) = lan.propose().findings
    assert "two machines have the name" in finding.what


def test_a_machine_left_out_brings_no_name_and_no_kind_of_its_own() -> None:
    lan = Lan("ab", generic="g").join(("a", 1), ("b", 1))
    lan.machines["g"].node = {**lan.machines["g"].node, "hostname": HOSTILE_NAMES[0], "kind": "spark\nevil: 1"}
    found = lan.propose()
    assert found.findings == []
    assert [(one.name, why) for one, why in found.left_out] == [("192.168.1.12", "a generic machine")]


def test_a_ring_of_four_is_drawn_and_not_called_a_switch() -> None:
    lan = (
        Lan("abcd").join(("a", 0), ("b", 1)).join(("b", 0), ("c", 1)).join(("c", 0), ("d", 1)).join(("d", 0), ("a", 1))
    )
    found = lan.propose("switch")
    assert [finding.id for finding in found.findings] == ["shape"]
    assert "cabled as a ring: a - b - c - d - a" in found.findings[0].what
    found = lan.propose()
    assert (found.topology, names(found), found.findings) == ("ring", list("abcd"), [])


def row(order: str, *turned: str, closed: bool = True) -> Lan:
    """A ring or a line in this order, from cage 0 to cage 1, but for the hosts whose cables changed places."""
    lan = Lan("".join(sorted(order)))
    for one, two in itertools.pairwise(order + (order[0] if closed else "")):
        lan.join((one, int(one in turned)), (two, int(two not in turned)))
    return lan


@pytest.mark.parametrize("order", ["abcd", "acbd", "abcde", "adbec", "abcdefgh"])
def test_a_ring_of_many_is_listed_in_the_order_of_its_cables(order: str) -> None:
    found = row(order).propose()
    assert (found.topology, "".join(names(found)), found.findings) == ("ring", order, [])
    assert Cables(list(row(order).machines.values())).drawing() == [" p0=p1 ".join(order + order[0])]


@pytest.mark.parametrize("order", ["abc", "cab", "abcd", "dacb"])
def test_a_line_is_listed_in_the_order_of_its_cables_and_says_what_it_costs(order: str) -> None:
    found = row(order, closed=False).propose()
    assert (found.topology, "".join(names(found)), found.findings) == ("line", order, [])
    assert f"a cable from {order[-1]} cage 0 to {order[0]} cage 1 makes it one" in found.notes[0]


def test_a_line_at_whose_end_a_cable_hangs_is_a_ring_with_a_fault() -> None:
    lan = row("abcd", closed=False)
    lan.plug("a", 1)
    found = lan.propose()
    assert [(finding.host, finding.what[:24]) for finding in found.findings] == [
        ("a", "cage 1 has a cable, but "),
        ("d", "cage 0 has no cable, whi"),
    ]


def test_cables_in_the_wrong_cages_of_a_longer_row_are_named() -> None:
    assert [finding.fix for finding in row("abcde", "c").propose().findings] == ["swap the two cables at c"]
    # equal cages at both ends of each cable, as some build it: every other machine is turned
    assert [finding.host for finding in row("abcd", "a", "c").propose().findings] == ["a", "c"]
    (finding,) = row("abc", "c", closed=False).propose().findings
    assert finding.fix == "move the cable at c to its other cage"


def test_a_doubled_cable_is_drawn() -> None:
    lan = (
        Lan("abcd").join(("a", 0), ("b", 1)).join(("a", 1), ("b", 0)).join(("c", 0), ("d", 1)).join(("c", 1), ("d", 0))
    )
    (finding,) = lan.propose("ring").findings
    assert finding.what == "the cables make no ring: a p0=p1 b p0=p1 a; c p0=p1 d p0=p1 c"


@pytest.mark.parametrize("wanted", ["", "switch"])
def test_two_pairs_are_no_switch(wanted: str) -> None:
    found = Lan("abcd").join(("a", 0), ("b", 0)).join(("c", 0), ("d", 0)).propose(wanted)
    assert "cables go from machine to machine: a, b; c, d" in found.findings[0].what


def two_ways(first: tuple[str, str], second: tuple[str, str], routes: list[str]) -> list[Machine]:
    """One machine that answered on two NICs."""
    found = []
    one = Lan.machine("a", "spark", first[1])
    for netdev, address in (first, second):
        machine = copy.deepcopy(one)
        machine.address = address
        machine.node["management"] = {"netdev": netdev, "address": address, "cidr": f"{address}/24"}
        machine.node["routes"] = [{"dst": "default", "dev": route} for route in routes]
        found.append(machine)
    return found


@pytest.mark.parametrize("routes", [[], ["enp1s0f0np0", "enP7s7"], ["enp1s0f0np0"]])
def test_an_address_of_the_fabric_is_not_taken_where_there_is_another(routes: list[str]) -> None:
    machines, notes = once(two_ways(("enp1s0f0np0", "10.20.3.3"), ("enP7s7", "10.10.10.126"), routes))
    assert [machine.address for machine in machines] == ["10.10.10.126"]
    assert notes == ["a answers on 10.10.10.126 and on 10.20.3.3: the first one is used"]


def test_a_machine_that_answers_on_its_fabric_alone_is_a_finding() -> None:
    only = two_ways(("enp1s0f0np0", "10.20.3.3"), ("enp1s0f0np0", "10.20.3.3"), [])[:1]
    only[0].node["interfaces"] = [{"name": "enP7s7", "addresses": [{"address": "10.10.10.126/24", "scope": "global"}]}]
    found = propose(only)
    assert "it answered only on 10.20.3.3 of enp1s0f0np0, a NIC of its fabric" in found.findings[0].what
    assert found.findings[0].fix == "give discover_addresses 10.10.10.126"


@pytest.mark.parametrize(
    ("switches", "cages", "both"),
    [
        # the cables of d are in each other's switches
        (("a0 b0 c0 d1", "a1 b1 c1 d0"), {}, {"d": [1, 0]}),
        (("a1 b0 c0 d0", "a0 b1 c1 d1"), {}, {"b": [1, 0], "c": [1, 0], "d": [1, 0]}),
        # d has one cable, in the other switch
        (("a0 b0 c0", "a1 b1 c1 d1"), dict.fromkeys("abcd", 1), None),
        (("a0 b0 c0", "a1 b1 c1 d0"), {**dict.fromkeys("abc", 1), "d": 0}, None),
    ],
)
def test_cages_are_those_of_one_network(
    switches: tuple[str, ...], cages: dict[str, int], both: dict[str, list[int]] | None
) -> None:
    lan = Lan("abcd")
    for switch in switches:
        lan.join(*((end[0], int(end[1])) for end in switch.split()))
    found = lan.propose()
    assert (found.topology, found.findings) == ("switch", [])
    assert found.both == ({} if both is None else {name: both.get(name, [0, 1]) for name in "abcd"})
    assert found.cages == (cages or {name: order[0] for name, order in found.both.items()})


def test_switches_of_which_none_joins_all_are_a_finding() -> None:
    lan = Lan("abcd").join(("a", 0), ("b", 0), ("c", 0)).join(("b", 1), ("c", 1), ("d", 1))
    (finding,) = lan.propose().findings
    assert finding.what == (
        "no network joins the 4 machines by one cage of each: a cage 0, b cage 0, c cage 0; b cage 1, c cage 1, "
        "d cage 1"
    )
