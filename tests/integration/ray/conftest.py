# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real Ray on labs of three and of eight hosts, without vLLM: made by the tests, gone afterwards.

Ray lies below all hosts as one layer, so what is tested is all but the engine's installation, which others show.

SPARKTHOR_RAY_REPEATS   how often each fault is laid (default 3)
SPARKTHOR_RAY_STARTS    how many clean starts must pass without a false death (default 10)
SPARKTHOR_RAY_KEEP      use a lab that is there and leave it there, for work on these tests
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sparklab import Lab, LabError

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
if str(TOP / "lab/engine") not in sys.path:
    sys.path.insert(0, str(TOP / "lab/engine"))
HERE = Path(__file__).resolve().parent
RESULTS = Path(os.environ.get("SPARKTHOR_RESULTS") or TOP / ".lab/results/last")
REPEATS = int(os.environ.get("SPARKTHOR_RAY_REPEATS", "3"))
STARTS = int(os.environ.get("SPARKTHOR_RAY_STARTS", "10"))
KEEP = bool(os.environ.get("SPARKTHOR_RAY_KEEP"))
NAME = os.environ.get("SPARKLAB_NAME", "mol-ray")
#: a lab's name has at most 12 characters
SIZES = {"three": 3, "eight": 8}
SUBNET = os.environ.get("SPARKLAB_SUBNET", "10.79.20.0/24")
UNIT = "sparkthor-ray.service"
#: seconds for what comes by itself; how long things take is for `make bench`, and a machine may be busy with others
PATIENCE = 600.0
#: what the gate says of a GCS that takes connections and has no time for an answer
STALLED = "no answer from the GCS within"
GATE = "/usr/bin/python3 -IB /usr/local/lib/sparkthor/sparkthor_host ray-gate"
#: the engine role's part of what Ray's role builds on
ACCOUNT = """
id -u sparkthor >/dev/null 2>&1 ||
  useradd --system --user-group --home-dir /var/lib/sparkthor --shell /usr/sbin/nologin sparkthor
install -d /var/lib/sparkthor
install -d -o sparkthor -g sparkthor /var/lib/sparkthor/cache
"""


@dataclass
class Run:
    """What one run of the playbook came to; every line with the second it was printed at."""

    rc: int
    seconds: float
    lines: list[tuple[float, str]]

    @property
    def output(self) -> str:
        return "\n".join(line for _moment, line in self.lines)

    @property
    def changed(self) -> dict[str, int]:
        counts = re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", self.output, re.MULTILINE)
        return {host: int(count) for host, count in counts if host != "localhost"}

    def moment(self, pattern: str, last: bool = False) -> float:
        found = [moment for moment, line in self.lines if re.search(pattern, line)]
        assert found, f"no line like {pattern!r} in:\n{self.output}"
        return found[-1 if last else 0]


def answered(answer: dict[str, Any]) -> bool:
    return STALLED not in answer["reason"]


@dataclass
class Site:
    lab: Lab
    inventory: Path
    first: Run | None = None
    extra: list[Path] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        return [host.name for host in self.lab.plan.hosts]

    @property
    def head(self) -> str:
        return self.hosts[0]

    @property
    def workers(self) -> list[str]:
        return self.hosts[1:]

    def management(self, host: str) -> str:
        return next(row["address"] for row in self.lab.status(host))

    def on(self, host: str, command: str, *, check: bool = True, timeout: float = 120) -> str:
        done = subprocess.run(
            self.lab.enter_command(host, ["bash", "-c", command]),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{host}: {command!r} ended with {done.returncode}: {done.stderr}\n{done.stdout}")
        return done.stdout

    def play(self, *arguments: str, playbook: str = "site.yml", timeout: float = 600) -> Run:
        """The first play's host layer is there after the first run, so the others begin at Ray."""
        # molecule forces colours on, and these tests read the text
        plain = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0", "PYTHONUNBUFFERED": "1"}
        begun = time.monotonic()
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("ansible-playbook")),
                str(TOP / "playbooks" / playbook),
                f"--inventory={self.inventory}",
                f"--inventory={self.lab.folder / 'inventory.yml'}",
                *[f"--inventory={path}" for path in self.extra],
                *arguments,
            ],
            env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"), **plain},
            cwd=TOP,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = []
        assert process.stdout
        for line in process.stdout:
            lines.append((time.monotonic() - begun, line.rstrip()))
            if time.monotonic() - begun > timeout:
                process.kill()
        process.wait()
        return Run(process.returncode, time.monotonic() - begun, lines)

    def ray(self, *arguments: str, **more: Any) -> Run:
        # without the role that brings an engine: these hosts have theirs from a layer below
        return self.play("--tags=ray_head,ray_worker", "--skip-tags=engine", *arguments, **more)

    # -- Ray ----------------------------------------------------------------------------------------------------------

    def health(self, host: str = "", source: str = "auto") -> dict[str, Any]:
        """What the gate says, on the head unless told otherwise; in time for a machine that many hosts share."""
        return json.loads(self.on(host or self.head, f"{GATE} --json --timeout=30 --source={source} || :"))

    def node_ids(self) -> dict[str, str]:
        return {entry["name"]: entry["node_id"] for entry in self.wait_for(answered)[1]["alive"]}

    def steady_health(self, host: str, source: str, count: int = 5) -> list[dict[str, Any]]:
        """That many answers, all healthy; asked again is only what a busy machine kept the GCS from answering."""
        ends = time.monotonic() + PATIENCE
        answers: list[dict[str, Any]] = []
        while len(answers) < count:
            answer = self.health(host, source)
            if answered(answer):
                assert answer["healthy"], answer["reason"]
                answers.append(answer)
            assert time.monotonic() < ends, answer["reason"]
        return answers

    def wait_for(
        self, good: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE
    ) -> tuple[float, dict[str, Any]]:
        """Seconds until the head's answer is good; fails after ``seconds``, with what was wrong last."""
        begun = time.monotonic()
        while True:
            answer = self.health()
            passed = time.monotonic() - begun
            if good(answer):
                return passed, answer
            assert passed < seconds, f"after {passed:.0f} s: {answer['reason']}\n{json.dumps(answer['dead'])}"
            time.sleep(0.25)

    def healthy(self, seconds: float = PATIENCE) -> dict[str, Any]:
        return self.wait_for(lambda answer: answer["healthy"], seconds)[1]

    def units(self) -> dict[str, dict[str, str]]:
        command = f"systemctl show {UNIT} -p MainPID,NRestarts,ActiveState,ExecMainStartTimestampMonotonic"
        return {host: dict(line.split("=", 1) for line in self.on(host, command).split()) for host in self.hosts}

    def control(self, host: str) -> str:
        return json.loads(self.on(host, "cat /etc/sparkthor/ray.json"))["node_address"]

    def fabric_nic(self, host: str) -> str:
        line = self.on(host, f"ip -br -4 address show to {self.control(host)}")
        return line.split()[0].partition("@")[0]


class Results:
    """Figures of a run, printed and kept as JSON beside the other results."""

    path = RESULTS / "ray.json"

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def add(self, name: str, seconds: list[float], limit: float) -> float:
        median = statistics.median(seconds)
        self.put(name, {"seconds": [round(s, 1) for s in seconds], "median": round(median, 1), "limit": limit})
        return median

    def put(self, name: str, row: dict[str, Any]) -> None:
        load = [round(value, 1) for value in os.getloadavg()[:1]]
        self.rows[name] = {**row, "load": load[0]}
        print(f"\n{name}: {json.dumps(self.rows[name])}", flush=True)
        RESULTS.mkdir(parents=True, exist_ok=True)
        known = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self.path.write_text(json.dumps({**known, **self.rows}, indent=1) + "\n", encoding="utf-8")


def assert_members(site, answer) -> None:
    """Every host once, on its control address, with its GPU; nobody elsewhere and nobody dead."""
    assert answer["healthy"], answer["reason"]
    assert [entry["name"] for entry in answer["alive"]] == site.hosts
    assert {entry["address"] for entry in answer["alive"]} == {site.control(host) for host in site.hosts}
    assert not answer["strangers"]
    assert (answer["present_gpus"], answer["expected_gpus"]) == (len(site.hosts), len(site.hosts))
    assert [entry["role"] for entry in answer["alive"]] == ["head"] + ["worker"] * len(site.workers)


def start_table(site, answer) -> list[dict[str, object]]:
    """When each host's unit was started and when its raylet joined, by the host's and by the GCS's clock."""
    rows = []
    for entry in answer["alive"]:
        begun = site.on(entry["name"], f'date -u +%s -d "$(systemctl show -P InactiveExitTimestamp {UNIT})"')
        joined = site.on(entry["name"], f"date -u +%s -d {entry['started']}")
        rows.append(
            {
                "host": entry["name"],
                "address": entry["address"],
                "unit": int(begun),
                "member": int(joined),
                "seconds": int(joined) - int(begun),
            }
        )
    first = min(row["unit"] for row in rows)
    return [{**row, "unit": row["unit"] - first, "member": row["member"] - first} for row in rows]


def show(rows: list[dict[str, Any]]) -> None:
    print(f"\n{'host':<9} {'address':<12} {'unit started':>12} {'member':>8} {'seconds':>8}")
    for row in rows:
        print(f"{row['host']:<9} {row['address']:<12} {row['unit']:>12} {row['member']:>8} {row['seconds']:>8}")


@pytest.fixture(scope="session")
def results() -> Results:
    return Results()


def make(count: str, number: int) -> Iterator[Site]:
    import ray_layer

    name, home = f"{NAME}-{SIZES[count]}", TOP / ".lab"
    subnet = ".".join([*SUBNET.split(".")[:2], str(int(SUBNET.split(".")[2]) + number), "0/24"])
    inventory = HERE / "inventories" / count
    if not KEEP:
        try:
            Lab(name, home).destroy()
        except LabError as error:  # it is not there, or creating it says what is wrong
            print(f"{name}: {error}")
    lab = Lab.create([inventory], home=home, name=name, subnet=subnet, layers=[str(ray_layer.make())])
    site = Site(lab, inventory)
    try:
        for host in site.hosts:
            site.on(host, ACCOUNT)
        package = site.play(playbook="../tests/integration/ray/package.yml")
        assert package.rc == 0, package.output
        site.first = site.play("--skip-tags=engine,model_store,vllm_serve", timeout=900)
        assert site.first.rc == 0, site.first.output
        yield site
    finally:
        if not KEEP:
            lab.destroy()


@pytest.fixture(scope="session")
def three() -> Iterator[Site]:
    yield from make("three", 0)


@pytest.fixture(scope="session")
def eight() -> Iterator[Site]:
    yield from make("eight", 1)
