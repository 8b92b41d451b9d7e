# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports that the firewall closes, and Wi-Fi that ends with the desktop."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.exposure_check import exposure_problems
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.fabric_check import without_accepted

ROLES = ("os_hardening", "roce_network", "firewall")
NODE = {
    "management": {"netdev": "enP7s7"},
    "interfaces": [
        {"name": "lo", "carrier": True, "addresses": [{"address": "127.0.0.1/8"}]},
        {"name": "enP7s7", "carrier": True, "addresses": [{"address": "192.168.1.11/24"}]},
        {"name": "virbr0", "carrier": True, "addresses": [{"address": "192.168.122.1/24"}]},
        {"name": "docker0", "carrier": False, "addresses": [{"address": "172.17.0.1/16"}]},
    ],
}
LISTENERS = [
    {"address": "0.0.0.0", "port": 22, "program": "sshd"},
    {"address": "::", "port": 22, "program": "sshd"},
    {"address": "127.0.0.53", "port": 53, "program": "systemd-resolve"},
    {"address": "0.0.0.0", "port": 5355, "program": "systemd-resolve"},
    {"address": "192.168.122.1", "port": 53, "program": "dnsmasq"},
    {"address": "0.0.0.0", "port": 5900, "program": "x11vnc"},
    {"address": "*", "port": 3389, "program": "gnome-remote-de"},
    {"address": "::1", "port": 8888, "program": "jupyter-lab"},
    {"address": "::ffff:127.0.0.1", "port": 8005, "program": "java"},
    {"address": "0.0.0.0", "port": 8080, "program": "docker-proxy"},
    {"address": "0.0.0.0", "port": 2049, "program": ""},
]
HOME = {"netdev": "wlP9s9", "uuid": "6cd4", "name": "Home", "users": ["nvidia"], "asks": True}


def check(
    exposure: dict[str, t.Any] | None = None,
    node: dict[str, t.Any] | None = None,
    roles: t.Sequence[str] = ROLES,
    head: bool = False,
    **variables: t.Any,
) -> list[t.Any]:
    found = {"firewall": False, "listeners": LISTENERS, "wifi": {}} if exposure is None else exposure
    return exposure_problems("spark-01", found, node or NODE, variables, roles, head)


def test_every_listener_that_the_firewall_closes_is_in_one_warning() -> None:
    (found,) = check()
    assert str(found) == (
        "host spark-01: TCP ports: [53, 2049, 3389, 5900]: the firewall will close 53 (dnsmasq), 2049, "
        "3389 (gnome-remote-de), 5900 (x11vnc); list in firewall_tcp_ports what is to stay open to everybody, or in "
        "firewall_sources who may reach all ports; firewall_enabled: false leaves the host's firewall alone"
    )
    assert found.value == [53, 2049, 3389, 5900]
    assert (found.severity, found.id) == ("warning", "closed_ports")


@pytest.mark.parametrize(
    ("variables", "left"),
    [
        ({"firewall_tcp_ports": [5900, "3389", 2049]}, "[53]: the firewall"),
        ({"firewall_tcp_ports": [5900, 3389, 2049], "firewall_interfaces": ["virbr0"]}, ""),
        (
            {"firewall_tcp_ports": [5900, 53], "firewall_ssh_ports": [3389], "ansible_port": 2049},
            "[22]: the firewall",
        ),
        ({"firewall_interfaces": ["enP7s7"]}, ""),
        ({"firewall_sources": ["192.168.1.0/24"]}, ""),
        ({"firewall_enabled": "no"}, ""),
    ],
)
def test_what_the_inventory_keeps_open_is_not_listed(variables: dict[str, t.Any], left: str) -> None:
    found = check(**variables)
    assert (left in str(found[0])) if left else found == []


def test_the_api_is_open_on_the_head_alone() -> None:
    exposure = {"firewall": False, "listeners": [{"address": "*", "port": 9000, "program": "nginx"}], "wifi": {}}
    assert check(exposure, head=True, vllm_serve_api_port=9000) == []
    assert check(exposure, head=True, firewall_api_port=8000, vllm_serve_api_port=9000) != []
    assert check(exposure, vllm_serve_api_port=9000) != []


def test_containers_on_a_bridge() -> None:
    nics = [{**nic, "carrier": True} for nic in NODE["interfaces"]]
    exposure = {"firewall": False, "listeners": [], "wifi": {}}
    (found,) = check(exposure, {**NODE, "interfaces": nics})
    assert str(found).startswith(
        "host spark-01: firewall_interfaces: []: containers on docker0 will no longer reach the host's own ports; "
        "firewall_interfaces: [docker0] keeps them open for containers; "
    )
    assert check(exposure, {**NODE, "interfaces": nics}, firewall_interfaces=["docker0"]) == []


@pytest.mark.parametrize(
    "told",
    [
        {"roles": ("os_hardening",)},
        {"exposure": {}},
        {"exposure": {"firewall": True, "listeners": [], "wifi": {}}},
    ],
)
def test_nothing_is_said_where_nothing_is_closed(told: dict[str, t.Any]) -> None:
    assert check(**told) == []


def test_wifi_of_a_desktop_session_is_refused_for_headless() -> None:
    exposure = {"firewall": True, "listeners": [], "wifi": HOME}
    (found,) = check(exposure)
    assert str(found).startswith(
        "host spark-01: os_hardening_headless: True: the controller comes in by Wi-Fi wlP9s9, whose connection 'Home' "
        "belongs to the desktop session of nvidia and gets its password from a desktop session: without a desktop it "
        "does not connect after a reboot; give it to the system (sudo nmcli connection modify Home "
    )
    (found,) = check({**exposure, "wifi": {**HOME, "name": "it's $(reboot)"}})
    assert """modify 'it'"'"'s $(reboot)' connection""" in str(found)
    assert found.severity == "error"
    assert [item.severity for item in without_accepted([found], ["wifi"])] == ["warning"]
    assert check(exposure, os_hardening_headless=False) == []
    assert check(exposure, roles=("firewall",)) == []
    assert check({**exposure, "wifi": {**HOME, "users": [], "asks": False}}) == []
    (asked,) = check({**exposure, "wifi": {**HOME, "users": []}})
    assert "connection 'Home' gets its password from a desktop session: without" in str(asked)


def udp(port: int, program: str = "", address: str = "0.0.0.0") -> dict[str, t.Any]:
    return {"address": address, "port": port, "program": program}


#: of a host with Ubuntu's desktop, on which nobody misses anything
HEALTHY = [
    udp(53, "systemd-resolve", "127.0.0.53"),
    udp(5355, "systemd-resolve"),
    udp(68, "systemd-network", "192.168.1.11"),
    udp(546, "NetworkManager", "fe80::1"),
    udp(5353, "avahi-daemon"),
    udp(48211, "avahi-daemon"),
    udp(631, "cups-browsed"),
    udp(323, "chronyd", "127.0.0.1"),
    udp(123, "ntpd"),
    udp(41641, "tailscaled"),
    udp(4791),
    udp(3478, "docker-proxy"),
]


def of_udp(*more: dict[str, t.Any], **told: t.Any) -> dict[str, t.Any]:
    return {"firewall": False, "listeners": [], "wifi": {}, "udp": [*HEALTHY, *more], "others": [], **told}


def test_udp_ports_that_only_ask_are_nobodys_loss() -> None:
    assert check(of_udp()) == []


def test_udp_ports_that_the_firewall_closes_are_in_the_warning() -> None:
    (found,) = check(of_udp(udp(51820), udp(1194, "openvpn"), listeners=[udp(5900, "x11vnc")]))
    assert "the firewall will close 5900 (x11vnc) and UDP 1194 (openvpn), 51820; list in " in str(found)
    assert "list in firewall_tcp_ports and firewall_udp_ports what is to stay" in str(found)
    (found,) = check(of_udp(udp(51820), udp(1194, "openvpn")), firewall_udp_ports=[51820])
    assert str(found).startswith(
        "host spark-01: UDP ports: [1194]: the firewall will close UDP 1194 (openvpn); list in"
    )
    assert found.severity == "warning"
    assert check(of_udp(udp(51820)), firewall_interfaces=["enP7s7"]) == []
    assert check(of_udp(udp(51820)), firewall_sources=["192.168.1.0/24"]) == []
    assert check(of_udp(udp(51820), firewall=True)) == []


ROUTES = [{"dst": "default", "dev": "enP7s7"}]
TUNNEL = {**NODE, "management": {"netdev": "wg0"}, "routes": ROUTES}


@pytest.mark.parametrize(
    ("node", "sockets", "variables", "refused"),
    [
        (TUNNEL, [udp(51820)], {}, True),
        ({**TUNNEL, "management": {"netdev": "tun0"}}, [udp(1194, "openvpn")], {}, True),
        # what comes out of the tunnel is trusted, its own packets are not
        (TUNNEL, [udp(51820)], {"firewall_interfaces": ["wg0"]}, True),
        (TUNNEL, [udp(51820)], {"firewall_sources": ["10.8.0.0/24"]}, True),
        (TUNNEL, [udp(51820)], {"firewall_sources": ["0.0.0.0/0"]}, False),
        (TUNNEL, [udp(51820)], {"firewall_interfaces": ["enP7s7"]}, False),
        (TUNNEL, [udp(51820)], {"firewall_udp_ports": [51820]}, False),
        (TUNNEL, [udp(2302, "game")], {}, False),
        ({**TUNNEL, "management": {"netdev": "tailscale0"}}, [], {}, False),
        (NODE, [udp(51820)], {}, False),
    ],
)
def test_the_way_in_by_a_vpn_that_ends_here_is_not_closed(
    node: dict[str, t.Any], sockets: list[dict[str, t.Any]], variables: dict[str, t.Any], refused: bool
) -> None:
    errors = [found for found in check(of_udp(*sockets), node, **variables) if found.severity == "error"]
    assert [found.id for found in errors] == ["closed_way_in"] * refused
    assert all("list the tunnel's port in firewall_udp_ports" in str(found) for found in errors)


def test_a_firewall_that_is_switched_off_after_a_deployment_is_told() -> None:
    (found,) = check(of_udp(firewall=True), firewall_enabled=False)
    assert (found.id, found.severity) == ("firewall_left", "warning")
    assert "sudo systemctl disable --now sparkthor-firewall.service sparkthor-firewall-watch.service" in str(found)
    assert check(of_udp(), firewall_enabled=False) == []
    assert check(of_udp(firewall=True)) == []
    assert check(of_udp(firewall=True), roles=("os_hardening",), firewall_enabled=False) == []


@pytest.mark.parametrize("firewall", [True, False])
def test_another_firewall_is_told(firewall: bool) -> None:
    (found,) = check(of_udp(firewall=firewall, others=["ip6 filter", "ip filter"]))
    assert (found.id, found.severity) == ("other_firewall", "warning")
    assert "another firewall is active (nftables ip filter, ip6 filter)" in str(found)
    assert "sudo ufw disable" in str(found)
