# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of NCCL's settings."""

from __future__ import annotations

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import ev, found, world


def test_a_spark_that_may_use_rdma_beside_a_thor() -> None:
    case = world(("a", "b", "c"), "lan", ("spark", "spark", "thor"))
    for host in ("a", "b"):
        ev(case, host)["rdma"] = {"links": [{"device": "rocep1s0f0", "netdev": "enp1s0f0np0", "state": "down"}]}
    assert found(case) == []
    ev(case, "b")["files"]["fabric.env"] = ev(case, "b")["files"]["fabric.env"].replace("DISABLE=1", "DISABLE=0")
    assert found(case) == [("nccl-wrong-type", ("b",))]
