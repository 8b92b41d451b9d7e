# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of PCIe devices, as the kernel's AER counts them in sysfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import pcie_errors


def counted(hours: float, **errors: int) -> dict[str, Any]:
    return {"hours": hours, "devices": {"0000:01:00.0": errors}}


def test_counters_are_summed_by_kind_and_what_is_no_counter_is_left_out(tmp_path: Path) -> None:
    for path, text in {
        "sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable": "RxErr 0\nBadTLP 4\nTOTAL_ERR_COR 4\n",
        "sys/bus/pci/devices/0000:01:00.0/aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 1\n",
        "sys/bus/pci/devices/0000:01:00.0/aer_dev_fatal": "DLP 2\nTOTAL_ERR_FATAL 2\n",
        "sys/bus/pci/devices/0002:01:00.0/aer_dev_fatal": "nonsense",
        "proc/uptime": "7200.55 14000.00\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert pcie_errors.read(str(tmp_path)) == counted(2.0, corrected=4, uncorrected=3)
    assert pcie_errors.read(str(tmp_path / "nowhere")) == {"hours": 0.0, "devices": {}}


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (counted(0.1, corrected=19, uncorrected=0), False),
        (counted(0.1, corrected=20, uncorrected=0), True),
        # a few an hour are sound, however long the host has been up
        (counted(1000, corrected=19_000), False),
        (counted(1000, uncorrected=1), True),
        ({}, False),
    ],
)
def test_one_uncorrected_error_or_many_corrected_ones_an_hour_are_too_much(found: dict[str, Any], wrong: bool) -> None:
    assert bool(pcie_errors.told(found)) is wrong
