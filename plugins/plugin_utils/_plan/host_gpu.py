# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One judge of a host's GPUs for plan, status, doctor and verify: whether they answer, and how fast they run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.gpu_state import POWER_LIMIT
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.limits import GPU_BUSY, GPU_SHARE, gpu_reach

SHARE: Final = GPU_SHARE
BUSY: Final = GPU_BUSY
LOCKED: Final = "held by a clock that somebody set (sudo nvidia-smi -rgc and -rac take it back)"


def missing(node: Mapping[str, Any]) -> tuple[str, str]:
    """Of a Spark whose GPU does not answer: what is wrong and the fix; empty texts where nothing is.

    ``node`` is the fact ``sparkthor_node``. A Thor counts its GPU without nvidia-smi, and what a generic host should
    have is not known.
    """
    if node.get("kind") != "spark" or node.get("gpus") != 0 or node.get("assumed"):
        return "", ""
    why = str(node.get("gpu_problem") or "")
    words = f"its GPU does not answer{f' (nvidia-smi: {why})' if why else ''}"
    if "version mismatch" in why.lower():
        module = str(node.get("driver") or "")
        words += f"; the module of the kernel is {module}, the driver's programs were updated" if module else ""
        return words, "reboot the host, so that the kernel loads the driver that was installed"
    if why == "it is not installed":
        return words, "install the driver (sudo apt install nvidia-driver-580-open, or DGX OS's own), and reboot"
    return words, (
        "reboot the host; if the GPU is still missing, power it off, unplug it for a minute, and see sudo dmesg | grep "
        "-iE 'nvrm|xid'"
    )


def held_back(gpus: Mapping[str, Sequence[Mapping[str, Any]]], limits: Mapping[str, float]) -> dict[str, list[str]]:
    """By host, what is said of each GPU that runs slower than it should.

    ``gpus`` is what ``gpu_state`` read of each host, all at about one time. ``limits`` is the clock in MHz that each
    host may reach (:func:`limit_mhz`); 0 where nobody knows. A reason that the driver gives counts always, but for the
    GPU's own power limit; without one, a busy GPU below :data:`SHARE` of its limit or of its busy peers' median is held
    back by that limit or by what the driver does not tell, as after a bad power negotiation.
    """
    busy = {
        host: [float(gpu["sm_mhz"]) for gpu in found if gpu.get("sm_mhz") and (gpu.get("utilization") or 0) > BUSY]
        for host, found in gpus.items()
    }
    result: dict[str, list[str]] = {}
    for host, found in gpus.items():
        own = limits.get(host) or 0.0
        # a peer with another limit counts as if it had this host's
        peers = [
            clock * own / limits[other]
            for other, clocks in busy.items()
            if other != host and limits.get(other)
            for clock in clocks
        ]
        for number, gpu in enumerate(found):
            clock, use = gpu.get("sm_mhz") or 0.0, gpu.get("utilization") or 0.0
            reasons = list(gpu.get("slowed") or ())
            why = "" if reasons == [POWER_LIMIT] else ", ".join(reasons)
            told = f"held by {POWER_LIMIT}" if reasons else LOCKED if gpu.get("locked") else "and no reason is told"
            if not why and clock and use > BUSY and own:
                if clock < SHARE * own:
                    why = f"{clock / own:.0%} of the {own:.0f} MHz that it may reach, {told}"
                elif peers and clock < SHARE * (usual := statistics.median(peers)):
                    why = f"{clock / usual:.0%} of its peers' {usual:.0f} MHz, {told}"
            if why:
                seen = f"GPU {number}: {clock:.0f} MHz, {gpu.get('celsius') or 0:.0f} °C, {gpu.get('watts') or 0:.0f} W"
                result.setdefault(host, []).append(f"{seen}: {why}")
    return result


def limit_mhz(node: Mapping[str, Any]) -> float:
    """The clock in MHz that a host reaches under load: the limit that its unit sets, else the machine's own; 0 where
    nobody knows."""
    if node.get("kind") != "spark":
        return 0.0
    return gpu_reach("spark", float(node.get("gpu_clock_limit") or 0))
