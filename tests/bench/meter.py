# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Wall and CPU seconds of a command and of the simulated hosts it works on.

The command runs in a control group of its own, so that what it leaves behind (ssh's shared connections) counts too;
the hosts' seconds are those of their control groups.  A control group counts CPU time without any controller being
switched on (Linux, Documentation/admin-guide/cgroup-v2.rst, cpu.stat).
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklab import Lab
from sparklab.machine import cgroup_root

_GROUP = cgroup_root() / "sparkthor-bench"


@dataclass(frozen=True)
class Sample:
    """One run: seconds of wall and CPU, the share of the machine's CPU that was stolen, the load before it."""

    wall: float
    controller_cpu: float
    target_cpu: float
    steal: float
    load: float


def cpu_seconds(group: Path) -> float:
    """CPU seconds (user and system) that a control group has used."""
    for line in (group / "cpu.stat").read_text(encoding="utf-8").splitlines():
        key, _space, value = line.partition(" ")
        if key == "usage_usec":
            return int(value) / 1e6
    raise ValueError(f"{group}/cpu.stat has no usage_usec")


def _machine_ticks() -> tuple[int, int]:
    """(stolen, all) clock ticks of the machine since boot, from proc_stat(5)."""
    with open("/proc/stat", encoding="ascii") as handle:
        fields = [int(field) for field in handle.readline().split()[1:9]]
    return fields[7], sum(fields)


def _enter() -> None:
    (_GROUP / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")


class RunError(Exception):
    """A measured command failed: its figures would mean nothing."""


def measure(
    argv: Sequence[str],
    lab: Lab,
    *,
    environment: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    limit: float = 1800,
) -> Sample:
    """Run ``argv`` once and return its :class:`Sample`; raises RunError with the end of its output if it fails."""
    _GROUP.mkdir(exist_ok=True)
    hosts = [lab.machine(host.name).cgroup for host in lab.plan.hosts]
    before = sum(cpu_seconds(group) for group in hosts)
    used_before = cpu_seconds(_GROUP)
    stolen, ticks = _machine_ticks()
    load = os.getloadavg()[0]
    begun = time.monotonic()
    done = subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        input=stdin if stdin is not None else "",
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        preexec_fn=_enter,
        timeout=limit,
    )
    wall = time.monotonic() - begun
    stolen_after, ticks_after = _machine_ticks()
    if log is not None:
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode != 0:
        raise RunError(f"{' '.join(argv)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}")
    return Sample(
        wall=round(wall, 3),
        controller_cpu=round(cpu_seconds(_GROUP) - used_before, 3),
        target_cpu=round(sum(cpu_seconds(group) for group in hosts) - before, 3),
        steal=round((stolen_after - stolen) / max(1, ticks_after - ticks), 4),
        load=round(load, 2),
    )
