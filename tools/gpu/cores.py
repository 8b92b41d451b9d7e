# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cores of its own for the cluster that is measured; the other clusters, or else the client, have the rest."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sparklab.machine import cgroup_root

from tools.playbooks import TOP


def share(cores: int, machine: int) -> tuple[str, str]:
    """Which of the machine's cores are the measured cluster's, and which the others'; 0 = all are everybody's."""
    if not 0 <= cores < machine:
        raise ValueError(f"this machine has {machine} cores, and the other clusters need some")
    return f"0-{(cores or machine) - 1}", f"{cores}-{machine - 1}"


def own(lab: str, cores: int, home: Path = TOP / ".lab", root: Path | None = None) -> None:
    """The hosts of ``lab`` get the first cores; hosts of other labs the others.

    This process, which asks the hosts, has the others if no lab does, and else the first ones.
    """
    root = root or cgroup_root()
    mine, theirs = share(cores, os.cpu_count() or 1)
    (root / "cgroup.subtree_control").write_text("+cpuset")
    beside = False
    for record in home.glob("*/lab.json"):
        group = root / f"sparklab-{json.loads(record.read_text(encoding='utf-8'))['tag']}"
        if group.exists():
            (group / "cpuset.cpus").write_text(mine if record.parent.name == lab else theirs)
            beside = beside or record.parent.name != lab
    everywhere = range(os.cpu_count() or 1)
    os.sched_setaffinity(0, everywhere[:cores] if cores and beside else everywhere[cores:])
