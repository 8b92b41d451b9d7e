# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom discovery asks, and who of them answers."""

from __future__ import annotations

import json
import socket
import threading

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import candidates
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

AVAHI = r"""+;enP7s7;IPv4;spark-5c2d;SSH Remote Terminal;local
=;enP7s7;IPv6;spark-5c2d;_ssh._tcp;local;spark-5c2d.local;fe80::1;22;
=;enP7s7;IPv4;spark-5c2d;_ssh._tcp;local;spark-5c2d.local;192.168.1.11;22;
=;enP7s7;IPv4;the\032Thor;_ssh._tcp;local;thor\0451.local;192.168.1.21;22;"a=b"
broken line
"""
NEIGHBOURS = json.dumps(
    [
        {"dst": "192.168.1.11", "dev": "enP7s7", "lladdr": "4c:bb:47:00:00:01", "state": ["REACHABLE"]},
        {"dst": "192.168.1.30", "dev": "enP7s7", "lladdr": "4c:bb:47:00:00:02", "state": ["STALE"]},
        {"dst": "192.168.1.40", "dev": "enP7s7", "state": ["FAILED"]},
        {"dst": "192.168.1.41", "dev": "enP7s7", "lladdr": "4c:bb:47:00:00:03", "state": ["FAILED"]},
    ]
)


def tools(avahi: str | None = AVAHI) -> candidates.Runner:
    def run(argv: list[str]) -> tuple[int, str, str]:
        if argv[0] == "avahi-browse":
            return (127, "", "not installed") if avahi is None else (0, avahi, "")
        assert argv == candidates.NEIGHBOURS
        return 0, NEIGHBOURS, ""

    return run


def test_expanding() -> None:
    assert candidates.expand(["192.168.1.9", "spark-5c2d.local"]) == {"192.168.1.9": True, "spark-5c2d.local": True}
    assert candidates.expand(["192.168.1.10-12"]) == dict.fromkeys(
        ["192.168.1.10", "192.168.1.11", "192.168.1.12"], False
    )
    assert list(candidates.expand(["10.0.0.254-10.0.1.1"])) == ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]
    assert candidates.expand(["192.168.1.0/30", "192.168.1.2"]) == {"192.168.1.1": False, "192.168.1.2": True}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("192.168.1.300", "not an IPv4 address"),
        ("192.168.1.0/40", "not an IPv4 address"),
        ("192.168.1.20-10", "ends before it begins"),
        ("10.0.0.0/8", "more than 1024"),
        ("10.0.0.1-10.9.0.1", "more than 1024"),
        ("-oProxyCommand=x", "neither an address nor a name"),
        ("a b", "neither an address nor a name"),
        ("fe80::1", "neither an address nor a name"),
    ],
)
def test_what_cannot_be_asked_is_one_message(given: str, words: str) -> None:
    with pytest.raises(FabricError) as caught:
        candidates.expand([given])
    assert words in str(caught.value)
    assert given in str(caught.value)


def test_several_networks_share_the_limit() -> None:
    with pytest.raises(FabricError, match="more than 1024"):
        candidates.expand(["10.0.0.0/23", "10.0.2.0/23", "10.0.4.0/28"])


def test_names_of_mdns_and_of_the_neighbour_table() -> None:
    assert candidates.parse_avahi(AVAHI) == {"192.168.1.11": "spark-5c2d", "192.168.1.21": "thor-1"}
    assert candidates.parse_neighbour_table(NEIGHBOURS) == ["192.168.1.11", "192.168.1.30"]
    assert candidates.parse_neighbour_table("not json") == []


def test_without_addresses_those_that_mdns_and_the_neighbour_table_know_are_asked() -> None:
    asked = []

    def answers(address: str, port: int) -> bool:
        asked.append((address, port))
        return address != "192.168.1.30"

    found, notes = candidates.find([], 22, tools(), answers)
    assert sorted(asked) == [("192.168.1.11", 22), ("192.168.1.21", 22), ("192.168.1.30", 22)]
    assert [(one.address, one.name, one.given) for one in found] == [
        ("192.168.1.11", "spark-5c2d", False),
        ("192.168.1.21", "thor-1", False),
    ]
    assert notes == []


def test_without_avahi_a_note_says_so() -> None:
    found, (note,) = candidates.find([], 22, tools(avahi=None), lambda address, port: True)
    assert [one.address for one in found] == ["192.168.1.11", "192.168.1.30"]
    assert "avahi-utils" in note


def test_an_address_that_was_given_alone_stays_although_it_is_silent() -> None:
    found, _notes = candidates.find(["10.0.0.5", "10.0.0.8/30"], 22, tools(), lambda address, port: False)
    assert [(one.address, one.given) for one in found] == [("10.0.0.5", True)]


def test_nobody_at_all_is_one_message() -> None:
    with pytest.raises(FabricError, match="no machine answers"):
        candidates.find(["10.0.0.0/30"], 22, tools(), lambda address, port: False)
    with pytest.raises(FabricError, match=r"discover_addresses=192\.168\.1\.0/24"):
        candidates.find([], 22, tools(avahi=None), lambda address, port: False)


@pytest.mark.parametrize(("greeting", "expected"), [(b"SSH-2.0-OpenSSH_9.6p1\r\n", True), (b"220 ftp\r\n", False)])
def test_only_an_ssh_server_counts(greeting: bytes, expected: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _peer = server.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        assert candidates.answers("127.0.0.1", server.getsockname()[1]) is expected
        thread.join()


def test_what_anybody_calls_himself_by_mdns_is_text_and_an_address_an_address() -> None:
    hostile = (
        "=;eth0;IPv4;x;SSH Remote Terminal;local;a\\027]52\\059c\\059eA==\\007b\\010c.local;192.168.1.66;22;\n"
        "=;eth0;IPv4;x;SSH Remote Terminal;local;d.local;-oProxyCommand=id;22;\n"
    )
    assert candidates.parse_avahi(hostile) == {"192.168.1.66": "ab c"}
