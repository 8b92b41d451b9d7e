# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the fabric: cables, MTU, throttled ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import RULES, ev, found, interface, world


def narrow_pcie(case: Case) -> None:
    netdev = case.links("a")[0]["netdev"]
    ev(case, "a")["pcie"][netdev] = {"current_link_width": "1", "max_link_width": "16"}


def lowered_mtu_on_both(case: Case) -> None:
    for link in case.links("a"):
        for nic in ev(case, "a")["node"]["interfaces"]:
            if nic["name"] == link["netdev"]:
                nic["mtu"] = 1500


def test_one_dead_port_of_a_switch_is_one_finding() -> None:
    case = world(("a", "b", "c", "d"), "switch")
    dead = case.links("c")[0]["netdev"]
    address = case.links("c")[0]["address"].partition("/")[0]
    for host in case.hosts:
        for ping in ev(case, host)["pings"]:
            if (host == "c" and ping["netdev"] == dead) or ping["address"] == address:
                ping.update(small=False, full=False, error="no answer")
    assert found(case) == [("link-silent", ("a", "b", "c", "d"))]
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    assert (findings[0].finding.host, findings[0].finding.where) == ("c", dead)


@pytest.mark.parametrize(("lit", "rule", "hosts"), [(True, "nic-gone", ("b",)), (False, "cable-down", ("a", "b"))])
def test_an_absent_nic_is_lost_where_its_cable_s_other_end_is_lit(lit: bool, rule: str, hosts: tuple[str, ...]) -> None:
    """A Spark takes a cage without a cable off the bus as well."""
    case = world()
    for link in case.links("a"):
        case.interfaces("a")[link["netdev"]]["carrier"] = lit
    kept = [nic for nic in ev(case, "b")["node"]["interfaces"] if nic["name"] == "enP7s7"]
    ev(case, "b")["node"]["interfaces"] = kept
    ev(case, "b")["rdma"]["links"] = []
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    first = next(one for one in findings if one.rule.id != "nic-name-absent")
    assert (first.rule.id, tuple(sorted(first.touches()))) == (rule, hosts)
    if lit:
        assert [one.rule.id for one in findings] == ["nic-gone"]
        assert "enp1s0f1np1 is absent, and a: enp1s0f1np1 has a carrier" in first.evidence


@pytest.mark.parametrize("topology", ["direct", "switch"])
def test_a_renamed_nic_is_no_cable_and_not_gone(topology: str) -> None:
    case = world(("a", "b", "c") if topology == "switch" else ("a", "b"), topology)
    renamed = case.interfaces("b")["enp1s0f1np1"]
    renamed.update(name="fabric0", pci="0000:01:00.1")
    ev(case, "b")["rdma"]["links"][0]["netdev"] = "fabric0"
    ev(case, "b")["nic_pci"] = ["0000:01:00.1", "0002:01:00.1"]
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    assert [(one.rule.id, one.touches()) for one in findings] == [("nic-renamed", {"b"})]
    assert "NIC enp1s0f1np1 is now called fabric0" in findings[0].evidence
    assert "sudo ip link set fabric0 name enp1s0f1np1" in findings[0].finding.fix


@pytest.mark.parametrize(("topology", "hosts"), [("direct", ("a", "b")), ("switch", ("a", "b", "c"))])
def test_one_of_two_cables_lost_says_what_is_left(topology: str, hosts: tuple[str, ...]) -> None:
    case = world(hosts, topology, fabric_cages=[0, 1])
    touched = hosts if topology == "direct" else ("b",)
    for host in touched:
        for netdev in ("enp1s0f1np1", "enP2p1s0f1np1"):
            case.interfaces(host)[netdev]["carrier"] = False
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    told = next(one for one in findings if one.rule.id == "cable-down")
    assert tuple(sorted(told.touches())) == touched
    words = "one of two cables is lost: of cage 1; the one of cage 0 is left, and NCCL uses it alone when the serving"
    assert [line[: len(words) + 3] for line in told.evidence if "two cables" in line] == [
        f"{host}: {words}" for host in touched
    ]


def test_a_cable_lost_of_a_ring_has_no_other_to_the_same_host() -> None:
    case = world(("a", "b", "c"), "ring")
    for link in case.links("a"):
        if link["peer"] == "b":
            case.interfaces("a")[link["netdev"]]["carrier"] = False
            case.interfaces("b")[link["peer_netdev"]]["carrier"] = False
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    told = next(one for one in findings if one.rule.id == "cable-down")
    assert not any("two cables" in line for line in told.evidence)


@pytest.mark.parametrize(
    ("pci", "missing"), [(None, False), (["0000:01:00.1", "0002:01:00.1"], False), (["000f:01:00.0"], True), ([], True)]
)
def test_an_absent_nic_on_a_switch_is_named_as_missing_from_pci(pci: list[str] | None, missing: bool) -> None:
    case = world(("a", "b", "c"), "switch")
    first, second = (link["netdev"] for link in case.links("b"))
    kept = [nic for nic in ev(case, "b")["node"]["interfaces"] if nic["name"] == "enP7s7"]
    ev(case, "b")["node"]["interfaces"] = kept
    ev(case, "b")["nic_pci"] = pci
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    told = next(one for one in findings if one.rule.id == "cable-down")
    assert told.finding.cause.startswith(f"b: {first}, b: {second}: missing from PCI.") == missing
    assert ("b: enp1s0f1np1 is absent: PCI 0000:01:00.1 is missing" in told.evidence) == missing


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (narrow_pcie, [("nic-throttled", ("a",))]),
        (lowered_mtu_on_both, [("mtu-mismatch", ("a", "b"))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected


def second_owner_among_hosts(case: Case) -> None:
    """``c`` was given an address of ``b`` by hand."""
    address = case.links("b")[0]["address"].partition("/")[0]
    nic = next(nic for nic in ev(case, "c")["node"]["interfaces"] if nic["name"] == case.links("c")[0]["netdev"])
    nic["addresses"].append({"address": f"{address}/32", "family": "inet", "scope": "global", "dynamic": False})


def stranger_on_the_switch(case: Case) -> None:
    link = case.links("b")[0]
    for host in case.hosts:
        for nic in ev(case, host)["node"]["interfaces"]:
            nic["mac"] = f"4c:bb:47:00:00:0{host}"
        ev(case, host)["neighbours"] = [
            {"netdev": other["netdev"], "address": other["address"].partition("/")[0], "mac": f"4c:bb:47:00:00:0{peer}"}
            for peer in case.hosts
            if peer != host
            for other in case.links(peer)
        ]
    for entry in ev(case, "a")["neighbours"]:
        if entry["address"] == link["address"].partition("/")[0]:
            entry["mac"] = "02:00:00:00:00:99"


@pytest.mark.parametrize(
    ("change", "hosts", "words"),
    [
        (second_owner_among_hosts, ["b", "c"], "c has 10.100.0.2 on enp1s0f1np1 as well"),
        (stranger_on_the_switch, ["a", "b"], "a: 02:00:00:00:00:99 answers for 10.100.0.2, which b has on enp1s0f1np1"),
    ],
)
def test_a_second_owner_of_a_fabric_address(change: Callable[[Case], None], hosts: list[str], words: str) -> None:
    case = world(("a", "b", "c"), "switch")
    change(case)
    [one], _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    assert (one.rule.id, one.finding.host, sorted(one.touches())) == ("address-twice", "b", hosts)
    assert any(words in line for line in one.evidence), one.evidence


def test_neighbours_that_are_right_are_no_finding() -> None:
    case = world(("a", "b", "c"), "switch")
    stranger_on_the_switch(case)
    ev(case, "a")["neighbours"] = []
    assert found(case) == []
    # answered by its other half
    ev(case, "b")["node"]["interfaces"][-1]["mac"] = "4c:bb:47:00:00:bb"
    address = case.links("b")[0]["address"].partition("/")[0]
    ev(case, "a")["neighbours"] = [{"netdev": "enp1s0f1np1", "address": address, "mac": "4c:bb:47:00:00:bb"}]
    assert found(case) == []


def test_an_open_firewall_and_one_that_nobody_watches_over() -> None:
    case = world()
    ev(case, "a")["firewall"] = {"state": "open", "reason": "the table inet sparkthor is not loaded"}
    ev(case, "b")["firewall"] = {"state": "closed", "reason": ""}
    assert found(case) == [("firewall-open", ("a",)), ("firewall-unwatched", ("b",))]
    for host in ("a", "b"):
        ev(case, host)["firewall"] = {"state": "closed", "reason": ""}
        ev(case, host)["units"]["sparkthor-firewall-watch.service"] = {"ActiveState": "active"}
    assert found(case) == []
    # off in the inventory, or amid a change
    ev(case, "a")["units"].clear()
    for state in ("unmanaged", "unconfirmed"):
        ev(case, "a")["firewall"] = {"state": state, "reason": ""}
        assert found(case) == []


def test_a_virtual_address_that_nobody_has_and_one_that_two_have() -> None:
    case, item = world(topology="switch"), {"address": "192.168.1.100/24", "family": "inet", "scope": "global"}
    for host in case.hosts:
        ev(case, host)["node"]["declared"] = {"virtual": "192.168.1.100"}
    both = [("virtual-address-held", ("a", "b"))]
    assert found(case) == both
    ev(case, "b")["node"]["interfaces"][0]["addresses"].append(item)
    assert found(case) == []
    ev(case, "a")["node"]["interfaces"][0]["addresses"].append(item)
    assert found(case) == both


def test_a_bond_with_an_address_in_a_fabric_subnet() -> None:
    case = world(("a", "b", "c"), "switch")
    bond = interface("bond0", "10.100.0.1/30")
    ev(case, "a")["node"]["interfaces"].append({**bond, "kind": "bond", "virtual": True, "carrier": False})
    assert found(case) == [("address-shadowed", ("a",))]
    bond["addresses"][0]["address"] = "10.99.0.1/30"
    assert found(case) == []


def test_fabric_nics_in_a_bond() -> None:
    case = world()
    for nic in ev(case, "a")["node"]["interfaces"]:
        if nic["name"] in {link["netdev"] for link in case.links("a")}:
            nic.update(addresses=[], master="bond0")
    assert found(case) == [("fabric-enslaved", ("a",))]


def test_a_default_route_by_the_fabric() -> None:
    case = world()
    route = {"dst": "default", "dev": case.links("a")[0]["netdev"], "gateway": "192.168.88.1", "protocol": "dhcp"}
    ev(case, "a")["node"]["routes"].insert(0, route)
    assert found(case) == [("default-by-fabric", ("a",))]
    vlan = {**interface("vlan100", "192.168.88.5/24"), "kind": "vlan", "virtual": True, "lower": route["dev"]}
    ev(case, "a")["node"]["interfaces"].append(vlan)
    route["dev"] = "vlan100"
    assert found(case) == [("default-by-fabric", ("a",))]


@pytest.mark.parametrize(
    ("lost", "received", "expected"),
    [
        (812_345, 50_000_000, [("fabric-loses", ("a",))]),
        # some over months
        (20_000, 90_000_000_000, []),
        (300, 1000, []),
        (20_000, 0, []),
    ],
)
def test_packets_that_are_lost_count_by_their_share(lost: int, received: int, expected: list[Any]) -> None:
    case = world()
    ev(case, "a")["rdma_counters"] = {"rocep1s0f0": {"port_rcv_packets": received, "out_of_sequence": lost}}
    assert found(case) == expected
