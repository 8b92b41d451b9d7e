# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power, temperature, clock and throttling of a host's GPUs, by one question to nvidia-smi.

Installed on the hosts: standard library alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Runner = Callable[[list[str]], tuple[int, str, str]]

_FIELDS = {
    "watts": "power.draw",
    "celsius": "temperature.gpu",
    "sm_mhz": "clocks.sm",
    "utilization": "utilization.gpu",
    "reasons": "clocks_event_reasons.active",
}
COMMAND = ["nvidia-smi", f"--query-gpu={','.join(_FIELDS.values())}", "--format=csv,noheader,nounits"]
#: bits of NVML's clocks event reasons (nvml.h) that slow a GPU down against its owner's will; an idle GPU, a clock
#: that somebody set and the display's clock are none
_SLOWED = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
#: the bit of a clock that somebody set
_SET = 0x02
#: a GPU at its own power limit is sound; only a low clock says that the limit is too low
POWER_LIMIT = _SLOWED[0x04]
#: the unit of os_hardening that limits the clock, and its command
LIMIT_UNIT = "/etc/systemd/system/sparkthor-gpu-clock.service"
_LIMIT = re.compile(r"^ExecStart=.*--lock-gpu-clocks=\d+,(\d+)\s*$", re.MULTILINE)
#: names of those reasons
REASONS = tuple(_SLOWED.values())


def parse(text: str) -> list[dict[str, Any]]:
    """One entry a GPU: ``watts, celsius, sm_mhz, utilization`` (None where the driver has no number), ``slowed``, the
    reasons that hold now, and ``locked`` where somebody set the clock.

    Lines of another form are left out: a driver may lack one of the fields.
    """
    gpus = []
    for line in text.splitlines():
        values = dict(zip(_FIELDS, (item.strip() for item in line.split(",")), strict=False))
        if len(values) < len(_FIELDS) or "," in line.split(",", len(_FIELDS) - 1)[-1]:
            continue
        reasons = values.pop("reasons")
        bits = int(reasons, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", reasons) else 0
        numbers = {name: float(item) if re.fullmatch(r"\d+(\.\d+)?", item) else None for name, item in values.items()}
        slowed = [name for bit, name in _SLOWED.items() if bits & bit]
        gpus.append({**numbers, "slowed": slowed, **({"locked": True} if bits & _SET else {})})
    return gpus


def clock_limit(unit: str) -> int:
    """MHz that the text of :data:`LIMIT_UNIT` allows; 0 where it limits nothing."""
    found = _LIMIT.search(unit)
    return int(found[1]) if found else 0


def read(run: Runner) -> list[dict[str, Any]]:
    """The GPUs of this host now; none where nvidia-smi is absent, hangs or does not know a field."""
    rc, out, _err = run(COMMAND)
    return parse(out) if rc == 0 else []
