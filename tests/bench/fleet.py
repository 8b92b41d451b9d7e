# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several clusters, each a job of ansible-runner with an inventory of its own: one after another, and side by side.

A plan needs the facts of every host, so one cluster is one job.  What several controllers can share are clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import ansible_runner
import yaml
from sparklab import Lab

CLUSTERS = 4
HOSTS = 2
REPEATS = 3
PLAYBOOK = "playbooks/host_layer.yml"


def inventory(folder: Path, number: int) -> Path:
    names = [f"c{number}-spark-{host:02d}" for host in range(1, HOSTS + 1)]
    data = {
        "cluster": {
            "children": {
                "ray_head": {"hosts": {names[0]: {}}},
                "ray_workers": {"hosts": {name: {} for name in names[1:]}},
            },
            "vars": {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/16", "ansible_user": "nvidia"},
        },
        "sparks": {"children": {"cluster": {}}},
    }
    path = folder / f"cluster-{number}.yml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


def job(top: Path, folder: Path, inventories: Sequence[Path]) -> int:
    """One cluster's run, as a scheduler would start it; how many hosts it changed something on."""
    folder.mkdir(parents=True, exist_ok=True)
    done = ansible_runner.run(
        private_data_dir=str(folder),
        project_dir=str(top),
        playbook=PLAYBOOK,
        inventory=[str(path) for path in inventories],
        envvars={"ANSIBLE_CONFIG": str(top / "ansible.cfg"), "ANSIBLE_FORKS": str(HOSTS)},
        quiet=True,
    )
    if done.rc != 0:
        raise RuntimeError(f"{folder.name}: {PLAYBOOK} ended with {done.rc}: {done.stdout.read()[-2000:]}")
    return len((done.stats or {}).get("changed", {}))


def measure(top: Path, say: Callable[[str], None]) -> dict[str, Any]:
    folder = top / ".lab" / "bench" / "fleet"
    folder.mkdir(parents=True, exist_ok=True)
    labs: list[Lab] = []
    try:
        pairs = []
        for number in range(1, CLUSTERS + 1):
            own = inventory(folder, number)
            lab = Lab.create([own], name=f"fleet-{number}", subnet=f"10.75.{number}.0/24", suite="trixie")
            labs.append(lab)
            pairs.append([own, lab.folder / "inventory.yml"])
        jobs = [(folder / f"job-{number}", pair) for number, pair in enumerate(pairs, 1)]
        for place, pair in jobs:
            job(top, place, pair)
        seconds: dict[int, list[float]] = {}
        for _unused in range(REPEATS):
            for workers in (1, 2, CLUSTERS):
                begun = time.monotonic()
                with ThreadPoolExecutor(workers) as pool:
                    changed = list(pool.map(lambda one: job(top, *one), jobs))
                if any(changed):
                    raise RuntimeError("a run that should change nothing changed something")
                seconds.setdefault(workers, []).append(time.monotonic() - begun)
                say(f"  {CLUSTERS} clusters, {workers} jobs at a time: {seconds[workers][-1]:.2f} s")
        walls = {str(workers): round(median(found), 2) for workers, found in seconds.items()}
        return {"clusters": CLUSTERS, "hosts": HOSTS, "walls": walls, "runs": REPEATS}
    finally:
        for lab in labs:
            lab.destroy()
