# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of our netplan and environment files."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    netplan,
)

from tests.unit.netplan import LINK


def test_render_is_what_the_fixtures_were_made_of() -> None:
    text = netplan.render([LINK])
    assert text == (
        "# Ansible managed: sparkthor.cluster\nnetwork:\n  version: 2\n  ethernets:\n    enp1s0f1np1:\n"
        "      dhcp4: false\n      dhcp6: false\n      accept-ra: false\n      link-local: []\n      optional: true\n"
        "      ignore-carrier: true\n      mtu: 9000\n      addresses:\n        - 10.100.0.1/25\n"
    )
    assert netplan.is_ours(text)
    assert not netplan.is_ours("network:\n# Ansible managed: sparkthor.cluster\n")


def test_render_sets_a_renderer_per_nic_only_and_no_mtu_unless_planned() -> None:
    text = netplan.render([{**LINK, "mtu": 0}], "networkd")
    assert "\n      renderer: networkd\n" in text
    assert "\n  renderer:" not in text
    assert "mtu" not in text
    assert "networkmanager:" not in text, "netplan refuses it for networkd"


def test_network_manager_keeps_the_address_without_a_carrier_and_listens_to_no_router() -> None:
    planned = netplan.files("/x.yaml", [LINK, {**LINK, "netdev": "fab1"}], "NetworkManager")
    assert planned["/x.yaml"] == {
        "content": netplan.render([LINK, {**LINK, "netdev": "fab1"}], "NetworkManager"),
        "mode": 0o600,
        "uid": 0,
        "gid": 0,
    }
    assert planned["/x.yaml"]["content"].count("          ipv6.method: disabled\n") == 2
    assert planned["/x.yaml"]["content"].count("\n      renderer: NetworkManager\n") == 2
    settings = planned[netplan.NM_CONF]
    assert settings is not None
    assert settings["content"].splitlines()[1:] == [
        "[device-sparkthor-fabric]",
        "match-device=interface-name:enp1s0f1np1,interface-name:fab1",
        "ignore-carrier=yes",
    ]


@pytest.mark.parametrize("renderer", ["", "networkd"])
def test_networkd_needs_no_second_file(renderer: str) -> None:
    assert netplan.files("/x.yaml", [LINK], renderer)[netplan.NM_CONF] is None
