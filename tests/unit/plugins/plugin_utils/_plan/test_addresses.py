# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import addresses
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("10.0.0.5/24", "10.0.0.0/24"),
        ("10.0.0.5/255.255.255.0", "10.0.0.0/24"),
        ("10.0.0.5", "10.0.0.5/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("fd00::1/64", None),
        ("default", None),
        ("", None),
        ("10.0.0.300/24", None),
    ],
)
def test_ipv4_network_of(text: str, network: str | None) -> None:
    found = addresses.ipv4_network_of(text)
    assert (None if found is None else str(found)) == network


@pytest.mark.parametrize(("text", "subnet"), [("10.0.0.5/24", "10.0.0.0/24"), ("fd00::5/64", "fd00::/64")])
def test_subnet_of(text: str, subnet: str) -> None:
    assert addresses.subnet_of(text) == subnet


@pytest.mark.parametrize("text", ["10.0.0.1/24", "spark-01", "", "10.0.0", "1", "010.0.0.1.2"])
def test_what_is_no_address(text: str) -> None:
    # netaddr says it, each time in other words
    with pytest.raises(ValueError):  # noqa: PT011
        addresses.address_of(text)


@pytest.mark.parametrize(
    ("texts", "network"),
    [
        (["10.0.0.1"], "10.0.0.1/32"),
        (["10.0.0.1", "10.0.0.200"], "10.0.0.0/24"),
        (["10.0.1.1", "10.0.0.200", "10.0.3.3"], "10.0.0.0/22"),
        (["10.0.0.1", "192.168.0.1"], "0.0.0.0/0"),
    ],
)
def test_common_network(texts: list[str], network: str) -> None:
    assert str(addresses.common_network(map(addresses.address_of, texts))) == network


def test_overlap_is_one_network_inside_the_other() -> None:
    wide, inside, beside = (addresses.ipv4_interface_of(text) for text in ("10.0.0.0/24", "10.0.0.9/30", "10.0.1.0/24"))
    assert addresses.overlap(wide, inside)
    assert addresses.overlap(inside, wide)
    assert not addresses.overlap(wide, beside)


def test_without_netaddr_every_question_is_one_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "netaddr", None)
    with pytest.raises(FabricError, match=r"Python package netaddr is not installed: .*pip install netaddr"):
        addresses.address_of("10.0.0.1")
    with pytest.raises(FabricError, match="Python package netaddr is not installed"):
        addresses.ipv4_network_of("172.31.255.1/24")
