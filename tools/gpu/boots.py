# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power-on of all hosts to the first answer, in variants that take turns on the same deployed cluster.

    python -m tools.gpu.boots --lab lab --inventory lab --variants before,beside --rounds 2

measures a lab that serves, such as that of ``make up``; the journals stay in .lab/results/boots.
A variant is laid on the head's files before the power goes, so none of them costs a run of ``site.yml``. "beside" is
what the product does; "early" only shows what a start could save whose imports do not wait for the gate.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.faults.site import VLLM, FaultError, Site, wait
from tools.gpu import start
from tools.playbooks import TOP

#: seconds for one power-on
PATIENCE = 300.0
FORK = {"VLLM_WORKER_MULTIPROC_METHOD": "fork"}


@dataclass(frozen=True)
class Variant:
    title: str
    #: when all hosts are told to drop their page cache, and vLLM is imported
    way: str
    #: more of engine.env on the head
    environment: Mapping[str, str] | None = None


VARIANTS: Mapping[str, Variant] = {
    "before": Variant("page cache dropped before vLLM's start", "before"),
    "beside": Variant("beside its imports", "beside"),
    "fork": Variant("beside its imports, engine core forked", "beside", FORK),
    "early": Variant("imports beside the gate, engine core forked", "early", FORK),
}
_EARLY = """\
import os
import subprocess
import sys

if __name__ == "__main__":
    host = ["-B", "/usr/local/lib/sparkthor/sparkthor_host"]
    gate = subprocess.Popen(["/usr/bin/python3", "-I", *host, "ray-gate", "--wait", "86400"])
    import ray
    import vllm.entrypoints.openai.api_server
    import vllm.v1.engine.core
    import vllm.v1.executor.ray_executor_v2
    from vllm.entrypoints.cli.main import main

    if gate.wait():
        sys.exit(1)
    subprocess.Popen([sys.executable, *host, "nodes-prepare", os.environ["RAY_ADDRESS"]])
    sys.argv = ["/opt/sparkthor/venv/bin/vllm", *sys.argv[1:]]
    sys.exit(main())
"""
#: $1 the way, $2 lines of engine.env, $3 the program of an early start; the deployed unit is kept beside
_LAY = r"""
unit=/etc/systemd/system/sparkthor-vllm.service
[ -e /var/tmp/vllm.unit ] || cp $unit /var/tmp/vllm.unit
was='^ExecStart=(.* -- )/bin/sh -c "\((.*) &\); exec (.*)"$'
with=$(sed -n -E "s|$was|\1|p" /var/tmp/vllm.unit)
x=$(sed -n -E "s|$was|\2|p" /var/tmp/vllm.unit)
y=$(sed -n -E "s|$was|\3|p" /var/tmp/vllm.unit)
[ -n "$x" ] || exit 1
printf %s "$3" >/usr/local/lib/sparkthor/early.py
awk -v with="$with" -v x="$x" -v y="$y" -v way="$1" '
  / ray-gate / && way == "early" { next }
  /^ExecStart=/ {
    if (way == "before") { print "ExecStartPre=-" with x; print "ExecStart=" with y }
    if (way == "beside") print
    if (way == "early") {
      sub(/^[^ ]*/, "/opt/sparkthor/venv/bin/python /usr/local/lib/sparkthor/early.py", y)
      print "ExecStart=" with y
    }
    next
  }
  { print }' /var/tmp/vllm.unit >$unit.new
mv $unit.new $unit
touch /etc/sparkthor/engine.env
sed -i "/^VLLM_WORKER_MULTIPROC_METHOD=/d" /etc/sparkthor/engine.env
[ -z "$2" ] || printf '%s\n' "$2" >>/etc/sparkthor/engine.env
"""


def journal(site: Site) -> str:
    return site.on(site.head, f"journalctl -b -u {VLLM} -u sparkthor-ray -o short-unix --no-pager", check=False)


def lay(site: Site, variant: Variant) -> None:
    lines = "\n".join(f"{name}={value}" for name, value in (variant.environment or {}).items())
    site.on(site.head, f"set -e\n{_LAY}", variant.way, lines, _EARLY)


def power_on(site: Site, log: Path | None = None) -> dict[str, Any]:
    """All hosts without power, then power: the seconds to what a person waits for."""
    endpoint = site.endpoint
    site.lab.off(*site.hosts)
    begun, on = time.monotonic(), time.time()
    site.lab.boot()
    site.lab.wait()
    times: dict[str, Any] = {"ssh": round(time.monotonic() - begun, 1)}
    wait(lambda: endpoint.complete(1, stream=False, timeout=30) == "", PATIENCE, "a completion after power-on", 0.2)
    times["answer"] = round(time.monotonic() - begun, 1)
    text = journal(site)
    if log is not None:
        log.write_text(text, encoding="utf-8")
    return {**times, "start": start.steps(text, on)}


def measure(
    site: Site,
    names: Sequence[str],
    rounds: int,
    runs: list[dict[str, Any]],
    keep: Callable[[list[dict[str, Any]]], None],
    folder: Path,
) -> None:
    """More of ``runs``; every second round in the other order. What is there is not measured again."""
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            if any((run["variant"], run["round"]) == (name, number) for run in runs):
                continue
            lay(site, VARIANTS[name])
            try:
                found = power_on(site, folder / f"boot-{name}-{number}.journal")
            except FaultError as error:
                (folder / f"boot-{name}-{number}.failed").write_text(f"{error}\n{journal(site)}", encoding="utf-8")
                continue
            runs.append({"variant": name, "round": number, **found})
            keep(runs)


def rows(runs: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The medians of each step by variant, with each run's whole; head and rows."""
    names = [name for name in VARIANTS if any(run["variant"] == name for run in runs)]
    of = {name: [run for run in runs if run["variant"] == name] for name in names}
    times: list[tuple[Any, ...]] = []
    for step in (start.BOOT, *(step for step, _words in start.STEPS)):
        cells = []
        for name in names:
            seconds = [dict(run["start"])[step] for run in of[name] if step in dict(run["start"])]
            cells.append(f"{statistics.median(seconds):.1f}" if seconds else "–")
        if any(cell != "–" for cell in cells):
            times.append((step, *cells))
    times.append(("first answer", *(", ".join(f"{run['answer']:g}" for run in of[name]) for name in names)))
    return ["step", *(f"{VARIANTS[name].title}, s" for name in names)], times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", default="lab")
    parser.add_argument("--inventory", default="lab_tiny", help="folder below inventories/ (default: %(default)s)")
    parser.add_argument("--variants", default="before,beside", help=", ".join(VARIANTS))
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    names = arguments.variants.split(",")
    if unknown := set(names) - set(VARIANTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    folder = TOP / ".lab" / "results" / "boots"
    folder.mkdir(parents=True, exist_ok=True)
    runs: list[dict[str, Any]] = []
    kept = folder / "runs.json"
    measure(
        Site.open(arguments.lab, arguments.inventory),
        names,
        arguments.rounds,
        runs,
        lambda found: print(kept.write_text(json.dumps(found, indent=1)), "bytes in", kept, flush=True),
        folder,
    )
    head, cells = rows(runs)
    for row in (head, ["---"] * len(head), *cells):
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
