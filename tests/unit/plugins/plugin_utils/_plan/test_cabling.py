# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch, a ring, a line, pairs: told by who hears whom."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling


def cables(*pairs: str) -> dict[tuple[str, str], set[str]]:
    """A cable between each two hosts, in a port of its own."""
    sees: dict[tuple[str, str], set[str]] = {}
    for number, (one, two) in enumerate(pairs):
        sees[one, f"p{number}"] = {two}
        sees[two, f"p{number}"] = {one}
    return sees


def switch(hosts: str) -> dict[tuple[str, str], set[str]]:
    return {(host, "p"): set(hosts) - {host} for host in hosts}


@pytest.mark.parametrize("hosts", ["abc", "abcd", "abcdefgh"])
def test_a_switch(hosts: str) -> None:
    assert not cabling.host_to_host(list(hosts), switch(hosts))
    assert cabling.islands(list(hosts), switch(hosts)) == [list(hosts)]


@pytest.mark.parametrize("hosts", ["abc", "abcd", "abcdefgh"])
def test_a_ring_and_a_line(hosts: str) -> None:
    line = [one + two for one, two in itertools.pairwise(hosts)]
    ring = cables(*line, hosts[-1] + hosts[0])
    assert cabling.host_to_host(list(hosts), ring)
    assert cabling.walk(list(hosts), ring) == (list(hosts), True)
    assert cabling.walk(list(hosts), cables(*line)) == (list(hosts), False)


def test_pairs_and_two_switches_are_islands() -> None:
    assert cabling.islands(list("abcd"), cables("ab", "cd")) == [["a", "b"], ["c", "d"]]
    assert cabling.walk(list("abcd"), cables("ab", "cd")) == ([], False)
    two = {**switch("abc"), **switch("def")}
    assert cabling.islands(list("abcdef"), two) == [["a", "b", "c"], ["d", "e", "f"]]
    assert not cabling.host_to_host(list("abcdef"), two)


def test_a_frame_that_came_one_way_is_enough() -> None:
    sees = cables("ab", "bc")
    sees["c", "p1"] = set()
    assert cabling.islands(list("abc"), sees) == [["a", "b", "c"]]


def test_silence_and_two_hosts_say_nothing() -> None:
    assert not cabling.host_to_host(list("abc"), {("a", "p"): set()})
    assert not cabling.host_to_host(list("ab"), cables("ab"))


def test_drawn() -> None:
    assert cabling.drawn(["a", "b", "c"], closed=True) == "a - b - c - a"
    assert cabling.drawn(["a", "b", "c"], closed=False) == "a - b - c"
