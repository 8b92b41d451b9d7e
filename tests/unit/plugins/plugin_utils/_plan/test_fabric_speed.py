# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links that are slower than planned are told once; at 100 by plan 100 is sound."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_speed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import plan_cluster

from tests.unit.plugins.plugin_utils._doctor import sound_cluster
from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, A1, B0, World

NICS = ("one", "two")


def fabric(hosts: str, **speeds: int) -> dict[str, Any]:
    return {host: {"speed": speeds.get(host, 200), "links": [{"netdev": name} for name in NICS]} for host in hosts}


def rates(hosts: str, rate: float) -> dict[str, dict[str, float]]:
    return {host: dict.fromkeys(NICS, rate) for host in hosts}


@pytest.mark.parametrize(
    ("given", "expected"), [({}, 200), ({"fabric_speed": None}, 200), ({"fabric_speed": "100"}, 100)]
)
def test_what_is_planned(given: dict[str, Any], expected: int) -> None:
    assert fabric_speed.planned(given) == expected


def test_a_speed_that_no_link_has_is_said_once_with_its_hosts() -> None:
    sound: list[Any] = [None, "", 100, "200", " 100 "]
    assert (
        fabric_speed.problems({str(number): {"fabric_speed": one} for number, one in enumerate(sound)} | {"a": {}})
        == []
    )
    (finding,) = fabric_speed.problems(
        {"a": {"fabric_speed": 50}, "b": {"fabric_speed": 100}, "c": {"fabric_speed": 50}}
    )
    assert str(finding) == (
        "hosts a, c: fabric_speed: '50': links of a Spark are planned for 100 or 200 Gb/s; give 100 for breakouts and "
        "QSFP28 cables, or leave it out"
    )
    for odd in (True, [100], 150, "100G", {}):
        assert len(fabric_speed.problems({"a": {"fabric_speed": odd}})) == 1


def test_what_all_have_in_common_is_said_once() -> None:
    assert fabric_speed.slow(fabric("abcdefgh"), rates("abcdefgh", 100)) == [
        fabric_speed.Slow(tuple("abcdefgh"), "one, two negotiated 100 Gb/s, planned are 200")
    ]


def test_at_a_planned_hundred_only_less_is_told() -> None:
    plan = fabric("ab", a=100, b=100)
    assert fabric_speed.slow(plan, rates("ab", 100)) == []
    (slow,) = fabric_speed.slow(plan, {**rates("a", 100), "b": {"one": 40, "two": 100}})
    assert (slow.hosts, slow.mixed) == (("b",), True)
    assert slow.what.startswith("NIC one negotiated 40 Gb/s, planned are 100, and other links of this fabric have 100")
    assert "fabric_speed" not in slow.fix, "40 cannot be planned"


def test_other_nics_and_unknown_rates_are_left_out() -> None:
    assert fabric_speed.slow(fabric("a"), {"a": {"eth0": 1, "one": 0}}) == []


def test_one_severity_and_one_message_in_preflight_and_doctor() -> None:
    world = World("switch", list("abcdefgh"))
    case = sound_cluster.world(tuple("abcdefgh"), "switch")
    for host in "abcdefgh":
        for link in world.probes[host]["rdma"]["links"]:
            link["rate"] = 100
        for link in sound_cluster.ev(case, host)["rdma"]["links"]:
            link["rate"] = 100
    before = [(finding.id, finding.severity) for finding in world.check()]
    assert before == [("rate", "warning")]
    assert [name for name, _hosts in sound_cluster.found(case)] == ["link-rate"]
    for host in "abcdefgh":
        world.plan[host]["speed"] = 100
        case.fabric[host]["speed"] = 100
    assert world.check() == []
    assert sound_cluster.found(case) == []


def slowed(world: World, *ends: tuple[str, str]) -> None:
    for host, netdev in ends:
        next(link for link in world.probes[host]["rdma"]["links"] if link["netdev"] == netdev)["rate"] = 100


def test_one_slow_cable_of_a_ring_stops_the_run_with_the_cable_and_a_drawing() -> None:
    world = World("ring", list("abc"))
    cable = [(one["peer"], one["peer_netdev"]) for one in world.plan["b"]["links"] if one["peer"] == "a"]
    slowed(world, *cable, *(("b", one["netdev"]) for one in world.plan["b"]["links"] if one["peer"] == "a"))
    (error,) = world.errors()
    assert error.startswith(
        f"hosts a, b: NIC {A0}, {A1} to b {B0} negotiated 100 Gb/s, planned are 200, and other links of this fabric "
        "have 200"
    )
    assert "replace the cable from cage 0 (next to the RJ45 port) of a to cage 1 (away from the RJ45 port)" in error
    assert "set fabric_speed: 100 for a; cabled now: a p0=p1 b p0=p1 c p0=p1 a" in error
    assert world.errors(accept=["rate", "speed"]) == [error], "fabric_speed is the way to accept it"
    for host in "ab":
        world.plan["a"].pop("speed", None)
        world.plan["b"].pop("speed", None)
        world.plan[host]["speed"] = 100
        assert world.check() == [], f"declared at {host}, one of its two ends"


def test_one_slow_host_on_a_switch_is_the_same_finding_in_preflight_and_doctor() -> None:
    world, case = World("switch", list("abc")), sound_cluster.world(tuple("abc"), "switch")
    slowed(world, *(("b", one["netdev"]) for one in world.plan["b"]["links"]))
    for link in sound_cluster.ev(case, "b")["rdma"]["links"]:
        link["rate"] = 100
    (error,) = world.errors()
    assert error.startswith("host b: NIC enp1s0f1np1, enP2p1s0f1np1 negotiated 100 Gb/s")
    assert "set its port of the switch to 200 Gb/s without negotiation" in error
    assert sound_cluster.found(case) == [("link-speeds-mixed", ("b",))]
    world.plan["b"]["speed"] = case.fabric["b"]["speed"] = 100
    assert world.check() == []
    assert sound_cluster.found(case) == []


def test_the_plan_of_the_cluster_carries_it() -> None:
    case = sound_cluster.world()
    nodes = {host: dict(sound_cluster.ev(case, host)["node"]) for host in "ab"}
    groups = {"cluster": ["a", "b"], "ray_head": ["a"], "ray_workers": ["b"]}
    shared = {"fabric_topology": "direct", "fabric_cidr": "10.100.0.0/16"}
    hostvars = {"a": shared, "b": {**shared, "fabric_speed": 100}}
    _cluster, plan, _warnings = plan_cluster(groups, ["a", "b"], hostvars, nodes)
    assert [plan[host]["speed"] for host in "ab"] == [200, 100]
