# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each RDMA device counted since it came up: packets it got, and those that were lost or sent again.  Standard
library only."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.files import read_plain
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import limits

#: of mlx5, in hw_counters: what a fabric that loses packets makes grow
LOST = ("out_of_sequence", "packet_seq_err", "roce_adp_retrans", "local_ack_timeout_err")
RECEIVED = "port_rcv_packets"


def read(root: str = "/") -> dict[str, dict[str, int]]:
    """By device the counters that it has."""
    counters: dict[str, dict[str, int]] = {}
    for port in sorted(glob.glob(os.path.join(root, "sys/class/infiniband/*/ports/1")))[:16]:
        values = {}
        for name in (f"counters/{RECEIVED}", *(f"hw_counters/{one}" for one in LOST)):
            try:
                values[os.path.basename(name)] = int(read_plain(os.path.join(port, name), 100))
            except (OSError, ValueError):
                continue  # another driver, or a counter that this firmware lacks
        if values:
            counters[port.split(os.sep)[-3]] = values
    return counters


def told(counted: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each device that lost too much of what came: a sound fabric counts some over months, too."""
    lines = []
    for device, counters in counted.items():
        received = counters.get(RECEIVED) or 0
        lost = {name: counters.get(name) or 0 for name in LOST}
        worst = max(lost.values())
        if received and worst >= limits.LOST and worst >= limits.LOST_SHARE * received:
            words = ", ".join(f"{one} {count}" for one, count in lost.items() if count)
            lines.append(f"{device}: {words}, of {received} packets received")
    return lines
