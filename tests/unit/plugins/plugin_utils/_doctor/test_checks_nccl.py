# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of NCCL's settings."""

from __future__ import annotations

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import ev, found, process, world


def test_a_spark_that_may_use_rdma_beside_a_thor() -> None:
    case = world(("a", "b", "c"), "lan", ("spark", "spark", "thor"))
    for host in ("a", "b"):
        ev(case, host)["rdma"] = {"links": [{"device": "rocep1s0f0", "netdev": "enp1s0f0np0", "state": "down"}]}
    assert found(case) == []
    ev(case, "b")["files"]["fabric.env"] = ev(case, "b")["files"]["fabric.env"].replace("DISABLE=1", "DISABLE=0")
    assert found(case) == [("nccl-wrong-type", ("b",))]


def test_settings_of_an_image_that_nobody_planned() -> None:
    case = world()
    settings = {"NCCL_IB_USE_INLINE": "1", "NCCL_DEBUG": "WARN"}
    ev(case, "a")["processes"] = [process("vllm", "vllm", "serve", "--api-key=x", nccl_conf=settings)]
    named = [name for name, _hosts in found(case)]
    assert "nccl-unplanned" in named
    # the environment outranks the file
    ev(case, "a")["processes"][0]["env"].update(settings)
    assert "nccl-unplanned" not in [name for name, _hosts in found(case)]


def test_settings_that_freeze_count_in_the_hosts_file_as_well() -> None:
    case = world()
    conf = {"settings": {"NCCL_IB_USE_INLINE": "1", "NCCL_ALGO": "Tree"}, "ineffective": []}
    ev(case, "a")["nccl"] = {"/etc/nccl.conf": conf}
    assert found(case) == [("nccl-unplanned", ("a",))]
    conf["settings"] = {"NCCL_IB_USE_INLINE": "0", "NCCL_ALGO": "Tree"}
    assert found(case) == []
