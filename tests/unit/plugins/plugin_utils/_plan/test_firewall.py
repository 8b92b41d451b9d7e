# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import firewall


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssh_ports": []}, "an empty list would shut every way in"),
        ({"ssh_ports": [0]}, "0 is not a port"),
        ({"tcp_ports": [65536]}, "65536 is not a port"),
        ({"udp_ports": [True]}, "True is not a port"),
        ({"sources": ["10.0.0.1/24"]}, "'10.0.0.1/24' names a host and a .* did you mean 10.0.0.0/24"),
        ({"ssh_sources": ["office"]}, "'office' is not an address or a network; write it like"),
        ({"api_sources": ["x"]}, "'x' is not an address"),
        ({"interfaces": ['x" accept #']}, ".* is not the name of a network interface"),
    ],
)
def test_bad_values_are_named(given: dict[str, Any], message: str) -> None:
    [(name, value)] = given.items()
    found = firewall.check({f"firewall_{name}": value})
    assert list(found) == [f"firewall_{name}"]
    assert re.match(message, found[f"firewall_{name}"])


def test_what_can_be_used_is_no_problem() -> None:
    good = {"firewall_ssh_ports": [22], "firewall_sources": ["10.0.0.0/24"], "firewall_interfaces": ["docker0"]}
    assert firewall.check(good) == {}


def test_sources_are_split_by_family_and_merged() -> None:
    assert firewall.sources(["10.0.0.3", "10.0.0.2", "2001:db8::1"]) == [
        "ip saddr { 10.0.0.2/31 } ",
        "ip6 saddr { 2001:db8::1 } ",
    ]
    assert firewall.sources([]) == []
