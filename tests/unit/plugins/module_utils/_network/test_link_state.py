# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links compared with the plan, and pings over them."""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.clock import Clock
from tests.unit.netplan import GLOBAL, LINK, live_link

ROUTES = {("10.100.0.0/25", "enp1s0f1np1")}
GOOD = {"enp1s0f1np1": live_link({"10.100.0.1/25": GLOBAL})}


def test_link_as_planned_has_no_problems() -> None:
    assert link_state.link_problems([LINK], GOOD, ROUTES) == {"enp1s0f1np1": []}


@pytest.mark.parametrize(
    ("live", "routes", "words"),
    [
        ({}, ROUTES, "does not exist"),
        ({"enp1s0f1np1": live_link({"10.100.0.1/25": GLOBAL}, up=False)}, ROUTES, "administratively down"),
        ({"enp1s0f1np1": live_link({"10.100.0.1/24": GLOBAL})}, ROUTES, "does not have 10.100.0.1/25"),
        ({"enp1s0f1np1": live_link({"10.100.0.1/25": GLOBAL}, mtu=1500)}, ROUTES, "MTU 1500 instead of 9000"),
        (GOOD, set(), "no connected route to 10.100.0.0/25"),
        (GOOD, {*ROUTES, ("10.100.0.0/25", "enP2p1s0f1np1")}, "one NIC per subnet"),
    ],
)
def test_link_problems(live: dict[str, Any], routes: set[tuple[str, str]], words: str) -> None:
    found = link_state.link_problems([LINK], live, routes)["enp1s0f1np1"]
    assert any(words in problem for problem in found)


def test_on_a_lan_the_metric_decides_between_nics() -> None:
    routes = {*ROUTES, ("10.100.0.0/25", "wlP9s9")}
    assert link_state.link_problems([{**LINK, "shared": True}], GOOD, routes) == {"enp1s0f1np1": []}


def test_connected_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "10.100.0.0/25 dev enp1s0f1np1 proto kernel scope link src 10.100.0.1 linkdown \n"
    monkeypatch.setattr(job, "run", lambda argv, limit=20: (0, text, ""))
    assert link_state.connected_routes() == ROUTES


@pytest.mark.parametrize(
    ("link", "peer", "live_mtu", "size"),
    [
        (9000, 9000, 9000, 8972),
        (9000, 0, 9000, 8972),
        (9000, 1500, 9000, 1472),
        (8966, 9000, 8966, 8938),
        (0, 0, 1500, 1472),
        (0, 0, 9000, 1472),
        (0, 0, 1280, 1252),
        (0, 1466, 1500, 1438),
        (0, 9000, 1500, 1472),
    ],
)
def test_payload_fills_the_smaller_mtu(link: int, peer: int, live_mtu: int, size: int) -> None:
    assert link_state.payload_size({"mtu": link}, {"mtu": peer}, live_mtu) == size


@given(st.binary(max_size=200))
def test_checksum_makes_the_whole_sum_to_zero(data: bytes) -> None:
    data += b"\0" * (len(data) % 2)
    assert link_state.checksum(data + struct.pack("!H", link_state.checksum(data))) == 0


def test_ping_over_loopback() -> None:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    except PermissionError:
        # without the capability every peer is reported with the reason instead of raising
        answers = link_state.ping_links([{"netdev": "lo", "mtu": 1500, "peers": [{"address": "127.0.0.1"}]}], {}, 0.1)
        assert answers[0]["error"] == os.strerror(1)
        return
    links = [{"netdev": "lo", "mtu": 9000, "peers": [{"address": "127.0.0.1"}, {"address": "127.0.0.2"}]}]
    answers = link_state.ping_links(links, {"lo": live_link(mtu=65536)}, 1.0)
    assert [(item["address"], item["payload"], item["reachable"]) for item in answers] == [
        ("127.0.0.1", 8972, True),
        ("127.0.0.2", 8972, True),
    ]


def test_on_a_lan_the_answer_may_come_in_by_any_nic() -> None:
    link = {"netdev": "nonesuch0", "address": "127.0.0.1/8", "shared": True, "peers": [{"address": "127.0.0.2"}]}
    (answer,) = link_state.ping_links([link], {}, 1.0)
    # without the capability nothing is asked at all
    assert answer["error"] in ("", os.strerror(1))


def test_ping_over_a_nic_that_is_not_there_is_an_answer_too() -> None:
    answers = link_state.ping_links(
        [{"netdev": "nonesuch0", "mtu": 1500, "peers": [{"address": "127.0.0.1"}]}], {}, 0.1
    )
    assert [item["reachable"] for item in answers] == [False]
    assert answers[0]["error"]


def test_verify_asks_again_until_the_peer_answers(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    link = {**LINK, "peers": [{"host": "b", "address": "10.100.0.2"}]}
    tries: list[int] = []

    def ping(links: list[dict[str, Any]], live: Any) -> list[dict[str, Any]]:
        tries.append(1)
        return [
            {
                "netdev": "enp1s0f1np1",
                "host": "b",
                "address": "10.100.0.2",
                "payload": 8972,
                "reachable": len(tries) > 1,
                "rtt_ms": None,
                "error": "no answer",
                "_sent": 1.0,
            }
        ]

    monkeypatch.setattr(job, "live_links", lambda: GOOD)
    monkeypatch.setattr(link_state, "connected_routes", lambda: ROUTES)
    monkeypatch.setattr(link_state, "ping_links", ping)
    monkeypatch.setattr(deadline, "time", clock)
    first = link_state.verify([link])
    assert first[0]["ok"] is False
    assert "does not reach b 10.100.0.2 with 8972 bytes unfragmented" in first[0]["problems"][0]
    tries.clear()
    second = link_state.verify([link], wait=5)
    assert (second[0]["ok"], len(tries)) == (True, 2)
    assert "_sent" not in second[0]["peers"][0]
