# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall import (
    MARKER,
    FirewallError,
    Policy,
    restore_text,
    ruleset,
)


def rules(**policy: Any) -> list[str]:
    return [line.strip() for line in ruleset(Policy(**policy)).splitlines()]


def test_the_file_replaces_its_own_table_only() -> None:
    lines = rules()
    assert lines[1] == MARKER
    assert [line for line in lines if line.startswith(("table", "delete", "flush"))] == [
        "table inet sparkthor",
        "delete table inet sparkthor",
        "table inet sparkthor {",
    ]
    assert "type filter hook input priority filter; policy drop;" in lines
    assert not [line for line in lines if "forward" in line or "output" in line]


def test_only_ssh_is_open_by_default() -> None:
    opened = [line for line in rules() if "dport" in line]
    assert opened == [
        "udp sport 67 udp dport 68 accept",
        "ip6 saddr fe80::/10 udp sport 547 udp dport 546 accept",
        "tcp dport { 22 } accept",
    ]


def test_answers_come_before_everything_that_drops() -> None:
    lines = rules()
    assert lines.index("ct state established,related accept") < lines.index("ct state invalid drop")
    neighbour = next(line for line in lines if "nd-neighbor-solicit" in line)
    assert lines.index(neighbour) < lines.index("ct state invalid drop")


def test_peers_are_trusted_by_interface_and_source() -> None:
    lines = rules(trusted={"enp1s0f1np1": ["10.0.0.3", "10.0.0.2"], "enP7s7": []})
    assert 'ip saddr { 10.0.0.2/31 } iifname "enp1s0f1np1" accept' in lines
    assert not [line for line in lines if "enP7s7" in line], "an interface without peers trusts nobody"


def test_sources_are_split_by_family_and_merged() -> None:
    lines = rules(ssh_sources=["192.168.1.0/24", "192.168.1.7", "2001:db8::/64"], ssh_ports=[2222, 22, 22])
    assert "ip saddr { 192.168.1.0/24 } tcp dport { 22, 2222 } accept" in lines
    assert "ip6 saddr { 2001:db8::/64 } tcp dport { 22, 2222 } accept" in lines
    assert "tcp dport { 22, 2222 } accept" not in lines


def test_everything_that_can_be_opened() -> None:
    lines = rules(
        api_port=8000,
        api_sources=["10.9.0.0/16"],
        sources=["198.51.100.4"],
        interfaces=["docker0"],
        tcp_ports=[9100],
        udp_ports=[161, 51820],
        mdns=True,
    )
    for line in (
        "ip saddr { 10.9.0.0/16 } tcp dport 8000 accept",
        "ip saddr { 198.51.100.4 } accept",
        'iifname "docker0" accept',
        "tcp dport { 9100 } accept",
        "udp dport { 161, 51820 } accept",
        "ip daddr 224.0.0.251 udp dport 5353 accept",
    ):
        assert line in lines


def test_the_text_does_not_depend_on_the_order_of_the_input() -> None:
    one = Policy(trusted={"a": ["10.0.0.1", "10.0.0.9"], "b": ["10.1.0.1"]}, tcp_ports=[2, 1])
    other = Policy(trusted={"b": ["10.1.0.1"], "a": ["10.0.0.9", "10.0.0.1"]}, tcp_ports=[1, 2])
    assert ruleset(one) == ruleset(other)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"ssh_ports": []}, "firewall_ssh_ports: an empty list would shut every way in"),
        ({"ssh_ports": [0]}, "firewall_ssh_ports: 0 is not a port"),
        ({"tcp_ports": [65536]}, "firewall_tcp_ports: 65536 is not a port"),
        ({"udp_ports": [True]}, "firewall_udp_ports: True is not a port"),
        ({"api_port": -1}, "firewall_api_port: -1 is not a port"),
        (
            {"sources": ["10.0.0.1/24"]},
            "firewall_sources: '10.0.0.1/24' names a host and a .* did you mean 10.0.0.0/24",
        ),
        ({"ssh_sources": ["office"]}, "firewall_ssh_sources: 'office' is not an address or a network; write it like"),
        ({"interfaces": ['x" accept #']}, "firewall_interfaces: .* is not the name of a network interface"),
        ({"trusted": {"a b": ["10.0.0.1"]}}, "trusted: 'a b' is not the name"),
    ],
)
def test_bad_values_are_named(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(FirewallError, match=message):
        ruleset(Policy(**policy))


def test_restore() -> None:
    assert restore_text("").splitlines() == ["table inet sparkthor", "delete table inet sparkthor"]
    assert restore_text("table inet sparkthor {\n}\n").endswith("table inet sparkthor {\n}\n")


def test_vrrp_comes_in_from_the_named_peers_alone():
    assert "protocol 112" not in ruleset(Policy())
    [rule] = [
        line.strip() for line in ruleset(Policy(vrrp_peers=["10.0.0.3", "10.0.0.2"])).splitlines() if "112" in line
    ]
    assert rule == "ip saddr { 10.0.0.2/31 } ip protocol 112 accept"
    with pytest.raises(FirewallError, match="vrrp_peers: 'x' is not an address"):
        ruleset(Policy(vrrp_peers=["x"]))
