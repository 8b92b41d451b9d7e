# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fabric ports without a carrier, in the wrong cage, down, or with too small an MTU."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import errors_and_others
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.fabric_check import check_facts

from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, A1, B0, B1, World


def test_a_cable_in_the_other_cage() -> None:
    world = World("direct", ["a", "b"])
    world.cut("b", B0, B1)
    for name in (A0, A1):
        world.interface("b", name)["carrier"] = True
    error, *rest = world.errors()
    assert error == (
        f"host b: NIC {B0} has no carrier, but {A0} has: the cable is in cage 0 (next to the RJ45 port), the plan uses "
        "cage 1 (away from the RJ45 port); set fabric_cage: 0 for this host (hosts may differ), or move the cable"
    )
    assert all("NIC enp1s0f1np1 has a carrier" in item or "enP2p1s0f1np1" in item for item in rest)


def test_no_cable_at_all_names_every_nic_and_the_other_end() -> None:
    world = World("ring", ["a", "b", "c"])
    world.cut("a", A0, A1)
    world.cut("b", B0, B1)
    errors = world.errors()
    assert len(errors) == 4
    assert f"host a: NIC {A0} has no carrier; plug the cable to b {B0} into cage 0" in errors[0]
    assert f"host b: NIC {B1} has no carrier; plug the cable to a {A1} into cage 1" in errors[3]


def test_one_half_down() -> None:
    world = World("switch", ["a", "b", "c"])
    world.cut("c", B1)
    (error,) = world.errors()
    assert f"host c: NIC {B1} has no carrier though {B0}, the other half of the same cage, has" in error
    assert "half its speed; reseat the cable" in error


def test_a_half_that_left_the_bus() -> None:
    world = World("switch", ["a", "b"])
    world.nodes["a"]["interfaces"] = [link for link in world.nodes["a"]["interfaces"] if link["name"] not in (B0, B1)]
    for name in (B0, B1):
        world.probes["a"]["ports"][name] = {"present": False, "up": False, "carrier": None, "mtu": 0}
    errors = world.errors()
    assert len(errors) == 2
    assert all("is not there; an uncabled ConnectX-7 leaves the PCI bus" in error for error in errors)


def test_a_renamed_nic_is_told_by_its_new_name() -> None:
    world = World("direct", ["a", "b"])
    for name, pci in ((B0, "0000:01:00.1"), (B1, "0002:01:00.1")):
        world.interface("b", name).update(name=f"fabric{pci[3]}", pci=pci)
        world.probes["b"]["ports"][name] = {"present": False, "up": False, "carrier": None, "mtu": 0}
    told = [problem for problem in world.check() if problem.host == "b"]
    assert [(problem.what, problem.where) for problem in told] == [
        (f"NIC {B0} is now called fabric0", B0),
        (f"NIC {B1} is now called fabric2", B1),
    ]
    assert f"sudo ip link set fabric0 name {B0}" in told[0].fix


def test_check_mode_reports_ports_that_are_down_as_unknown() -> None:
    world = World("direct", ["a", "b"])
    for name in (B0, B1):
        world.probes["b"]["ports"][name] = {"present": True, "up": False, "carrier": None, "mtu": 1500}
        world.interface("b", name).update(up=False, carrier=False)
        world.probes["a"]["neighbours"].pop(name)
    world.probes["b"]["neighbours"] = {}
    problems = world.check()
    assert {problem.severity for problem in problems} == {"unknown"}
    assert {(problem.host, problem.where) for problem in problems} == {("a", B0), ("a", B1), ("b", B0), ("b", B1)}


def test_a_port_facing_one_that_is_down_is_unknown_too() -> None:
    world = World("direct", ["a", "b"])
    for name in (B0, B1):
        world.probes["b"]["ports"][name] = {"present": True, "up": False, "carrier": None, "mtu": 1500}
    world.probes["b"]["neighbours"] = {}
    world.cut("a", B0, B1)
    errors, others = errors_and_others(world.check())
    assert errors == []
    assert f"host a: NIC {B0} has no carrier, but b {B0} at its other end is administratively down" in others[0]


def test_without_a_probe_the_facts_alone_are_judged() -> None:
    world = World("direct", ["a", "b"])
    world.cut("a", B1)
    problems = check_facts(world.plan, world.nodes)
    assert [(problem.id, problem.host, problem.where) for problem in problems] == [("half", "a", B1)]


def test_mtu_beyond_the_nic() -> None:
    world = World("direct", ["a", "b"])
    world.interface("a", B0)["max_mtu"] = 4000
    (error,) = world.errors()
    assert (
        error
        == f"host a: NIC {B0} can do an MTU of 4000 at most, fabric_mtu asks for 9000; set fabric_mtu: 4000 or less"
    )


def test_a_pair_cabled_from_one_cage_to_the_other_is_one_message_and_no_wrong_cable() -> None:
    world = World("direct", ["a", "b"])
    world.cut("b", B0, B1)
    for name in (A0, A1):
        world.interface("b", name)["carrier"] = True
    world.cable(("a", 1), ("b", 0))
    (error,) = world.errors()
    assert "set fabric_cage: 0 for this host" in error
