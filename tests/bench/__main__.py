# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench``: what runs cost, beside the floor and two other ways to the same end state.

For each number of hosts a lab is made and converged, then every case is run in turns on the same hosts, so that a slow
minute of the machine hits all of them.  Results are kept by size in ``.lab/results/bench.json``: a bench that was
interrupted goes on with the sizes that are missing (``--again`` measures anew).  ``--table`` only writes the table.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from sparklab import Lab, LabError

from . import state as end_state
from . import stock, table
from .meter import RunError, Sample, measure, medians

TOP = Path(__file__).resolve().parents[2]
PLAYS = Path(__file__).resolve().parent / "plays"
RESULTS = TOP / ".lab" / "results" / "bench.json"
BINARIES = Path(sys.executable).parent
SITE = "site"
SIZES = ("1", "3", "4", "8", "16", "32", SITE)
#: above this many hosts three runs are enough to see a ratio, and more would take hours on two cores
MANY = 8


def say(line: str) -> None:
    print(line, flush=True)


class Bench:
    """One lab and the cases run on it."""

    def __init__(self, size: str) -> None:
        self.size = size
        self.site = size == SITE
        self.hosts_count = 3 if self.site else int(size)
        self.repeats = 3 if self.hosts_count > MANY else 5
        self.folder = TOP / ".lab" / "bench" / size
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = f"bench-{size}"
        self.samples: dict[str, list[Sample]] = {}
        self.lab: Lab | None = None

    # --- hosts --------------------------------------------------------------------------------------------------------

    def _inventory(self) -> Path:
        if self.site:
            return TOP / "inventories" / "lab"
        names = [f"spark-{number:02d}" for number in range(1, self.hosts_count + 1)]
        data = {
            "cluster": {
                "children": {
                    "ray_head": {"hosts": {names[0]: {}}},
                    "ray_workers": {"hosts": {name: {} for name in names[1:]}},
                },
                "vars": {
                    "fabric_topology": "switch" if self.hosts_count > 1 else "lan",
                    "fabric_cidr": "10.100.0.0/16",
                    "ansible_user": "nvidia",
                },
            },
            "sparks": {"children": {"cluster": {}}},
        }
        path = self.folder / "hosts.yml"
        path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        return path

    def boot(self) -> None:
        self.lab = Lab.create(
            [self._inventory()],
            name=self.name,
            subnet=f"10.76.{SIZES.index(self.size)}.0/24",
            suite="bookworm" if self.site else "trixie",
        )

    def destroy(self) -> None:
        if self.lab is not None:
            self.lab.destroy()
            self.lab = None

    @property
    def hosts(self) -> Lab:
        if self.lab is None:
            raise LabError("the lab of this bench is not up")
        return self.lab

    # --- ways ---------------------------------------------------------------------------------------------------------

    def _environment(self, **more: str) -> dict[str, str]:
        return {
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_FORKS": "32",
            "ANSIBLE_NOCOLOR": "1",
            "PATH": f"{BINARIES}:{os.environ['PATH']}",
            **more,
        }

    def playbook(self, path: str | Path, *arguments: str, case: str, **environment: str) -> Sample:
        argv = [str(BINARIES / "ansible-playbook"), str(TOP / path), "-i", str(self._inventory())]
        argv += ["-i", str(self.hosts.folder / "inventory.yml"), *arguments]
        log = self.folder / f"{case}.log"
        return measure(argv, self.hosts, environment=self._environment(**environment), cwd=TOP, log=log)

    @property
    def converge(self) -> str:
        return "site.yml" if self.site else "playbooks/host_layer.yml"

    def _changed_nothing(self, case: str) -> None:
        recap = (self.folder / f"{case}.log").read_text(encoding="utf-8").rpartition("PLAY RECAP")[2]
        changed = [line.split()[0] for line in recap.splitlines() if "changed=" in line and "changed=0 " not in line]
        if changed:
            raise RunError(f"{case}: a run that should change nothing changed {', '.join(changed)}")

    def noop(self) -> Sample:
        sample = self.playbook(self.converge, case="noop")
        self._changed_nothing("noop")
        return sample

    def network(self) -> Sample:
        return self.playbook(self.converge, "--tags", "network", case="network")

    def check(self) -> Sample:
        return self.playbook(self.converge, "--check", "--diff", case="check")

    def status(self) -> Sample:
        return self.playbook("playbooks/status.yml", case="status")

    def floor(self) -> Sample:
        return self.playbook(PLAYS / "floor.yml", case="floor")

    def naive(self) -> Sample:
        sample = self.naive_once("naive")
        self._changed_nothing("naive")
        return sample

    def naive_once(self, case: str) -> Sample:
        return self.playbook(
            PLAYS / "naive.yml",
            "--extra-vars",
            f"@{self.folder / 'state.json'}",
            case=case,
            ANSIBLE_COLLECTIONS_PATH=f"{TOP / '.collections'}:{stock.folder()}",
        )

    def shell(self) -> Sample:
        """The guides' lines: one ssh for each host, all at once, each with a connection of its own."""
        script = self.folder / "shell.py"
        script.write_text(_SHELL, encoding="utf-8")
        return measure([sys.executable, str(script), str(self.folder / "shell.json")], self.hosts)

    def one_variable(self) -> Sample:
        """A new context length: seconds until the serving group was told to restart, then wait for serving."""
        record = self.folder / "one_variable.json"
        length = 448 if len(self.samples.get("one_variable", ())) % 2 == 0 else 480
        whole = self.playbook(
            "site.yml",
            "--extra-vars",
            json.dumps({"vllm_serve_max_model_len": length}),
            case="one_variable",
            **_recorded(record),
        )
        tasks = json.loads(record.read_text(encoding="utf-8"))["tasks"]
        ready = next(task for task in tasks if task["action"].endswith(".vllm_ready"))
        return Sample(**{**whole.__dict__, "wall": round(ready["start"], 3)})

    # --- counted once -------------------------------------------------------------------------------------------------

    def prepare_other_ways(self) -> None:
        found = end_state.read(self.hosts)
        (self.folder / "state.json").write_text(json.dumps({"bench_state": found}), encoding="utf-8")
        lines = {
            host: {
                "argv": [*_alone(self.hosts.ssh_command(host)), "sudo", "bash", "-s"],
                "script": end_state.shell_lines(found[host]),
            }
            for host in found
        }
        (self.folder / "shell.json").write_text(json.dumps(lines), encoding="utf-8")
        stock.install(say)

    def count(self) -> dict[str, float]:
        """Module tasks and ssh round trips per host, and bytes over the management network per host, of a no-op run."""
        record, calls = self.folder / "count.json", self.folder / "ssh-calls"
        wrapper = self.folder / "ssh-counted"
        wrapper.write_text(f'#!/bin/sh\necho >>"{calls}"\nexec ssh "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        calls.unlink(missing_ok=True)
        before = self._bytes()
        self.playbook(self.converge, case="count", ANSIBLE_SSH_EXECUTABLE=str(wrapper), **_recorded(record))
        moved = self._bytes() - before
        tasks = json.loads(record.read_text(encoding="utf-8"))["tasks"]
        by_host: dict[str, int] = {}
        for task in tasks:
            if task["action"] in _ON_CONTROLLER:
                continue
            for host, (outcome, _when) in task["hosts"].items():
                by_host[host] = by_host.get(host, 0) + (outcome != "skipped")
        trips = len(calls.read_text(encoding="ascii")) if calls.exists() else 0
        return {
            "module_tasks": max(by_host.values()),
            "round_trips": round(trips / self.hosts_count, 1),
            "kilobytes": round(moved / self.hosts_count / 1000, 1),
        }

    def _bytes(self) -> int:
        total = 0
        for host in self.hosts.plan.hosts:
            lines = self.hosts.exec(host.name, ["cat", "/proc/net/dev"]).stdout.splitlines()
            rows = {line.split(":")[0].strip(): line.split(":")[1].split() for line in lines if ":" in line}
            fields = rows[host.management]
            total += int(fields[0]) + int(fields[8])
        return total

    # --- all ----------------------------------------------------------------------------------------------------------

    def turn(self, name: str, run: Callable[[], Sample]) -> None:
        sample = run()
        self.samples.setdefault(name, []).append(sample)
        say(f"  {name:14} {sample.wall:7.2f} s   controller {sample.controller_cpu:6.2f}   load {sample.load:.1f}")

    def first(self) -> None:
        """First converge, each time on hosts that were never spoken to; the last one stays."""
        for left in reversed(range(1 if self.site else self.repeats)):
            self.boot()
            self.turn("first", lambda: self.playbook(self.converge, case="first"))
            if left:
                self.destroy()

    def run(self) -> dict[str, Any]:
        self.first()
        self.prepare_other_ways()
        self.naive_once("warm")
        self.playbook(self.converge, case="warm")
        cases: dict[str, Callable[[], Sample]] = {
            "floor": self.floor,
            "noop": self.noop,
            "network": self.network,
            "check": self.check,
            "shell": self.shell,
            "naive": self.naive,
        }
        if self.site and (TOP / "playbooks" / "status.yml").exists():
            cases["status"] = self.status
        for _unused in range(self.repeats):
            for name, case in cases.items():
                self.turn(name, case)
        counts = self.count()
        if self.site:
            for _unused in range(self.repeats):
                self.turn("one_variable", self.one_variable)
        return {
            "hosts": self.hosts_count,
            "cases": {name: medians(samples) for name, samples in self.samples.items()},
            "counts": counts,
        }


#: actions that run on the controller alone; everything else is a module on a host
_ON_CONTROLLER = frozenset(
    f"ansible.builtin.{name}"
    for name in ("set_fact", "assert", "fail", "debug", "include_tasks", "import_role", "include_role", "meta")
) | frozenset(
    f"sparkthor.cluster.{name}" for name in ("cluster_plan", "fabric_check", "engine_parity", "engine_wheels")
)


def _recorded(path: Path) -> dict[str, str]:
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).resolve().parent / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "bench_record",
        "SPARKTHOR_BENCH_RECORD": str(path),
    }


def _alone(argv: list[str]) -> list[str]:
    """Without a connection that another way has opened and left."""
    return [argv[0], "-o", "ControlMaster=no", "-o", "ControlPath=none", *argv[1:]]


_SHELL = """\
import json, subprocess, sys
hosts = json.load(open(sys.argv[1], encoding="utf-8"))
running = []
for host in hosts.values():
    one = subprocess.Popen(host["argv"], stdin=subprocess.PIPE, text=True)
    one.stdin.write(host["script"])
    one.stdin.close()
    running.append(one)
sys.exit(max(one.wait() for one in running))
"""


def bars(results: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Each figure that was measured with its limit: (name, figure, limit), lower is better."""
    rows: list[tuple[str, float, float]] = []
    site = results.get(SITE)
    if site:
        cases = site["cases"]
        floor = cases["floor"]["wall"]
        rows.append(("no-op site.yml, 3 hosts: times the floor", cases["noop"]["wall"] / floor, 8.0))
        rows.append(("no-op site.yml ÷ naive stock tasks", cases["noop"]["wall"] / cases["naive"]["wall"], 1.0))
        rows.append(("network alone, no-op, 3 hosts: times the floor", cases["network"]["wall"] / floor, 2.5))
        rows.append(("module tasks per host, no-op", site["counts"]["module_tasks"], 16))
        rows.append(("controller CPU s per host, no-op", cases["noop"]["controller_cpu"] / site["hosts"], 1.5))
        if "status" in cases:
            rows.append(("status, 3 hosts: times the floor", cases["status"]["wall"] / floor, 2.0))
        rows.append(("one variable, up to the restart: times the floor", cases["one_variable"]["wall"] / floor, 6.0))
    if "4" in results and "32" in results:
        per_host = [results[size]["cases"]["noop"]["controller_cpu"] / int(size) for size in ("4", "32")]
        rows.append(("controller CPU per host, 32 hosts ÷ 4 hosts", per_host[1] / per_host[0], 1.1))
    return rows


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as handle:
        models = [line.partition(":")[2].strip() for line in handle if line.startswith("model name")]
    return f"{len(models)} × {models[0] if models else platform.machine()}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"of {', '.join(SIZES)} (site: 3 hosts and serving)")
    parser.add_argument("--again", action="store_true", help="measure sizes that were measured before, too")
    parser.add_argument("--table", action="store_true", help="only write the table from what is there")
    arguments = parser.parse_args()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for size in [] if arguments.table else arguments.sizes.split(","):
        if size not in SIZES:
            parser.error(f"--sizes: {size!r} is none of {', '.join(SIZES)}")
        if size in results and not arguments.again:
            say(f"{size}: measured before")
            continue
        say(f"{size}:")
        begun = time.monotonic()
        bench = Bench(size)
        if bench.site:
            subprocess.run([sys.executable, "lab/engine/prepare.py"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
        try:
            results[size] = bench.run()
        finally:
            bench.destroy()
        results[size]["seconds"] = round(time.monotonic() - begun)
        results[size]["date"] = time.strftime("%Y-%m-%d")
        results[size]["machine"] = machine()
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    path = TOP / "docs" / "benchmarks.md"
    path.write_text(table.render(results, bars(results)), encoding="utf-8")
    say(path.read_text(encoding="utf-8"))
    failing = [name for name, figure, limit in bars(results) if figure > limit]
    for name in failing:
        say(f"over its limit: {name}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
