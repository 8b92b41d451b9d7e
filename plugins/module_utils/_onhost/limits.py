# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From where on a host's state is wrong: one number each for status, doctor, verify, exporter and alerts.

alerts.yml cannot import them: ``tests/unit/roles/test_alerts.py`` holds its numbers against these, and its severities
against the doctor's rules.  Installed on the hosts: standard library alone.
"""

from __future__ import annotations

from typing import Final

GIB: Final = 1 << 30
#: share of the memory that a host needs to stay alive under load
MEMORY_LEFT: Final = 0.04
#: share and bytes of a disk that are free where it is full; a large disk has room at a small share
DISK_LEFT: Final = 0.05
DISK_BYTES: Final = 20 * GIB
#: bytes that are swapped out where something beside the model takes its memory
SWAPPED: Final = GIB
#: packets that RDMA lost or sent again, at least, and their share of those that came: a sound fabric counts some
LOST: Final = 10_000
LOST_SHARE: Final = 1e-4
#: times within an hour that a link goes down
FLAPS: Final = 3
#: errors of a PCIe device that were corrected, an hour; of those that were not, one is too many
PCIE_CORRECTED: Final = 20
#: MHz at which a GB10 that works runs under load; one that negotiated too little power stays at 500 to 850.
#: Source: spark-gpu-throttle-check
GPU_MHZ: Final = 2400.0
#: share of the clock that it may reach, or of its peers', below which a busy GPU is held back
GPU_SHARE: Final = 0.9
#: per cent of use from which on a GPU's clock says something
GPU_BUSY: Final = 80.0

#: seconds after which what the watchdog said is no longer true; its own commands may take a minute
WATCHDOG_STALE: Final = 90.0


def memory_low(total: float, available: float) -> bool:
    return bool(total) and available < MEMORY_LEFT * total


def disk_low(total: float, free: float) -> bool:
    """A small file system in memory is small by design: only its share counts."""
    return bool(total) and (free < DISK_LEFT * total and free < DISK_BYTES)


def gpu_reach(kind: str, limit: float) -> float:
    """The clock in MHz that a GPU reaches under load: the limit that its unit sets, else the machine's own; 0 where
    nobody knows."""
    return min(limit or GPU_MHZ, GPU_MHZ) if kind == "spark" else float(limit)
