# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Listeners as ``ss`` prints them and connections as ``nmcli --offline connection add`` writes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.exposure import (
    ExposureReader,
    parse_chains,
    parse_listeners,
    parse_profile,
)

SS = """\
LISTEN 0      128          0.0.0.0:22        0.0.0.0:*    users:(("sshd",pid=861,fd=3),("systemd",pid=1,fd=194))
LISTEN 0      4096   127.0.0.53%lo:53        0.0.0.0:*    users:(("systemd-resolve",pid=702,fd=15))
LISTEN 0      10                 *:3389            *:*    users:(("gnome-remote-de",pid=1893,fd=15))
LISTEN 0      128             [::1]:8888        [::]:*    users:(("jupyter-lab",pid=4411,fd=6))
LISTEN 0      64           0.0.0.0:2049      0.0.0.0:*
"""
UDP = """\
UNCONN 0      0            0.0.0.0:51820      0.0.0.0:*
UNCONN 0      0      127.0.0.53%lo:53         0.0.0.0:*    users:(("systemd-resolve",pid=702,fd=14))
UNCONN 0      0   [fe80::1]%enP7s7:546           [::]:*    users:(("systemd-network",pid=690,fd=23))
"""
CHAINS = """{"nftables": [{"metainfo": {"version": "1.0.9", "json_schema_version": 1}},
 {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input",
  "prio": 0, "policy": "drop"}},
 {"chain": {"family": "ip", "table": "filter", "name": "ufw-user-input", "handle": 2}},
 {"chain": {"family": "ip6", "table": "filter", "name": "INPUT", "handle": 1, "type": "filter", "hook": "input",
  "prio": 0, "policy": "accept"}},
 {"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "handle": 3, "type": "filter", "hook": "forward",
  "prio": 0, "policy": "drop"}},
 {"chain": {"family": "inet", "table": "firewalld", "name": "filter_INPUT", "handle": 9, "type": "filter",
  "hook": "input", "prio": 10, "policy": "accept"}},
 {"chain": {"family": "inet", "table": "sparkthor", "name": "input", "handle": 1, "type": "filter", "hook": "input",
  "prio": 0, "policy": "drop"}}]}"""
HOME = """\
[connection]
id=Home
uuid=6cd4a996-756c-4a12-bf13-9b13d70c4afa
type=wifi
interface-name=wlP9s9
permissions=user:nvidia:;

[wifi]
mode=infrastructure
ssid=Home

[wifi-security]
key-mgmt=wpa-psk
psk-flags=1
"""
CORP = """\
[connection]
id=Corp
uuid=5a46b109-5026-4b3d-b7e9-9a7628ed8d6e
type=wifi

[wifi-security]
key-mgmt=wpa-eap

[802-1x]
eap=peap;
identity=me
password-flags=2
phase2-auth=mschapv2
"""
SYSTEM = """\
[connection]
id=Sys
uuid=66143f7f-9b7d-4249-93bc-0cfbbae8d60b
type=wifi

[wifi-security]
key-mgmt=wpa-psk
psk=sek%ret;123
"""


def test_listeners() -> None:
    assert parse_listeners(SS) == [
        {"address": "0.0.0.0", "port": 22, "program": "sshd"},
        {"address": "127.0.0.53", "port": 53, "program": "systemd-resolve"},
        {"address": "*", "port": 3389, "program": "gnome-remote-de"},
        {"address": "::1", "port": 8888, "program": "jupyter-lab"},
        {"address": "0.0.0.0", "port": 2049, "program": ""},
    ]


def test_a_socket_of_the_kernel_s_has_no_program() -> None:
    assert [(item["address"], item["port"], item["program"]) for item in parse_listeners(UDP)] == [
        ("0.0.0.0", 51820, ""),
        ("127.0.0.53", 53, "systemd-resolve"),
        ("fe80::1", 546, "systemd-network"),
    ]


def test_tables_of_other_firewalls() -> None:
    assert parse_chains(CHAINS) == ["inet firewalld", "ip filter"]
    assert parse_chains("") == parse_chains("[]") == parse_chains('{"nftables": [{"chain": {"type": "filter"}}]}') == []


@pytest.mark.parametrize(
    ("text", "name", "users", "asks"),
    [(HOME, "Home", ["nvidia"], True), (CORP, "Corp", [], True), (SYSTEM, "Sys", [], False)],
)
def test_who_keeps_the_password_of_a_connection(text: str, name: str, users: list[str], asks: bool) -> None:
    found = parse_profile(text)
    assert (found["name"], found["users"], found["asks"]) == (name, users, asks)
    assert "sek" not in str(found)


@pytest.mark.parametrize("text", ["", "[wifi]\nssid=x\n", "no keyfile", "[connection]\nid=x\n"])
def test_what_is_no_connection(text: str) -> None:
    assert parse_profile(text) == {}


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        (root / "sys/class/net/wlP9s9/phy80211").mkdir(parents=True)
        (root / "sys/class/net/enP7s7").mkdir()
        (root / "etc/NetworkManager/system-connections").mkdir(parents=True)
        (root / "run/NetworkManager/system-connections").mkdir(parents=True)
        for folder, name, text in (("etc", "Sys", SYSTEM), ("etc", "Corp", CORP), ("run", "netplan-Home", HOME)):
            (root / folder / f"NetworkManager/system-connections/{name}.nmconnection").write_text(text)
        self.active = "6cd4a996-756c-4a12-bf13-9b13d70c4afa:wlP9s9\nfd5f1c8a-0000-4000-8000-000000000000:enP7s7\n"

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv[0].rpartition("/")[2])
        if argv[0] == "ss":
            return 0, UDP if "u" in argv[1] else SS, ""
        return 0, CHAINS if argv[1] == "--json" else self.active, ""

    def read(self, netdev: str) -> dict[str, object]:
        return ExposureReader(self.run, str(self.root)).read(netdev)


def test_the_connection_that_is_active_on_the_way_in(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    found = machine.read("wlP9s9")
    assert found["wifi"] == {
        "netdev": "wlP9s9",
        "uuid": "6cd4a996-756c-4a12-bf13-9b13d70c4afa",
        "name": "Home",
        "users": ["nvidia"],
        "asks": True,
    }
    machine.active = "66143f7f-9b7d-4249-93bc-0cfbbae8d60b:wlP9s9\n"
    assert machine.read("wlP9s9")["wifi"]["asks"] is False  # type: ignore[index]  # a dict by now
    machine.active = ""
    assert machine.read("wlP9s9")["wifi"] == {}


def test_a_wired_host_is_asked_for_its_listeners_alone_and_a_closed_one_for_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    found = machine.read("enP7s7")
    assert (found["firewall"], found["wifi"], found["listeners"]) == (False, {}, parse_listeners(SS))
    assert found["udp"] == parse_listeners(UDP)
    others = ["inet firewalld", "ip filter"]
    assert (found["others"], machine.calls) == (others, ["ss", "ss", "nft"])
    (tmp_path / "etc/sparkthor").mkdir()
    (tmp_path / "etc/sparkthor/firewall.nft").touch()
    closed = {"firewall": True, "listeners": [], "udp": [], "others": others, "wifi": {}}
    assert machine.read("enP7s7") == closed
    assert machine.calls == ["ss", "ss", "nft", "nft"]
