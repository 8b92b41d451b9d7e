# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the fabric: cables, MTU, throttled ports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import RULES, ev, found, world


def narrow_pcie(case: Case) -> None:
    netdev = case.links("a")[0]["netdev"]
    ev(case, "a")["pcie"][netdev] = {"current_link_width": "1", "max_link_width": "16"}


def lowered_mtu_on_both(case: Case) -> None:
    for link in case.links("a"):
        for nic in ev(case, "a")["node"]["interfaces"]:
            if nic["name"] == link["netdev"]:
                nic["mtu"] = 1500


def test_one_dead_port_of_a_switch_is_one_finding() -> None:
    case = world(("a", "b", "c", "d"), "switch")
    dead = case.links("c")[0]["netdev"]
    address = case.links("c")[0]["address"].partition("/")[0]
    for host in case.hosts:
        for ping in ev(case, host)["pings"]:
            if (host == "c" and ping["netdev"] == dead) or ping["address"] == address:
                ping.update(small=False, full=False, error="no answer")
    assert found(case) == [("link-silent", ("a", "b", "c", "d"))]
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    assert (findings[0].finding.host, findings[0].finding.where) == ("c", dead)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (narrow_pcie, [("nic-throttled", ("a",))]),
        (lowered_mtu_on_both, [("mtu-mismatch", ("a", "b"))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected


def test_an_open_firewall_and_one_that_nobody_watches_over() -> None:
    case = world()
    ev(case, "a")["firewall"] = {"state": "open", "reason": "the table inet sparkthor is not loaded"}
    ev(case, "b")["firewall"] = {"state": "closed", "reason": ""}
    assert found(case) == [("firewall-open", ("a",)), ("firewall-unwatched", ("b",))]
    for host in ("a", "b"):
        ev(case, host)["firewall"] = {"state": "closed", "reason": ""}
        ev(case, host)["units"]["sparkthor-firewall-watch.service"] = {"ActiveState": "active"}
    assert found(case) == []
    # off in the inventory, or amid a change
    ev(case, "a")["units"].clear()
    for state in ("unmanaged", "unconfirmed"):
        ev(case, "a")["firewall"] = {"state": state, "reason": ""}
        assert found(case) == []


def test_a_virtual_address_that_nobody_has_and_one_that_two_have() -> None:
    case, item = world(topology="switch"), {"address": "192.168.1.100/24", "family": "inet", "scope": "global"}
    for host in case.hosts:
        ev(case, host)["node"]["declared"] = {"virtual": "192.168.1.100"}
    both = [("virtual-address-held", ("a", "b"))]
    assert found(case) == both
    ev(case, "b")["node"]["interfaces"][0]["addresses"].append(item)
    assert found(case) == []
    ev(case, "a")["node"]["interfaces"][0]["addresses"].append(item)
    assert found(case) == both
