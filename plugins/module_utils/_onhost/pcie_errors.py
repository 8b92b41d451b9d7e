# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What PCIe devices counted of errors since the boot (AER), and whether it is too much.

Installed on the hosts: standard library alone.
"""

from __future__ import annotations

import os
import re
from typing import Any

from .._lib.files import read_plain
from .limits import PCIE_CORRECTED

_FOLDER = "sys/bus/pci/devices"
#: file -> kind and the line that sums it up (Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats)
_FILES = {
    "aer_dev_correctable": ("corrected", "TOTAL_ERR_COR"),
    "aer_dev_nonfatal": ("uncorrected", "TOTAL_ERR_NONFATAL"),
    "aer_dev_fatal": ("uncorrected", "TOTAL_ERR_FATAL"),
}
_MOST = 256


def read(root: str = "/") -> dict[str, Any]:
    """``hours`` since the boot, and by ``devices`` what each that has such counters counted."""
    devices: dict[str, dict[str, int]] = {}
    folder = os.path.join(root, _FOLDER)
    try:
        names = sorted(os.listdir(folder))[:_MOST]
    except OSError:
        names = []
    for name in names:
        for file, (kind, total) in _FILES.items():
            found = re.search(rf"^{total} (\d{{1,18}})$", _text(os.path.join(folder, name, file)), re.MULTILINE)
            if found:
                counted = devices.setdefault(name, {})
                counted[kind] = counted.get(kind, 0) + int(found[1])
    uptime = re.match(r"\d{1,12}", _text(os.path.join(root, "proc/uptime")))
    return {"hours": int(uptime[0]) / 3600 if uptime else 0.0, "devices": devices}


def _text(path: str) -> str:
    try:
        return read_plain(path, 4096).decode("ascii", "replace")
    except OSError:
        return ""


def told(counted: dict[str, Any]) -> list[str]:
    """A line for each device that counted too much."""
    hours = max(1.0, counted.get("hours") or 0.0)
    lines = []
    for device, errors in (counted.get("devices") or {}).items():
        bad, corrected = errors.get("uncorrected", 0), errors.get("corrected", 0)
        if bad or corrected >= PCIE_CORRECTED * hours:
            lines.append(
                f"PCIe device {device} counted {bad} uncorrected errors since boot, {corrected} corrected ones"
            )
    return lines
