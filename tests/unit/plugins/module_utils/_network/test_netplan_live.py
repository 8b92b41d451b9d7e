# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is on a NIC and was not there before; the parsers are tested with the job that uses them."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_live

GLOBAL = {"scope": "global", "dynamic": False, "family": "inet"}


def test_strange_addresses_are_neither_recorded_nor_floating_nor_of_the_link_itself() -> None:
    plan = {"live": {"fab0": {"addresses": {"10.1.0.1/24": GLOBAL}}}, "floating": ["10.1.0.100"]}
    addresses = ("10.1.0.1/24", "10.1.0.100/24", "10.1.0.101/24", "fe80::1/64", "169.254.1.1/16")
    live = {"fab0": {"addresses": dict.fromkeys(addresses, GLOBAL)}}
    assert netplan_live.strange_addresses(plan, "fab0", live) == ["10.1.0.101/24"]
    assert netplan_live.strange_addresses(plan, "gone", live) == []
    assert netplan_live.missing_addresses(plan["live"], {"fab0": {"addresses": {}}}, "fab0") == ["10.1.0.1/24"]
