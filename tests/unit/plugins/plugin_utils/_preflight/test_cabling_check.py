# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cables that end at somebody else than planned, and which one to move."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import cabling_check

from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, A1, B0, B1, World


def test_two_cables_swapped_at_one_host_are_one_message() -> None:
    world = World("ring", ["a", "b", "c"])
    world.cable(("a", 1), ("b", 1))
    world.cable(("a", 0), ("c", 0))
    assert world.errors() == [
        f"host a: its two cables are swapped: NIC {A0} is cabled to c {A0}, NIC {B0} to b {B0}, the plan wants it the "
        "other way; swap the two cables at a: the one from c belongs in cage 1 (away from the RJ45 port), the one from "
        "b in cage 0 (next to the RJ45 port); cabled now: a p0=p0 c p1=p0 b p1=p1 a"
    ]


def test_ends_of_two_cables_swapped_between_hosts_name_the_ends_to_move() -> None:
    world = World("ring", ["a", "b", "c"])
    # a0-b1 and b0-c1 became a0-c1 and b0-b1: nobody counts frames of its own
    world.cable(("a", 0), ("c", 1))
    for name in (A0, A1, B0, B1):
        world.probes["b"]["neighbours"].pop(name)
    errors = world.errors()
    assert errors[0] == (
        f"host a: NIC {A0} is cabled to c {B0}, the plan wants b {B0} there; move the end that is in cage 1 (away from "
        "the RJ45 port) of c to cage 1 (away from the RJ45 port) of b"
    )
    assert f"host c: NIC {B0} is cabled to a {A0}, the plan wants b {A0} there" in errors[1]
    assert all(f"host b: NIC {name} has a carrier, but nobody" in " ".join(errors) for name in (A0, A1, B0, B1))


def test_a_ring_the_other_way_round_asks_for_the_hosts_in_another_order() -> None:
    world = World("ring", ["a", "b", "c"])
    world.cable(("a", 0), ("c", 1))
    world.cable(("c", 0), ("b", 1))
    world.cable(("b", 0), ("a", 1))
    errors = world.errors()
    assert len(errors) == 6
    assert all("the ring runs the other way round: list the hosts as a, c, b" in error for error in errors)


def ring(world: World, order: str, closed: bool = True) -> None:
    for one, two in itertools.pairwise(order + (order[0] if closed else "")):
        world.cable((one, 0), (two, 1))


@pytest.mark.parametrize("count", [4, 5])
def test_a_longer_ring_as_planned_is_no_finding_and_in_another_order_asks_for_that(count: int) -> None:
    hosts = list("abcde")[:count]
    world = World("ring", hosts)
    assert world.errors() == []
    other = "acb" + "".join(hosts[3:])
    ring(world, other)
    assert f"another order: list them as {', '.join(other)} (the first is the head)" in world.errors()[0]
    ring(world, "a" + "".join(reversed(hosts[1:])))
    assert all("the ring runs the other way round: list the hosts as a, " in error for error in world.errors())


def test_a_line_as_planned_and_the_other_way_round() -> None:
    world = World("line", list("abc"))
    assert world.errors() == []
    world = World("line", list("abcd"))
    ring(world, "bacd", closed=False)
    for name in (B0, B1):
        world.probes["b"]["neighbours"][name] = []
    errors = world.errors()
    assert "list them as b, a, c, d (the first is the head)" in errors[0]
    assert errors[-1].endswith("cabled now: b p0=p1 a p0=p1 c p0=p1 d")


def test_a_doubled_cable_on_a_ring_of_four_names_the_cable_to_move_and_draws() -> None:
    world = World("ring", list("abcd"))
    world.cable(("a", 0), ("b", 1))
    world.cable(("b", 0), ("a", 1))
    world.cable(("c", 0), ("d", 1))
    world.cable(("d", 0), ("c", 1))
    errors = world.errors()
    assert f"host a: NIC {B0} is cabled to b {A0}, the plan wants d {A0} there; move the end" in " ".join(errors)
    assert errors[-1].endswith("cabled now: a p0=p1 b p0=p1 a; c p0=p1 d p0=p1 c")


def test_a_missing_cable_of_a_ring_is_drawn() -> None:
    world = World("ring", list("abcd"))
    world.cut("b", A0, A1)
    world.cut("c", B0, B1)
    errors = world.errors()
    assert f"host b: NIC {A0} has no carrier" in errors[0]
    assert errors[-1].endswith("cabled now: b p1=p0 a p1=p0 d p1=p0 c")
    assert sum("cabled now" in error for error in errors) == 1


def test_a_nic_may_hear_both_halves_of_the_right_cage() -> None:
    world = World("direct", ["a", "b"])
    for host, other in (("a", "b"), ("b", "a")):
        for name in (B0, B1):
            world.probes[host]["neighbours"][name] = [{"host": other, "netdev": B1}, {"host": other, "netdev": B0}]
    assert world.check() == []


def test_a_carrier_behind_which_nobody_answers() -> None:
    world = World("direct", ["a", "b"])
    for host in "ab":
        world.probes[host]["neighbours"] = {}
    errors = world.errors()
    assert len(errors) == 4
    assert f"host a: NIC {B0} has a carrier, but nobody of this cluster answers on it" in errors[0]


def test_probe_and_check_agree_on_what_a_neighbour_is() -> None:
    assert neighbors.port_of(A0) == neighbors.port_of(A1) == "np0"
    assert neighbors.port_of("eth7") == "eth7"


def heard(world: World, parts: str) -> None:
    """Every host of a part hears the others of it, by the cage of its plan."""
    for part in parts.split():
        for host in part:
            for link in world.plan[host]["links"]:
                seen = [{"host": other, "netdev": link["netdev"]} for other in part if other != host]
                world.probes[host]["neighbours"][link["netdev"]] = seen


def test_a_switch_that_joins_all_is_no_finding_and_neither_is_silence() -> None:
    world = World("switch", list("abcd"))
    assert world.errors() == []
    heard(world, "abcd")
    assert world.errors() == []


def test_a_ring_where_a_switch_is_declared() -> None:
    world = World("switch", list("abcd"))
    for one, two in ("ab", "bc", "cd", "da"):
        world.cable((one, 0), (two, 1))
    errors = world.errors()
    assert len(errors) == 1
    assert "the hosts are cabled as a ring (a - b - c - d - a)" in errors[0]


def test_pairs_and_a_line_where_a_switch_is_declared() -> None:
    world = World("switch", list("abcd"))
    world.cable(("a", 0), ("b", 0))
    world.cable(("c", 0), ("d", 0))
    assert "cabled as pairs" in world.errors()[0]
    world.cable(("b", 1), ("c", 1))
    assert "cabled as a line (a - b - c - d)" in world.errors()[0]


def test_two_switches_without_a_way_between_them() -> None:
    world = World("switch", list("abcdef"))
    heard(world, "abc def")
    errors = world.errors()
    assert len(errors) == 1
    assert errors[0].startswith(
        "hosts d, e, f: these hosts hear each other on the fabric and not the others: a, b, c; d, e, f"
    )
    assert "RSTP" in errors[0]


def test_one_host_in_another_vlan() -> None:
    world = World("switch", list("abc"))
    heard(world, "ab")
    errors = world.errors()
    assert errors[0].startswith("host c: ")
    assert "in one VLAN" in errors[0]


def test_what_a_port_would_hear_that_stays_down_is_not_known() -> None:
    """In check mode a host that is new; three others serve."""
    world = World("switch", list("abcd"))
    heard(world, "abc")
    for state in world.probes["d"]["ports"].values():
        state.update(up=False, carrier=None)
    assert world.errors() == []
    # with one half up there is something to hear, and nobody is heard
    next(iter(world.probes["d"]["ports"].values())).update(up=True, carrier=True)
    assert world.errors()[0].startswith("host d: ")


def heard_by_a_switch(world: World, parts: str) -> None:
    """The same, and nobody heard what only a cable passes on."""
    heard(world, parts)
    for probe in world.probes.values():
        probe["cabled"] = {netdev: [] for netdev in probe["neighbours"]}


def test_two_switches_of_two_hosts_each_are_no_pairs() -> None:
    world = World("switch", list("abcd"))
    heard_by_a_switch(world, "ab cd")
    assert world.errors()[0].startswith(
        "hosts c, d: these hosts hear each other on the fabric and not the others: a, b; c, d; see that the switch has"
    )
    for host, other in ("ab", "ba", "cd", "dc"):
        world.probes[host]["cabled"][B0] = [other]
    assert "cabled as pairs" in world.errors()[0]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ("sw-1", "sw-2"),
            "a, b (switch sw-1); c, d (switch sw-2); nothing passes between the switches sw-1, sw-2: see that the link",
        ),
        (("sw-1", "sw-1"), "all are on sw-1: put the ports of c, d into the VLAN of the others there"),
        (("sw-1", ""), "lldpd on the hosts tells which of the two it is"),
    ],
)
def test_lldp_tells_a_broken_link_of_two_switches_from_a_wrong_vlan(names: tuple[str, str], words: str) -> None:
    world = World("switch", list("abcd"))
    heard_by_a_switch(world, "ab cd")
    for part, name in zip(("ab", "cd"), names, strict=True):
        for host in part:
            world.probes[host]["switches"] = {B0: name, B1: name} if name else {}
    errors = world.errors()
    assert len(errors) == 1
    assert words in errors[0]


def thor_world(topology: str, hosts: str) -> World:
    world = World(topology, list(hosts), dict.fromkeys(hosts, "thor"))
    for host in hosts:
        names = [link["netdev"] for link in world.plan[host]["links"]]
        world.nodes[host]["interfaces"] = [
            *(one for one in world.nodes[host]["interfaces"] if one["name"] in ("lo", "enP7s7")),
            *({**world.nic(name), "max_mtu": 8966} for name in names),
        ]
        world.probes[host]["rdma"]["links"] = []
    return world


def test_lanes_of_thors_as_planned_are_no_finding() -> None:
    assert thor_world("direct", "tu").check() == []
    world = thor_world("switch", "tuv")
    heard(world, "tuv")
    assert world.check() == []


def test_a_crossed_a_dark_and_a_separated_lane_of_thors() -> None:
    world = thor_world("direct", "tu")
    for host, other in ("tu", "ut"):
        world.probes[host]["neighbours"]["mgbe0_0"] = [{"host": other, "netdev": "mgbe1_0"}]
    assert world.errors()[0] == (
        "host t: NIC mgbe0_0 is cabled to u mgbe1_0, the plan wants u mgbe0_0 there; move the end that is in lane 1 of "
        "the QSFP cage of u to lane 0 of the QSFP cage of u"
    )
    assert world.errors()[-1].endswith(
        "cabled now: t lane 0 = lane 1 u; t lane 1 = lane 1 u; t lane 2 = lane 2 u; t lane 3 = lane 3 u; "
        "u lane 0 = lane 1 t"
    )
    world = thor_world("direct", "tu")
    world.cut("t", "mgbe3_0")
    assert "NIC mgbe3_0 has no carrier" in world.errors()[0]
    assert "name those in fabric_lanes" in world.errors()[0]
    assert world.errors()[-1].endswith("t lane 2 = lane 2 u; u lane 3 = lane 3 t")
    world = thor_world("switch", "tuv")
    heard(world, "tuv")
    for host in "tuv":
        seen = [{"host": other, "netdev": "mgbe2_0"} for other in "tu" if other != host and host != "v"]
        world.probes[host]["neighbours"]["mgbe2_0"] = seen
    assert world.errors()[0].startswith("host v: by lane 2 of t and those with it, these hosts hear each other")


def test_one_rail_of_two_in_parts_is_named_though_the_other_joins_all() -> None:
    world = World("switch", list("abcd"), cage=[0, 1])
    for parts, netdevs in (("abcd", (A0, A1)), ("abc d", (B0, B1))):
        for part in parts.split():
            for host in part:
                for netdev in netdevs:
                    seen = [{"host": other, "netdev": netdev} for other in part if other != host]
                    world.probes[host]["neighbours"][netdev] = seen
    errors = world.errors()
    assert len(errors) == 1
    assert errors[0].startswith("host d: by cage 1 of a and those with it, these hosts hear each other")


def test_two_cables_of_a_pair_of_which_one_is_dark() -> None:
    world = World("direct", list("ab"), cage=[0, 1])
    assert world.errors() == []
    world.cut("a", B0, B1)
    world.cut("b", B0, B1)
    assert f"host a: NIC {B0} has no carrier" in world.errors()[0]
    assert world.errors()[-1].endswith("; cabled now: a p0=p0 b")


def test_two_crossed_cables_of_a_pair_are_swapped_at_one_of_the_hosts() -> None:
    """Swapped at both, they would be as wrong as before."""
    world = World("direct", list("ab"), cage=[0, 1])
    for host, other in ("ab", "ba"):
        for netdev, heard_of in ((A0, B0), (A1, B1), (B0, A0), (B1, A1)):
            world.probes[host]["neighbours"][netdev] = [{"host": other, "netdev": heard_of}]
    errors = world.errors()
    assert len(errors) == 1
    assert errors[0].startswith(f"host a: its two cables are swapped: NIC {A0} is cabled to b {B0}")
    assert errors[0].endswith("swap the two cables at a alone, and leave b as it is; cabled now: a p0=p1 b p0=p1 a")


def peers_up(links: list[dict[str, Any]], hostvars: dict[str, Any]) -> dict[str, bool]:
    return {item["netdev"]: item["peer_up"] for item in cabling_check.with_peers(links, hostvars)}


def facts(**up: bool) -> dict[str, Any]:
    interfaces = [{"name": name, "up": value} for name, value in up.items()]
    return {"ansible_facts": {"sparkthor_node": {"interfaces": interfaces}}}


def link(netdev: str, peer: str, peer_netdev: str) -> dict[str, Any]:
    return {"netdev": netdev, "peer": peer, "peer_netdev": peer_netdev}


def test_the_state_of_the_other_end_goes_along() -> None:
    links = [link("p0", "b", "p1"), link("q0", "b", "q1"), link("p1", "c", "p0"), link("s0", "", "")]
    hostvars = {"b": facts(p1=True, q1=False), "c": facts(p1=True)}
    assert peers_up(links, hostvars) == {"p0": True, "q0": False, "p1": False, "s0": False}
    assert "peer_up" not in links[0], "the plan itself stays as it is"


def test_a_link_to_a_switch_says_who_should_be_heard_there() -> None:
    fabric = World("switch", list("abc")).plan
    found = cabling_check.with_peers(fabric["a"]["links"], {}, "a", fabric, ["a", "b"])
    assert [one["hosts"] for one in found] == [["b"], ["b"]]
    assert all("hosts" not in one for one in cabling_check.with_peers(fabric["a"]["links"], {}, "a", fabric))
    pair = World("direct", list("ab")).plan
    assert all("hosts" not in one for one in cabling_check.with_peers(pair["a"]["links"], {}, "a", pair, ["a", "b"]))


def test_a_peer_without_facts_is_not_known_to_be_up() -> None:
    assert peers_up([link("p0", "b", "p1"), link("p1", "c", "p0")], {"b": {}}) == {"p0": False, "p1": False}


def on_two_switches(world: World, *networks: str) -> None:
    """What frames show where these ports (``a0``: cage 0 of host a) hang on one switch each."""
    for host in world.plan:
        world.probes[host]["neighbours"] = {}
    for network in networks:
        ends = [(end[0], (A0, A1) if end[1] == "0" else (B0, B1)) for end in network.split()]
        for host, netdevs in ends:
            for netdev in netdevs:
                world.probes[host]["neighbours"][netdev] = [
                    {"host": other, "netdev": heard_from} for other, far in ends if other != host for heard_from in far
                ]


@pytest.mark.parametrize(
    ("networks", "host", "words"),
    [
        (("a0 b0 c0 d1", "a1 b1 c1 d0"), "d", "swap the two cables at d"),
        (("a1 b0 c0 d0", "a0 b1 c1 d1"), "a", "swap the two cables at a"),
        (("a0 b1 c0 d1", "a1 b0 c1 d0"), "b", "swap the two cables at b"),
        (("a0 b0 c0 c1 d0", "a1 b1 d1"), "c", "by cage 1 of a and those with it, these hosts hear each other"),
    ],
)
def test_a_host_whose_rails_are_in_the_wrong_switch_is_named(networks: tuple[str, ...], host: str, words: str) -> None:
    world = World("switch", list("abcd"), cage=[0, 1])
    on_two_switches(world, "a0 b0 c0 d0", "a1 b1 c1 d1")
    assert world.errors() == []
    on_two_switches(world, "a0 a1 b0 b1 c0 c1 d0 d1")
    assert world.errors() == [], "one network for both rails is no fault of the cables"
    on_two_switches(world, *networks)
    errors = world.errors()
    assert errors[0].startswith(f"host {host}: ")
    assert words in errors[0]


def test_two_hosts_with_two_switches_between_them_are_swapped_at_one() -> None:
    world = World("switch", list("ab"), cage=[0, 1])
    on_two_switches(world, "a0 b1", "a1 b0")
    errors = world.errors()
    assert len(errors) == 1
    assert errors[0] == (
        "host b: cage 1 is in one network with cage 0 of a, where the plan wants cage 0; cage 0 is in one network with "
        "cage 1 of a, where the plan wants cage 1; swap the two cables at b"
    )


def test_a_cable_in_the_other_cage_though_that_one_has_a_carrier_as_well() -> None:
    world = World("switch", list("abc"))
    on_two_switches(world, "a1 b1 c0")
    world.probes["c"]["neighbours"][B0] = []
    assert world.errors() == [
        "host c: cage 0 is in one network with cage 1 of a, where the plan wants cage 1; move the cable in cage 0 of c "
        "to cage 1, or set fabric_cage: 0 for it"
    ]
    world.cut("c", B0, B1)
    world.interface("c", A0)["carrier"] = True
    (error,) = world.errors()
    assert "has no carrier, but enp1s0f0np0 has: the cable is in cage 0" in error, "said once"


def test_a_host_that_hears_the_others_by_cages_that_the_plan_does_not_use_is_apart() -> None:
    world = World("switch", list("abcd"), cage={"a": 0, "b": 0, "c": 0, "d": 1})
    on_two_switches(world, "a0 b0 c0", "a1 b1 c1 d1")
    (error,) = world.errors()
    assert error.startswith(
        "host d: by cage 0 of a and those with it, these hosts hear each other on the fabric and not"
    )
