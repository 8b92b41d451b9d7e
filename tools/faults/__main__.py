# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tools.faults``: faults on a lab that serves, one after the other, resumable; the table from the results.

A run is kept as soon as it is measured, in ``.lab/results/faults``; what is there already is not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sparklab.system import LabError

from tools import marked
from tools.faults.faults import measure
from tools.faults.site import FaultError, Site
from tools.faults.table import BY_NAME, ROWS, Run, again_limit, lines, misses
from tools.playbooks import TOP

RESULTS = TOP / ".lab" / "results" / "faults"
#: the part of docs/benchmarks.md that holds the table
PART = "fault table"


def say(line: str) -> None:
    print(line, flush=True)


def commit() -> str:
    words = ["git", "describe", "--always", "--dirty"]
    # a copy of the checkout may come without its history
    return subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=False).stdout.strip()


def kept(name: str, folder: Path = RESULTS) -> list[Run]:
    path = folder / f"{name}.json"
    if not path.exists():
        return []
    return [Run.from_dict(item) for item in json.loads(path.read_text(encoding="utf-8"))]


def keep(name: str, runs: Sequence[Run], folder: Path = RESULTS) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps([dataclasses.asdict(run) for run in runs], indent=1) + "\n"
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def clean_start(site: Site, age: float, folder: Path = RESULTS) -> float:
    """Measured now, unless one of this lab was measured within the last ``age`` seconds."""
    path = folder / f"clean-{site.lab.name}.json"
    if path.exists():
        last = json.loads(path.read_text(encoding="utf-8"))
        if time.time() - last["at"] < age:
            return float(last["seconds"])
    load = os.getloadavg()[0]
    seconds = site.clean_start()
    say(f"clean start {seconds:.1f} s (load {load:.1f} before it, {os.getloadavg()[0]:.1f} after)")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seconds": seconds, "at": time.time()}) + "\n", encoding="utf-8")
    return seconds


def complete(
    site: Site, name: str, rounds: int, seed: int | None = None, folder: Path = RESULTS, age: float = 0.0
) -> list[Run]:
    """Runs of one fault, as many as asked for; a clean start is measured first, in the same go."""
    runs = kept(name, folder)
    if len(runs) >= rounds:
        return runs
    clean = clean_start(site, age, folder)
    while len(runs) < rounds:
        chosen = seed if seed is not None else random.SystemRandom().randrange(1_000_000)
        run = measure(site, name, clean, chosen, say)
        run.commit = commit()
        runs.append(run)
        keep(name, runs, folder)
        say(
            f"{name}: noticed {run.noticed}, again {run.again} (limit {again_limit(BY_NAME[name], [run])}), "
            f"clients {run.clients[-1:]}, load {run.load} {run.note} {'; '.join(run.troubles)}"
        )
        for line in run.story:
            say(f"    {line}")
    return runs


def write_table(path: Path, folder: Path = RESULTS) -> None:
    """Put the table into its part of a document."""
    marked.replace(path, PART, "\n".join(lines({row.name: kept(row.name, folder) for row in ROWS})))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"faults (default: all): {', '.join(BY_NAME)}")
    parser.add_argument("--lab", help="name of a lab that serves")
    parser.add_argument("--inventory", default="lab_tiny", help="its inventory, a folder of inventories/")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each fault, kept ones included")
    parser.add_argument("--seed", type=int, help="for the order of power-on (default: drawn and printed)")
    parser.add_argument(
        "--clean-age", type=float, default=0.0, metavar="SECONDS", help="take a clean start measured within these"
    )
    parser.add_argument("--again", action="store_true", help="forget what is kept of these faults")
    parser.add_argument("--table", type=Path, metavar="FILE", help="only write the table between its marks in FILE")
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in BY_NAME]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if options.table:
        write_table(options.table)
        return 0
    if not options.lab:
        parser.error("--lab: which lab?")
    site = Site.open(options.lab, options.inventory)
    bad = 0
    for name in options.names or list(BY_NAME):
        if options.again:
            keep(name, [])
        try:
            runs = complete(site, name, options.rounds, options.seed, age=options.clean_age)
        except (FaultError, LabError) as error:
            say(f"{name}: {error}")
            bad += 1
            continue
        found = misses(BY_NAME[name], runs)
        bad += bool(found)
        say(f"{name}: {'holds' if not found else 'MISSES: ' + '; '.join(found)} (n={len(runs)})")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
