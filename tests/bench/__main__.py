# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench``: what runs cost, beside the floor and two other ways to the same end state.

For each number of hosts a lab is made and converged, then every case is run in turns on the same hosts, so that a slow
minute of the machine hits all of them.  Every run is kept in ``.lab/results/bench.json`` as it ends: a bench that was
interrupted goes on with what is missing (``--again`` measures anew).  ``--table`` only writes the table.  A figure over
its bar is measured once more, and both are shown.

The part ``site`` has a serving cluster, ``fleet`` several clusters, ``plan`` no hosts at all.
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

from tools import marked

from . import fleet, stock, table
from . import plan as planning
from . import state as end_state
from .figures import Bar, bars
from .meter import RunError, Sample, measure

TOP = Path(__file__).resolve().parents[2]
PLAYS = Path(__file__).resolve().parent / "plays"
RESULTS = TOP / ".lab" / "results" / "bench.json"
BINARIES = Path(sys.executable).parent
SITE = "site"
SIZES = ("1", "3", "4", "8", "16", "32", SITE)
PARTS = ("plan", *SIZES, "fleet")
#: above this many hosts three runs are enough to see a ratio, and more would take hours on two cores
MANY = 8


def say(line: str) -> None:
    print(line, flush=True)


class Bench:
    """One lab and the cases run on it; ``kept`` is what there is of an earlier, interrupted bench."""

    def __init__(self, size: str, kept: dict[str, Any], keep: Callable[[], None]) -> None:
        self.size = size
        self.site = size == SITE
        self.hosts_count = 3 if self.site else int(size)
        self.repeats = 3 if self.hosts_count > MANY else 5
        self.folder = TOP / ".lab" / "bench" / size
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = f"bench-{size}"
        self.result = kept
        self.result.setdefault("hosts", self.hosts_count)
        self.samples: dict[str, list[dict[str, float]]] = self.result.setdefault("samples", {})
        self.keep = keep
        self.lab: Lab | None = None

    # --- hosts --------------------------------------------------------------------------------------------------------

    def _inventory(self) -> Path:
        if self.site:
            return TOP / "inventories" / "lab_tiny"
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
        """A new context length: seconds until the serving group is told to restart, then wait for serving."""
        record = self.folder / "one_variable.json"
        # another one each time, in an interrupted bench too
        length = 448 + 16 * (len(self.samples.get("one_variable", ())) % 4)
        begun = time.monotonic()
        whole = self.playbook(
            "site.yml",
            "--extra-vars",
            json.dumps({"vllm_serve_max_model_len": length}),
            case="one_variable",
            **_recorded(record),
        )
        found = json.loads(record.read_text(encoding="utf-8"))
        ready = next(task for task in found["tasks"] if task["action"].endswith(".vllm_service"))
        return Sample(**{**whole.__dict__, "wall": round(found["begun"] + ready["start"] - begun, 3)})

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
        self._changed_nothing("count")
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

    def ray_info(self) -> dict[str, float]:
        """Seconds that ``ray_info`` takes of a healthy cluster, by host and source; the fastest of five."""
        head, worker = self.hosts.plan.hosts[0].name, self.hosts.plan.hosts[1].name
        found = {}
        for host, source in ((head, "dashboard"), (head, "engine"), (worker, "auto")):
            answers = [self._ask_ray(host, source) for _unused in range(6)]
            # the first one compiles Ray's Python on this host
            found[f"{'head' if host == head else 'worker'} {source}"] = min(answers[1:])
        return found

    def _ask_ray(self, host: str, source: str) -> float:
        tree = self.folder / "ray_info"
        argv = [str(BINARIES / "ansible"), host, "-i", str(self._inventory())]
        argv += ["-i", str(self.hosts.folder / "inventory.yml"), "--become", "--tree", str(tree)]
        argv += ["-m", "sparkthor.cluster.ray_info", "-a", f"source={source} timeout=30"]
        done = subprocess.run(
            argv, cwd=TOP, env={**os.environ, **self._environment()}, capture_output=True, text=True, check=False
        )
        answer = json.loads((tree / host).read_text(encoding="utf-8")) if done.returncode == 0 else {}
        if not answer.get("healthy"):
            raise RunError(f"ray_info on {host}: {answer.get('reason') or done.stdout[-1000:]}")
        return float(answer["seconds"])

    def _bytes(self) -> int:
        total = 0
        for host in self.hosts.plan.hosts:
            lines = self.hosts.exec(host.name, ["cat", "/proc/net/dev"]).stdout.splitlines()
            rows = {line.split(":")[0].strip(): line.split(":")[1].split() for line in lines if ":" in line}
            fields = rows[host.management]
            total += int(fields[0]) + int(fields[8])
        return total

    # --- all ----------------------------------------------------------------------------------------------------------

    def lacks(self, name: str) -> bool:
        return len(self.samples.get(name, ())) < self.repeats

    def turn(self, name: str, run: Callable[[], Sample]) -> None:
        sample = run()
        self.samples.setdefault(name, []).append(sample.__dict__)
        self.keep()
        say(f"  {name:14} {sample.wall:7.2f} s   controller {sample.controller_cpu:6.2f}   load {sample.load:.1f}")

    def first(self) -> None:
        """First converge, each time on hosts that were never spoken to; the last one stays."""
        wanted = 1 if self.site else self.repeats
        record = self.folder / "first.json"
        while len(self.samples.get("first", ())) < wanted:
            self.destroy()
            self.boot()
            self.turn("first", lambda: self.playbook(self.converge, case="first", **_recorded(record)))
            if self.site:
                self.result["share"] = own_share(json.loads(record.read_text(encoding="utf-8")))
        if self.lab is None:
            self.boot()
            self.playbook(self.converge, case="warm")

    @property
    def cases(self) -> dict[str, Callable[[], Sample]]:
        found = {
            "floor": self.floor,
            "noop": self.noop,
            "network": self.network,
            "check": self.check,
            "shell": self.shell,
            "naive": self.naive,
        }
        return {**found, "status": self.status} if self.site else found

    def measure_cases(self) -> None:
        for _unused in range(self.repeats):
            for name, case in self.cases.items():
                if self.lacks(name):
                    self.turn(name, case)
        while self.site and self.lacks("one_variable"):
            self.turn("one_variable", self.one_variable)

    def over(self, results: dict[str, Any]) -> list[Bar]:
        return [row for row in bars(results) if row.size == self.size and row.figure > row.limit]

    def run(self, results: dict[str, Any]) -> None:
        self.first()
        self.prepare_other_ways()
        self.naive_once("warm")
        self.playbook(self.converge, case="warm")
        self.measure_cases()
        if "counts" not in self.result:
            # the last case leaves another context length
            self.playbook(self.converge, case="warm")
            self.result["counts"] = self.count()
            self.keep()
        if self.site and "ray_info" not in self.result:
            self.result["ray_info"] = self.ray_info()
            self.keep()
        again = sorted({case for row in self.over(results) for case in row.cases})
        if again and "earlier" not in self.result:
            say(f"  over a bar, so once more: {', '.join(again)}")
            self.result["earlier"] = {case: self.samples.pop(case) for case in again}
            self.keep()
            self.measure_cases()


def own_share(record: dict[str, Any]) -> float:
    """Seconds of a first deploy without the engine's installation, the models' way and vLLM's own start."""
    tasks = record["tasks"]
    ends = [task["start"] for task in tasks[1:]] + [record["seconds"]]
    theirs = ("engine", "model", "vllm_service", "package")
    others = sum(
        end - task["start"]
        for task, end in zip(tasks, ends, strict=True)
        if task["action"].rpartition(".")[2].startswith(theirs)
    )
    return round(record["seconds"] - others, 1)


#: actions that run on the controller alone; everything else is a module on a host
_ON_CONTROLLER = frozenset(
    f"ansible.builtin.{name}"
    for name in ("set_fact", "assert", "fail", "debug", "include_tasks", "import_role", "include_role", "meta")
) | frozenset(("sparkthor.cluster.cluster_plan",))


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


def machine() -> str:
    with open("/proc/cpuinfo", encoding="utf-8") as handle:
        models = [line.partition(":")[2].strip() for line in handle if line.startswith("model name")]
    return f"{len(models)} × {models[0] if models else platform.machine()}"


def measure_part(part: str, results: dict[str, Any], keep: Callable[[], None]) -> None:
    kept = results.setdefault(part, {})
    if part == "plan":
        kept.update(planning.measure(TOP, BINARIES, say))
    elif part == "fleet":
        kept.update(fleet.measure(TOP, say))
    else:
        bench = Bench(part, kept, keep)
        if bench.site:
            subprocess.run([sys.executable, "lab/engine/prepare.py"], cwd=TOP, check=True, stdout=subprocess.DEVNULL)
        try:
            bench.run(results)
        finally:
            bench.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--again", action="store_true", help="measure parts that were measured before, too")
    parser.add_argument("--table", action="store_true", help="only write the table from what is there")
    arguments = parser.parse_args()
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}

    def keep() -> None:
        RESULTS.with_suffix(".new").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".new").replace(RESULTS)

    for part in [] if arguments.table else arguments.parts.split(","):
        if part not in PARTS:
            parser.error(f"--parts: {part!r} is not one of {', '.join(PARTS)}")
        if arguments.again:
            results.pop(part, None)
        if results.get(part, {}).get("date"):
            say(f"{part}: measured before")
            continue
        say(f"{part}:")
        begun = time.monotonic()
        measure_part(part, results, keep)
        results[part].update(seconds=round(time.monotonic() - begun), date=time.strftime("%Y-%m-%d"), machine=machine())
        keep()
        say(f"{part}: {results[part]['seconds']} s")
    whole = {part: result for part, result in results.items() if result.get("date")}
    path = TOP / "docs" / "benchmarks.md"
    marked.replace(path, "bench", table.render(whole))
    say(table.render(whole))
    failing = [row.name for row in bars(whole) if row.figure > row.limit]
    for name in failing:
        say(f"over its limit: {name}")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
