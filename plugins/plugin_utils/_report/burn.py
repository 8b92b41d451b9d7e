# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a minute of full load says of each GPU, beside its plan and its peers.  Runs on the controller; pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Final

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.gpu_state import POWER_LIMIT
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_gpu
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report.verify import FAIL, INFO, PASS, line

#: the part of verify that this is, by itself only where nothing serves
BURN: Final = "burn"
#: per cent of use from which on somebody else's work would be disturbed, and would disturb the measurement
IDLE: Final = 10.0
CHECK: Final = "GPU burn"
_FIX: Final = (
    "power the host off, pull its plug for a minute, check plug and power adapter; if it stays slow, see sudo "
    "nvidia-smi -q -d PERFORMANCE,CLOCK and its air"
)


def idle(facts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether nothing serves on these hosts, and no GPU of theirs is busy."""
    for found in facts.values():
        for name, unit in (found.get("units") or {}).items():
            if name.startswith("sparkthor-vllm") and unit.get("active") not in ("inactive", "failed"):
                return False
        if any((gpu.get("utilization") or 0.0) > IDLE for gpu in found.get("gpus") or ()):
            return False
    return True


def burn_lines(
    answers: Mapping[str, Mapping[str, Any] | None], nodes: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One line a GPU. ``answers`` are what ``run_burn`` returned by host, ``nodes`` the facts ``sparkthor_node``.

    A GPU fails below :data:`host_gpu.SHARE` of the clock that it may reach, of its peers' clock or of their TFLOP/s;
    peers are the GPUs of the same name on other hosts. Its own power limit alone is no failure. What CPUs reach in a
    GPU's place is shown and not judged.
    """
    tested = {
        (host, number): {**gpu, "cpu": (answer or {}).get("device") == "cpu"}
        for host, answer in answers.items()
        for number, gpu in enumerate((answer or {}).get("gpus") or ())
    }
    lines = []
    for host, answer in answers.items():
        own = {number: gpu for (name, number), gpu in tested.items() if name == host}
        if not own:
            note = (answer or {}).get("error") or "not run: no engine with torch on this host"
            lines.append(line(CHECK, host, FAIL, note=note, fix="run site.yml, then verify.yml -e verify_parts=burn"))
        for number, gpu in own.items():
            limit = 0.0 if gpu["cpu"] else host_gpu.limit_mhz(nodes.get(host, {}))
            peers = [
                _as_if_limited(one, limit, host_gpu.limit_mhz(nodes.get(name, {})))
                for (name, _number), one in tested.items()
                if name != host and one["name"] == gpu["name"]
            ]
            lines.append(_judged(f"{host} GPU {number}", gpu, peers, limit))
    return lines


def _as_if_limited(peer: Mapping[str, Any], limit: float, own: float) -> dict[str, Any]:
    """A peer as it would be with another host's limit of the clock: an owner may limit one host alone."""
    scale = limit / own if limit and own else 1.0
    clock = peer.get("sm_mhz")
    return {**peer, "sm_mhz": clock * scale if clock else clock, "tflops": peer["tflops"] * scale}


def _judged(where: str, gpu: Mapping[str, Any], peers: list[dict[str, Any]], limit: float) -> dict[str, Any]:
    why, least = _slow(gpu, peers, limit)
    held = f"at its power limit ({POWER_LIMIT})" if POWER_LIMIT in (gpu.get("slowed") or ()) else ""
    shown = ((gpu.get("sm_mhz"), "MHz"), (gpu.get("watts"), "W"), (gpu.get("celsius"), "°C"))
    words = ["CPUs, as torch sees no GPU" if gpu["cpu"] else gpu["name"]]
    words += [f"{value:g} {unit}" for value, unit in shown if value is not None]
    words += [held] if held else []
    verdict = FAIL if why else INFO if gpu["cpu"] else PASS
    value = round(gpu["tflops"], 3 if gpu["tflops"] < 1 else 1)
    return line(
        CHECK, where, verdict, value, "TFLOP/s", least, "; ".join([", ".join(words), *why]), _FIX if why else ""
    )


def _slow(gpu: Mapping[str, Any], peers: list[dict[str, Any]], limit: float) -> tuple[list[str], float | None]:
    """Why a GPU counts as slow, in words, and the TFLOP/s that it needs; None without a peer."""
    why = []
    clock = gpu.get("sm_mhz") or 0.0
    clocks = [other["sm_mhz"] for other in peers if other.get("sm_mhz")]
    if set(gpu.get("slowed") or ()) - {POWER_LIMIT}:
        why.append(f"the driver slows it down ({', '.join(gpu['slowed'])})")
    if clock and limit and clock < host_gpu.SHARE * limit:
        why.append(f"{clock / limit:.0%} of the {limit:.0f} MHz that it may reach")
    if clock and clocks and clock < host_gpu.SHARE * statistics.median(clocks):
        why.append(f"{clock / statistics.median(clocks):.0%} of its peers' {statistics.median(clocks):.0f} MHz")
    if gpu["cpu"] or not peers:
        return why, None
    usual = statistics.median(other["tflops"] for other in peers)
    least = round(host_gpu.SHARE * usual, 1)
    if gpu["tflops"] < host_gpu.SHARE * usual:
        why.append(f"{gpu['tflops'] / usual:.0%} of its peers' {usual:.1f} TFLOP/s")
    return why, least
