# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From where on a host's state is wrong.  That others judge by the same numbers: tests/unit/roles/test_alerts.py."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import limits

GIB = limits.GIB


@pytest.mark.parametrize(("total", "available", "low"), [(120, 4.7, True), (120, 4.9, False), (0, 0, False)])
def test_memory_is_judged_by_its_share(total: float, available: float, low: bool) -> None:
    assert limits.memory_low(total * GIB, available * GIB) is low


@pytest.mark.parametrize(
    ("total", "free", "low"),
    # of a large disk 4 % are room enough, a small one in memory is small by design
    [(4000, 160, False), (4000, 19, True), (100, 6, False), (100, 4, True), (0.1, 0.05, False), (0, 0, False)],
)
def test_a_disk_is_full_by_share_and_bytes(total: float, free: float, low: bool) -> None:
    assert limits.disk_low(total * GIB, free * GIB) is low


@pytest.mark.parametrize(
    ("kind", "limit", "reach"),
    [("spark", 0, 2400), ("spark", 2000, 2000), ("spark", 3000, 2400), ("thor", 0, 0), ("generic", 1500, 1500)],
)
def test_a_gpu_reaches_its_limit_or_what_the_machine_does(kind: str, limit: float, reach: float) -> None:
    assert limits.gpu_reach(kind, limit) == reach
