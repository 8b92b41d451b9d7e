# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Planning and rendering inventories without hosts behind them: it takes the controller alone."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory as _inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric, fabric_inventory

SIZES = (4, 64, 256)


def names(count: int) -> list[str]:
    return [f"spark-{number:03d}" for number in range(1, count + 1)]


def seconds(count: int) -> float:
    """Median of five: the inventory's checks and the fabric plan of so many hosts."""
    hosts = names(count)
    groups = {"cluster": hosts, "ray_head": hosts[:1], "ray_workers": hosts[1:], "sparks": hosts, "all": hosts}
    wide = {"fabric_topology": "switch", "fabric_cidr": "10.100.0.0/16"}
    addresses = {host: f"192.168.{number // 250}.{number % 250 + 1}" for number, host in enumerate(hosts)}
    hostvars: dict[str, Any] = {host: {**wide, "ansible_host": addresses[host]} for host in hosts}
    found = []
    for _unused in range(5):
        begun = time.perf_counter()
        problems = _inventory.inventory_problems(groups, hostvars)
        problems += fabric_inventory.fabric_problems(
            "switch", hosts, cidr=wide["fabric_cidr"], groups=groups, management=addresses
        )
        plan = fabric.fabric_plan(hosts, "switch", wide["fabric_cidr"], management=addresses)
        found.append(time.perf_counter() - begun)
        if problems or len(plan) != count:
            raise RuntimeError(f"the plan of {count} hosts: {problems}")
    return round(median(found), 3)


def render(top: Path, binaries: Path, folder: Path, count: int) -> dict[str, float]:
    """``playbooks/render.yml``: every file of so many hosts, checked, planned and written."""
    folder.mkdir(parents=True, exist_ok=True)
    hosts = names(count)
    data = {
        "cluster": {
            "children": {
                "ray_head": {"hosts": {hosts[0]: {}}},
                "ray_workers": {"hosts": {host: {} for host in hosts[1:]}},
            },
            "vars": {
                "fabric_topology": "switch",
                "fabric_cidr": "10.100.0.0/16",
                # a model that nobody has to look at
                "vllm_serve_model": "/models/m",
                "vllm_serve_tensor_parallel_size": 1,
                "vllm_serve_pipeline_parallel_size": count,
            },
        },
        "sparks": {"children": {"cluster": {}}},
    }
    inventory = folder / f"{count}.yml"
    inventory.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    argv = [str(binaries / "ansible-playbook"), "playbooks/render.yml", "-i", str(inventory)]
    argv += ["-e", f"render_dir={folder / f'rendered-{count}'}", "--forks", str(count)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    environment = {**os.environ, "ANSIBLE_CONFIG": str(top / "ansible.cfg")}
    done = subprocess.run(argv, cwd=top, env=environment, capture_output=True, text=True, check=False)
    wall = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"render.yml for {count} hosts:\n{done.stdout[-2000:]}{done.stderr[-1000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": round(wall, 2), "cpu": round(cpu, 2)}


def doctor(top: Path, binaries: Path, folder: Path) -> float:
    """``playbooks/doctor.yml`` on one long log of a healthy cluster: seconds of judging, without Ansible's start."""
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = (top / "tests" / "fixtures" / "doctor" / "healthy.log").read_text(encoding="utf-8")
    start, again = log.split("=== from here on again and again ===\n")
    (logs / "vllm.log").write_text(start + again * (100_000 // again.count("\n") + 1), encoding="utf-8")
    inventory, answer = folder / "nobody.yml", folder / "doctor.json"
    inventory.write_text("all: {hosts: {}}\n", encoding="utf-8")
    argv = [str(binaries / "ansible-playbook"), "playbooks/doctor.yml", "-i", str(inventory)]
    argv += ["-e", f"doctor_logs={logs}", "-e", f"doctor_json={answer}"]
    environment = {**os.environ, "ANSIBLE_CONFIG": str(top / "ansible.cfg")}
    done = subprocess.run(argv, cwd=top, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"doctor.yml:\n{done.stdout[-2000:]}{done.stderr[-1000:]}")
    return float(json.loads(answer.read_text(encoding="utf-8"))["summary"]["seconds"])


def measure(top: Path, binaries: Path, say: Callable[[str], None]) -> dict[str, Any]:
    result: dict[str, Any] = {"rendered": {}}
    for count in SIZES:
        result[f"seconds_{count}"] = seconds(count)
        result["rendered"][str(count)] = render(top, binaries, top / ".lab" / "bench" / "plan", count)
        say(f"  {count} hosts: planned in {result[f'seconds_{count}']} s, rendered in {result['rendered'][str(count)]}")
    result["doctor"] = doctor(top, binaries, top / ".lab" / "bench" / "plan")
    say(f"  doctor: a log of 100,000 lines judged in {result['doctor']} s")
    return result
