# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Valid calls of fabric_plan, for tests of what holds for each of them."""

from __future__ import annotations

import typing as t
from ipaddress import IPv4Network

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from hypothesis import strategies as st

RING_MANAGEMENT = {"a": "192.168.1.11/24", "b": "192.168.1.12/24", "c": "192.168.1.13/24"}
LAN_NICS = {"a": "enP7s7", "b": "mgbe0_0", "c": "enP7s7"}


def names(count: int) -> list[str]:
    return [f"node{index:03d}" for index in range(count)]


@st.composite
def cases(draw: st.DrawFn, topologies: tuple[str, ...] = fabric_values.TOPOLOGIES, least: int = 2) -> dict[str, t.Any]:
    """A valid call for every topology, at every size it allows (a switch and a lan: 2 to 64 hosts, a ring and a line: 3
    to 40)."""
    topology = draw(st.sampled_from(topologies))
    chain = st.integers(max(least, 3), 40)
    size = {"direct": st.just(2), "ring": chain, "line": chain, "lan": st.integers(2, 64)}
    hosts = names(draw(size.get(topology, st.integers(least, 64))))
    if topology in ("ring", "line"):
        segments = 8 if topology == "ring" and len(hosts) < 5 else 2 * (len(hosts) - (topology == "line"))
        smallest = 30 - (segments - 1).bit_length()
    else:
        smallest = next(p for p in range(29, 1, -1) if (1 << (31 - p)) - 2 >= len(hosts))
    prefix = draw(st.integers(12, smallest))
    cidr = IPv4Network((draw(st.integers(0x0A000000, 0x0AFFFFFF)) >> (32 - prefix) << (32 - prefix), prefix))
    kinds = {
        host: draw(st.sampled_from(["spark", "thor", "generic"] if topology == "lan" else ["spark"])) for host in hosts
    }
    return {
        "hosts": hosts,
        "topology": topology,
        "cidr": str(cidr),
        "cage": draw(st.sampled_from([0, 1])),
        "mtu": draw(st.one_of(st.none(), st.integers(1280, 9216))),
        "management": {host: f"192.168.7.{index + 1}/24" for index, host in enumerate(hosts)},
        "kinds": kinds,
        "nics": dict.fromkeys(hosts, "eth0"),
    }


AB = ["a", "b"]
ABC = ["a", "b", "c"]


def check_refused(arguments: dict[str, t.Any], variable: str, words: str) -> None:
    """A call that cannot be planned ends in one line that names the variable."""
    with pytest.raises(FabricError) as caught:
        fabric_plan(**({"cidr": "10.100.0.0/24"} | arguments))
    assert caught.value.finding.where == variable
    assert str(caught.value).startswith(variable)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
