# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tools.faults.controller``: the controller killed at random moments of ``site.yml``.

Each run: hosts to which nothing was done (``host``) or from which engine and serving were taken away (``serving``),
``site.yml`` with SIGKILL for its whole process group at a drawn moment, ``site.yml`` again, which has to finish, and
once more, which has to change nothing.  Results are kept, and what is there already is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sparklab import Lab, LabError

from tools.playbooks import TOP

KEPT = TOP / ".lab" / "results" / "faults" / "controller.json"
HOST_TAGS = "os_hardening,roce_network,nccl_conf,firewall"
SERVING_TAGS = "engine,model_store,ray,vllm_serve"
#: seconds that a controller may take to its first task
FIRST_TASK = 600.0
#: engine and serving as if they had never been there; the host layer stays
CLEAR = (
    "systemctl disable --now sparkthor-watchdog sparkthor-front sparkthor-vllm sparkthor-ray sparkthor.target "
    "sparkthor-drop-caches.path 2>/dev/null; "
    "rm -rf /opt/sparkthor /var/lib/sparkthor/models /var/lib/sparkthor/wheels "
    "/etc/sparkthor/vllm* /etc/sparkthor/front* /etc/sparkthor/ray.* /etc/sparkthor/serving.json "
    "/etc/systemd/system/sparkthor-{vllm,ray,front,watchdog}.service; systemctl daemon-reload"
)


@dataclass
class Kill:
    """One killed run and what came after it."""

    layer: str
    seed: int
    #: seconds after its first task
    moment: float
    #: the task that ran when it was killed
    stage: str = ""
    rc: int | None = None
    again: int | None = None
    seconds: float = 0.0
    changed: dict[str, int] = field(default_factory=dict)
    output: str = ""

    @property
    def holds(self) -> bool:
        return self.rc == 0 and self.again == 0 and bool(self.changed) and not any(self.changed.values())


@dataclass
class Ground:
    lab: Lab
    inventory: Path
    #: ``host``, ``serving``; empty = all roles
    layer: str
    variables: Mapping[str, Any] = field(default_factory=dict)

    def command(self) -> list[str]:
        tags = {"host": [f"--tags={HOST_TAGS}"], "serving": [f"--tags={SERVING_TAGS}"]}.get(self.layer, [])
        return [
            str(Path(sys.executable).with_name("ansible-playbook")),
            str(TOP / "site.yml"),
            f"--inventory={self.inventory}",
            f"--inventory={self.lab.folder / 'inventory.yml'}",
            f"--extra-vars={json.dumps(dict(self.variables))}",
            *tags,
        ]

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "ANSIBLE_CONFIG": str(TOP / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_FORCE_COLOR": "0",
        }

    def play(self, limit: float) -> tuple[int, float, str]:
        begun = time.monotonic()
        done = subprocess.run(
            self.command(),
            cwd=TOP,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit,
            check=False,
        )
        return done.returncode, time.monotonic() - begun, done.stdout

    def killed_play(self, moment: float, enough: threading.Event | None = None) -> str:
        """The whole group of processes goes at once, as when the controller loses its power; earlier if enough is."""
        enough = enough or threading.Event()
        log = TOP / ".lab" / "results" / "faults" / f"killed-{self.lab.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w") as stream:
            play = subprocess.Popen(
                self.command(),
                cwd=TOP,
                env=self.environment(),
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            # a busy controller takes seconds to load; a kill before the first task would prove nothing
            latest = time.monotonic() + FIRST_TASK
            while play.poll() is None and time.monotonic() < latest and "TASK [" not in log.read_text(errors="replace"):
                if enough.wait(0.1):
                    break
            latest = time.monotonic() + moment
            while play.poll() is None and time.monotonic() < latest and not enough.wait(0.1):
                pass
            if play.poll() is None:
                os.killpg(play.pid, signal.SIGKILL)
                play.wait()
        return log.read_text(errors="replace")


def fresh(name: str, inventory: Path, subnet: str, suite: str) -> Lab:
    with contextlib.suppress(LabError):  # it is not there
        Lab(name, TOP / ".lab").destroy()
    return Lab.create([inventory], home=TOP / ".lab", name=name, subnet=subnet, suite=suite)


def changed(output: str) -> dict[str, int]:
    return {host: int(n) for host, n in re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", output, re.MULTILINE)}


def last_task(output: str) -> str:
    found = re.findall(r"^TASK \[(.*?)\]", output, re.MULTILINE)
    return found[-1] if found else "before the first task"


def read(path: Path = KEPT) -> list[Kill]:
    return [Kill(**item) for item in json.loads(path.read_text())] if path.exists() else []


def keep(kills: Sequence[Kill], path: Path = KEPT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(kill) for kill in kills], indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults.controller", description=__doc__)
    parser.add_argument("--layer", choices=("host", "serving"), required=True)
    parser.add_argument("--lab", required=True, help="name; for the host layer it is made anew for each run")
    parser.add_argument("--subnet", default="10.79.62.0/24")
    parser.add_argument("--inventory", default="3spark_ring")
    parser.add_argument("--suite", default="trixie")
    parser.add_argument("--count", type=int, required=True, help="runs of this layer, kept ones included")
    parser.add_argument("--whole", type=float, help="seconds of a whole run (default: measured first)")
    parser.add_argument("--seed", type=int, help="default: drawn and printed")
    parser.add_argument("--kept", type=Path, default=KEPT, help="results (default: %(default)s)")
    options = parser.parse_args(argv)
    inventory = TOP / "inventories" / options.inventory
    limit = 600.0 if options.layer == "host" else 2400.0

    def ground() -> Ground:
        if options.layer == "host":
            return Ground(fresh(options.lab, inventory, options.subnet, options.suite), inventory, options.layer)
        lab = Lab(options.lab, TOP / ".lab")
        for host in lab.plan.hosts:
            lab.exec(host.name, ["bash", "-c", CLEAR], check=False)
        return Ground(lab, inventory, options.layer)

    kills = read(options.kept)
    left = options.count - sum(kill.layer == options.layer for kill in kills)
    if left <= 0:
        print("all of them are kept already")
    whole = options.whole
    if left > 0 and whole is None:
        rc, whole, output = ground().play(limit)
        if rc != 0:
            print(output)
            print("the run without a kill failed")
            return 2
        print(f"a whole run takes {whole:.1f} s", flush=True)
    for _number in range(max(0, left)):
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
        moment = round(random.Random(seed).uniform(0.0, 0.9 * (whole or 1.0)), 2)
        place = ground()
        kill = Kill(options.layer, seed, moment)
        kill.stage = last_task(place.killed_play(moment))
        kill.rc, kill.seconds, output = place.play(limit)
        kill.seconds = round(kill.seconds, 1)
        if kill.rc == 0:
            kill.again, _seconds, output = place.play(limit)
            kill.changed = changed(output)
        if not kill.holds:
            kill.output = output[-4000:]
        kills = [*read(options.kept), kill]
        keep(kills, options.kept)
        print(
            f"{options.layer} seed {seed}: killed after {moment} s in '{kill.stage}'; next run rc {kill.rc} in "
            f"{kill.seconds} s, then changed {kill.changed}: {'holds' if kill.holds else 'MISSES'}",
            flush=True,
        )
    mine = [kill for kill in kills if kill.layer == options.layer]
    bad = [kill for kill in mine if not kill.holds]
    print(f"{options.layer}: {len(mine) - len(bad)} of {len(mine)} hold")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
