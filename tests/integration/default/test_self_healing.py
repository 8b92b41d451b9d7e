# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fault of the table with requests in flight; the whole table is the scenario ``faults``."""

from __future__ import annotations

from tests.integration.conftest import Cluster
from tools.faults.faults import measure
from tools.faults.site import Site
from tools.faults.table import BY_NAME, lines, misses


def test_serving_comes_back_after_a_workers_raylet_was_killed(cluster: Cluster) -> None:
    """The rank is lost, Ray has to rejoin, and the group has to load again: most of what heals is in it."""
    site = Site(cluster.lab, cluster.inventories)
    clean = site.clean_start()
    run = measure(site, "raylet", clean, seed=0, say=print)
    print("\n" + "\n".join([*lines({"raylet": [run]}), *run.story]))
    assert misses(BY_NAME["raylet"], [run]) == []
