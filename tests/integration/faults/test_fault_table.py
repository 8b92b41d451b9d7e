# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of the table three times with requests in flight, and the controller killed at random moments.

Runs are kept by commit as they are measured: a scenario that was interrupted goes on where it stopped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.conftest import TOP, Cluster
from tools.faults import busy, controller
from tools.faults.__main__ import commit, complete
from tools.faults.site import Site
from tools.faults.table import ROWS, Row, lines, misses

ROUNDS = 3


@pytest.fixture(scope="session")
def results() -> Path:
    return TOP / ".lab" / "results" / commit() / "faults"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_serving_comes_back_by_itself(cluster: Cluster, results: Path, row: Row) -> None:
    site = Site(cluster.lab, cluster.inventories)
    runs = complete(site, row.name, ROUNDS, folder=results)
    print("\n" + "\n".join(lines({row.name: runs})))
    assert misses(row, runs) == []


@pytest.mark.parametrize(("layer", "count"), [("serving", 3), ("host", 17)])
def test_a_killed_controller_leaves_nothing_that_the_next_run_cannot_finish(
    cluster: Cluster, results: Path, layer: str, count: int
) -> None:
    where = ["--lab", cluster.lab.name, "--inventory", "lab_tiny"] if layer == "serving" else ["--lab", "mol-killed"]
    kept = results / "controller.json"
    rc = controller.main(["--layer", layer, "--count", str(count), "--kept", str(kept), *where])
    assert rc == 0, [kill for kill in controller.read(kept) if not kill.holds]


def test_half_an_hour_at_full_load_without_a_false_alarm(cluster: Cluster) -> None:
    assert busy.main(["--lab", cluster.lab.name]) == 0
