# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Four hosts that one switch should join, and that two switches without a link, or two cables, join in parts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.rings.test_cables import HALVES, holds, inventory, is_converged, refused
from tests.integration.sites import Maker


def ports(*hosts: int) -> list[str]:
    """Both halves of cage 1 of these hosts."""
    return [f"spark-{host:02}:{nic}" for host in hosts for nic in HALVES[1]]


PAIRS = [[f"spark-{one:02}:{nic}", f"spark-{two:02}:{nic}"] for one, two in ((1, 2), (3, 4)) for nic in HALVES[1]]


@pytest.mark.parametrize(
    ("name", "wiring", "words"),
    [
        (
            "mol-two-sw",
            {"switches": [ports(1, 2), ports(3, 4)]},
            ("hear each other on the fabric and not the others: spark-01, spark-02; spark-03, spark-04", "RSTP"),
        ),
        ("mol-one-out", {"switches": [ports(1, 2, 3), ports(4)]}, ("host spark-04", "in one VLAN with")),
        ("mol-pairs", {"cables": PAIRS}, ("cabled as pairs", "join all hosts by one switch")),
    ],
)
def test_a_switch_that_does_not_join_all_stops_a_run_before_a_change(
    site: Maker, name: str, wiring: dict[str, Any], words: tuple[str, ...]
) -> None:
    one = site(name, inventory("parts", "switch", 4), 26, wiring=wiring)
    refused(one, *words)
    one.lab.destroy()
    del site.sites[name]


def test_one_switch_for_all_ports_is_converged_once_and_holds(site: Maker) -> None:
    one = site("mol-one-sw", inventory("parts", "switch", 4), 26, wiring={"switches": [ports(1, 2, 3, 4)]})
    is_converged(one)
    holds(one, "spark-03", *HALVES[1])
