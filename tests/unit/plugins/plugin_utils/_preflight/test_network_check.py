# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses and routes of a host that conflict with the plan."""

from __future__ import annotations

import typing as t

import pytest

from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, A1, B0, B1, World

OVERLAPS = [
    (
        "interface",
        lambda w: w.nodes["b"]["interfaces"].append(w.nic("docker0", "10.100.0.1/16")),
        "docker0 has 10.100.0.1/16",
    ),
    (
        "route",
        lambda w: w.nodes["b"]["routes"].append(w.route("10.0.0.0/8", "192.168.1.254", "enP7s7", "static")),
        "route 10.0.0.0/8 via 192.168.1.254 dev enP7s7 overlaps the planned 10.100.0.0/25",
    ),
    (
        "gateway",
        lambda w: w.nodes["b"]["routes"].append(w.route("172.30.0.0/16", "10.100.0.200", "wlP9s9", "static")),
        "the gateway of route 172.30.0.0/16 via 10.100.0.200 dev wlP9s9 is in the planned 10.100.0.128/25",
    ),
    (
        "route on a fabric NIC",
        lambda w: w.nodes["b"]["routes"].append(w.route("10.100.0.64/26", "", B0, "static")),
        "route 10.100.0.64/26 dev enp1s0f1np1 overlaps",
    ),
    (
        "other cage",
        lambda w: w.interface("b", A0)["addresses"].append({"address": "10.100.0.9/25", "scope": "global"}),
        f"NIC {A0} has 10.100.0.9/25",
    ),
]


@pytest.mark.parametrize(("breaks", "words"), [case[1:] for case in OVERLAPS], ids=[case[0] for case in OVERLAPS])
def test_overlap_with_anything_there(breaks: t.Callable[[World], None], words: str) -> None:
    world = World("switch", ["a", "b"])
    breaks(world)
    (error,) = world.errors()
    assert error.startswith("host b: ")
    assert words in error
    assert "choose a fabric_cidr" in error


def test_a_connected_route_is_not_told_twice() -> None:
    world = World("switch", ["a", "b"])
    world.nodes["b"]["interfaces"].append(world.nic("wg0", "10.100.0.77/24"))
    world.nodes["b"]["routes"].append(world.route("10.100.0.0/24", "", "wg0", "kernel"))
    assert len(world.errors()) == 1


@pytest.mark.parametrize(("dynamic", "errors"), [(True, 0), (False, 1)])
def test_leases_of_the_factory_s_profiles_on_both_halves_are_taken_over(dynamic: bool, errors: int) -> None:
    """A switch whose DHCP server answers on its data ports (CRS804): both halves are in its one range."""
    world = World("switch", ["a", "b"])
    for number, link in enumerate(world.plan["a"]["links"], 245):
        address = {"address": f"192.168.88.{number}/24", "family": "inet", "scope": "global", "dynamic": dynamic}
        world.interface("a", link["netdev"])["addresses"].append(address)
    assert len(world.errors()) == errors


def test_the_two_halves_of_a_vpn_s_default_route_are_no_overlap() -> None:
    world = World("direct", ["a", "b"])
    world.nodes["a"]["routes"] += [
        world.route(half, "10.8.0.1", "tun0", "static") for half in ("0.0.0.0/1", "128.0.0.0/1")
    ]
    assert world.errors() == []


def test_what_our_own_file_set_before_is_no_overlap() -> None:
    world = World("switch", ["a", "b"])
    world.interface("b", A0)["addresses"].append({"address": "10.100.0.2/25", "scope": "global"})
    world.nodes["b"]["routes"].append(world.route("10.100.0.0/25", "", A0, "kernel"))
    world.probes["b"]["netplan"]["own"] = [A0, A1]
    assert world.check() == []


def test_halves_in_one_subnet() -> None:
    world = World("direct", ["a", "b"])
    world.interface("a", B0)["addresses"].append({"address": "192.168.100.10/24", "scope": "global"})
    world.interface("a", B1)["addresses"].append({"address": "192.168.100.11/24", "scope": "global"})
    (error,) = world.errors()
    assert f"host a: NICs {B0} (192.168.100.10/24) and {B1} (192.168.100.11/24) are in one subnet" in error
    (replaced,) = world.check(replace_foreign=True)
    assert replaced.severity == "warning"


def test_link_local_halves_are_left_to_the_netplan_findings() -> None:
    world = World("direct", ["a", "b"])
    for name, last in ((B0, 1), (B1, 2)):
        world.interface("a", name)["addresses"].append({"address": f"169.254.3.{last}/16", "scope": "link"})
    assert world.check() == []


def test_a_lan_is_taken_as_it_is() -> None:
    world = World("lan", ["a", "b"], mtu=9000)
    world.interface("a", "enP7s7")["carrier"] = False
    errors = world.errors()
    assert "host a: NIC enP7s7 has no carrier" in errors[0]
    assert sum("has an MTU of 1500, fabric_mtu asks for 9000; on a lan nothing is configured" in e for e in errors) == 2
    world = World("lan", ["a", "b"])
    world.interface("b", "enP7s7")["mtu"] = 9000
    (problem,) = world.check()
    assert (problem.severity, problem.host) == ("warning", "b")
    world.interface("b", "enP7s7")["addresses"] = []
    assert "does not have 192.168.1.12/24" in world.errors()[0]


@pytest.mark.parametrize(
    ("topology", "hosts", "address", "told"),
    [
        ("lan", "ab", "192.168.1.50/24", True),
        ("ring", "abc", "192.168.1.50/24", True),
        ("lan", "ab", "192.168.2.50/24", False),
        # nobody else's firewall expects anything of it
        ("lan", "a", "192.168.1.50/24", False),
    ],
)
def test_a_second_nic_in_the_network_of_the_peers_is_told(topology: str, hosts: str, address: str, told: bool) -> None:
    world = World(topology, list(hosts))
    world.nodes["a"]["interfaces"].append(world.nic("wlP9s9", address))
    found = [str(finding) for finding in world.check() if finding.id == "second_nic"]
    assert world.errors() == []
    assert len(found) == told
    assert all(f"NIC wlP9s9 ({address}) is in the network of enP7s7 (192.168.1.11)" in text for text in found)


@pytest.mark.parametrize(
    ("topology", "hosts", "source", "second", "told"),
    [
        ("lan", "ab", "192.168.1.50", "192.168.1.50/24", True),
        ("line", "abc", "", "192.168.1.50/24", True),
        # what the host sends comes from the address that peers know
        ("lan", "ab", "192.168.1.11", "192.168.1.50/24", False),
        ("lan", "ab", "", "192.168.7.50/24", False),
        ("lan", "ab", "", "192.168.1.100/24", False),
        ("lan", "a", "192.168.1.50", "192.168.1.50/24", False),
        # peers come by the fabric
        ("direct", "ab", "192.168.1.50", "192.168.1.50/24", False),
    ],
)
def test_a_second_address_from_which_the_host_may_send_is_told(
    topology: str, hosts: str, source: str, second: str, told: bool
) -> None:
    world = World(topology, list(hosts))
    world.interface("a", "enP7s7")["addresses"].append({"address": second, "family": "inet", "scope": "global"})
    world.nodes["a"]["routes"][1]["prefsrc"] = source
    world.nodes["a"]["declared"] = {"virtual": "192.168.1.100"}
    found = [str(finding) for finding in world.check() if finding.id == "second_address"]
    assert world.errors() == []
    assert len(found) == told
    assert all(f"enP7s7 has {second} beside 192.168.1.11, in one network" in text for text in found)


def test_the_way_in_is_no_fabric_nic() -> None:
    world = World("direct", ["a", "b"])
    netdev = world.plan["a"]["links"][0]["netdev"]
    world.nodes["a"]["management"] = {"netdev": netdev, "address": "10.20.3.3", "cidr": "10.20.3.3/24"}
    world.nodes["b"]["management"] = {"netdev": "enP7s7", "address": "192.168.1.12", "cidr": "192.168.1.12/24"}
    errors = world.errors()
    assert len(errors) == 1
    assert errors[0].startswith(f"host a: the controller comes in by {netdev} (10.20.3.3), a NIC of the fabric")
    assert errors[0].endswith("set ansible_host to 192.168.1.11 (enP7s7)")


def test_a_default_route_by_the_fabric_or_a_bond_of_it_is_told() -> None:
    world = World("switch", ["a", "b", "c"])
    world.nodes["a"]["routes"].insert(0, world.route("default", "192.168.88.1", A0, "dhcp"))
    world.interface("b", A1)["master"] = "bond0"
    world.nodes["b"]["routes"].insert(0, world.route("default", "192.168.88.1", "bond0", "dhcp"))
    assert world.errors() == []
    told = [str(finding) for finding in world.check() if finding.id == "default_route"]
    assert [text.split(" (via")[0] for text in told] == [
        f"host a: its default route goes by fabric NIC {A0}",
        "host b: its default route goes by bond bond0 of fabric NICs",
    ]
    assert all("never-default" in text for text in told)


@pytest.mark.parametrize(
    ("above", "netdev", "words"),
    [
        ({"vlan100": ("vlan", A0, "")}, "vlan100", f"VLAN vlan100 on fabric NIC {A0}"),
        ({"br0": ("bridge", "", "")}, "br0", "bridge br0 of fabric NICs"),
        ({"br0": ("bridge", "", ""), "br0.7": ("vlan", "br0", "")}, "br0.7", "VLAN br0.7 on bridge br0 of fabric NICs"),
        ({"vlan100": ("vlan", A0, "br0"), "br0": ("bridge", "", "")}, "br0", "bridge br0 of VLAN vlan100 on fabric"),
        ({"vlan9": ("vlan", "enP7s7", "")}, "vlan9", ""),
        # the RJ45 port is in the bridge as well
        ({"br0": ("bridge", "", ""), "eth9": ("", "", "br0")}, "br0", ""),
    ],
)
def test_a_default_route_by_what_is_stacked_on_the_fabric(
    above: dict[str, tuple[str, str, str]], netdev: str, words: str
) -> None:
    world = World("switch", ["a", "b", "c"])
    for name, (kind, lower, master) in above.items():
        world.nodes["a"]["interfaces"].append({**world.nic(name), "kind": kind, "lower": lower, "master": master})
    if "br0" in above and "vlan100" not in above:
        world.interface("a", A1)["master"] = "br0"
    world.nodes["a"]["routes"].insert(0, world.route("default", "192.168.88.1", netdev, "dhcp"))
    told = [str(finding) for finding in world.check() if finding.id == "default_route"]
    assert len(told) == bool(words)
    assert all(words in text and f"ip route del default dev {netdev}" in text for text in told)


def test_a_fabric_nic_in_a_bond_stops_the_run() -> None:
    world = World("switch", ["a", "b", "c"])
    netdev = world.plan["c"]["links"][0]["netdev"]
    world.interface("c", netdev)["master"] = "bond0"
    errors = world.errors()
    assert len(errors) == 1
    assert f"fabric NIC {netdev} is a slave of bond0" in errors[0]
    assert f"sudo ip link set {netdev} nomaster" in errors[0]


@pytest.mark.parametrize(
    ("netdev", "kind"),
    [
        ("tailscale0", "a VPN"),
        ("wg0", "a VPN"),
        ("wt0", "a VPN"),
        ("wlP9s9", "Wi-Fi"),
        ("enP7s7", ""),
        ("mgbe0_0", ""),
        ("eth0", ""),
    ],
)
def test_control_traffic_by_a_vpn_or_wi_fi_is_told(netdev: str, kind: str) -> None:
    world = World("ring", ["a", "b", "c"])
    world.plan["b"]["control_netdev"] = netdev
    told = [str(finding) for finding in world.check() if finding.id == "detour"]
    assert len(told) == bool(kind)
    assert all(f"go by {netdev}" in text and f"which is {kind}" in text for text in told)
    assert world.errors() == []
