# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One fault of the table with requests in flight; the whole table, with its seconds, is the scenario ``faults``."""

from __future__ import annotations

from tests.integration.conftest import Cluster
from tools.faults.faults import measure
from tools.faults.site import Site

#: as long as a start may take on a busy machine; the scenario ``faults`` judges seconds, with a start of its own
START = 900.0


def test_serving_comes_back_after_a_workers_raylet_was_killed(cluster: Cluster) -> None:
    """The rank is lost, Ray has to rejoin, and the group has to load again: most of what heals is in it."""
    site = Site(cluster.lab, cluster.inventories)
    run = measure(site, "raylet", START, seed=0, say=print)
    print("\n" + "\n".join(run.story))
    assert run.troubles == []
    assert run.noticed is not None
    assert run.again is not None
    # requests were in flight, and each of them got its answer or its error
    assert run.clients
    assert run.hanging == 0
