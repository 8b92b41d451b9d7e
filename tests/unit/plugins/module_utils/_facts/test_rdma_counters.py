# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters of RDMA devices, as mlx5 lays them out in sysfs."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import rdma_counters


def test_what_a_device_lacks_is_left_out(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/rocep1s0f0/ports/1"
    for name, text in (
        ("counters/port_rcv_packets", "1000000\n"),
        ("hw_counters/out_of_sequence", "812345\n"),
        ("hw_counters/packet_seq_err", "N/A\n"),
    ):
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text)
    (tmp_path / "sys/class/infiniband/rxe0/ports/1").mkdir(parents=True)
    assert rdma_counters.read(str(tmp_path)) == {
        "rocep1s0f0": {"port_rcv_packets": 1_000_000, "out_of_sequence": 812_345}
    }
    assert rdma_counters.read(str(tmp_path / "nowhere")) == {}


def test_a_device_that_lost_many_and_a_share_of_them_is_told() -> None:
    sound = {"port_rcv_packets": 10**9, "out_of_sequence": 50_000, "packet_seq_err": 9_999}
    sick = {"port_rcv_packets": 10**7, "out_of_sequence": 12_000, "roce_adp_retrans": 3}
    assert rdma_counters.told({"r0": sound, "r1": sick, "r2": {}}) == [
        "r1: out_of_sequence 12000, roce_adp_retrans 3, of 10000000 packets received"
    ]
