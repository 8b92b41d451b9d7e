# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's links with everybody who shares a subnet with them."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import links_of


def test_links_of_finds_everybody_on_the_subnet() -> None:
    fabric = {
        "a": {
            "links": [
                {"netdev": "x", "address": "10.0.0.1/25", "mtu": 9000},
                {"netdev": "y", "address": "10.0.0.129/25", "mtu": 9000},
            ]
        },
        "b": {"links": [{"netdev": "x", "address": "10.0.0.2/25", "mtu": None}]},
        "c": {"links": [{"netdev": "y", "address": "10.0.0.131/25", "mtu": 1500}, {"netdev": "z", "address": ""}]},
    }
    assert links_of(fabric, "a") == [
        {
            "netdev": "x",
            "address": "10.0.0.1/25",
            "mtu": 9000,
            "shared": False,
            "peers": [{"host": "b", "address": "10.0.0.2", "mtu": 0}],
        },
        {
            "netdev": "y",
            "address": "10.0.0.129/25",
            "mtu": 9000,
            "shared": False,
            "peers": [{"host": "c", "address": "10.0.0.131", "mtu": 1500}],
        },
    ]
    assert links_of(fabric, "nobody") == []


def test_the_one_nic_of_a_lan_shares_its_network() -> None:
    fabric = {"a": {"addressing": "adopted", "links": [{"netdev": "x", "address": "10.0.0.1/25", "mtu": None}]}}
    assert [link["shared"] for link in links_of(fabric, "a")] == [True]


def test_links_of_a_host_read_every_other_host_once() -> None:
    """A host's links are worked out on their own, so what one of them costs counts once for each of 256."""

    class Counting(dict):
        reads = 0

        def get(self, key: str, default: Any = None) -> Any:
            Counting.reads += key == "links"
            return super().get(key, default)

    fabric = {
        f"h{number}": Counting(
            links=[
                {"netdev": f"n{half}", "address": f"10.{half}.0.{number}/16", "subnet": f"10.{half}.0.0/16"}
                for half in (0, 1)
            ]
        )
        for number in range(1, 255)
    }
    links = links_of(fabric, "h7")
    assert [len(link["peers"]) for link in links] == [253, 253]
    assert Counting.reads == len(fabric)
