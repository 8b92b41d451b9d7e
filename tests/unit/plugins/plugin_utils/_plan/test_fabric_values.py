# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory's fabric variables, each read and checked on its own."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import (
    fabric_plan,
)

from tests.unit.plugins.plugin_utils._plan.fabric_cases import AB, ABC, RING_MANAGEMENT


def test_values_as_text_are_read() -> None:
    assert fabric_plan(["a", "b"], "direct", "10.1.0.0/24", cage="0", mtu="1500") == fabric_plan(
        ["a", "b"], "direct", "10.1.0.0/24", cage=0, mtu=1500
    )


def test_an_address_with_a_mask_or_a_zone_is_understood() -> None:
    plan = fabric_plan(ABC, "ring", "10.100.0.0/16", management=RING_MANAGEMENT | {"a": "192.168.1.11/255.255.255.0"})
    assert plan["a"]["management_address"] == "192.168.1.11/24"
    plan = fabric_plan(AB, "direct", "10.100.0.0/24", management={"a": "fe80::1%enP7s7/64", "b": "fe80::2%enP7s7"})
    assert plan["a"]["management_address"] == "fe80::1%enP7s7/64"
