# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A planned NIC that is there under another name, and one that is not there at all."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import nic_names

NIC = "enP2p1s0f1np1"
MANAGEMENT = {"name": "enP7s7", "altnames": [], "pci": "0007:01:00.0", "phys_port_name": ""}


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("enp1s0f1np1", "0000:01:00.1"),
        (NIC, "0002:01:00.1"),
        ("enP7s7", ""),
        ("mgbe0_0", ""),
    ],
)
def test_the_pci_address_that_a_name_says(name: str, address: str) -> None:
    assert nic_names.pci_of(name) == address


@pytest.mark.parametrize(
    "nic",
    [
        pytest.param({"name": "fabric1", "pci": "0002:01:00.1"}, id="the same place on the PCI bus"),
        pytest.param({"name": "fabric1", "altnames": [NIC]}, id="its own name is a second one"),
        pytest.param({"name": "enP2p3s0f1np1", "pci": "0002:03:00.1", "phys_port_name": "p1"}, id="the bus moved"),
    ],
)
def test_a_nic_of_another_name_is_known(nic: dict[str, Any]) -> None:
    assert nic_names.now_called(NIC, [MANAGEMENT, nic]) == nic["name"]
    assert nic_names.now_called(NIC, [MANAGEMENT, nic, {"name": NIC}]) == "", "it is there"


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([], id="no other"),
        pytest.param([{"name": "lan0", "pci": "0000:01:00.1", "phys_port_name": "p1"}], id="the other half"),
        pytest.param([{"name": "enP2p1s0f0np0", "pci": "0002:01:00.0", "phys_port_name": "p0"}], id="the other cage"),
        pytest.param(
            [{"name": name, "pci": f"0002:0{bus}:00.1", "phys_port_name": "p1"} for bus, name in ((3, "a"), (4, "b"))],
            id="two that it may be",
        ),
        pytest.param([{"name": "usb0"}], id="facts of no NIC of PCI"),
    ],
)
def test_a_nic_that_is_gone_stays_gone(others: list[dict[str, Any]]) -> None:
    assert nic_names.now_called(NIC, [MANAGEMENT, *others]) == ""


def test_a_thor_s_lane_is_known_by_its_second_name() -> None:
    assert nic_names.now_called("mgbe0_0", [{"name": "qsfp0", "altnames": ["mgbe0_0"], "pci": ""}]) == "qsfp0"


def test_a_name_that_a_shell_would_run_is_quoted_in_the_fix() -> None:
    _what, fix = nic_names.renamed("enp1s0f1np1", "eth7;reboot")
    assert "ip link set 'eth7;reboot' down" in fix
    assert "set eth7;reboot" not in fix
