# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make test-full``: every scenario and chaos on each of its clusters, one after the other, resumable.

The last green commit of each and its seconds are kept in docs/developers-scenarios.md. What was green and whose code
has not changed since is not run again; ``--again`` runs it all the same, names run only those. The last lines name what
is older than the code it covers; ``--older`` prints these alone. Logs and results stay in ``.lab/results/<commit>``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import yaml

TOP = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 3600
#: the fault table is 27 runs of minutes each; what one call measured is kept and not measured again by the next
LIMITS = {"faults": 4 * 3600}
#: seconds until what takes too long is ended by force
PATIENCE = 30.0
PAGE = "docs/developers-scenarios.md"
#: what every scenario runs
COMMON = (
    *("plugins", "roles", "playbooks", "recipes", "requirements", "site.yml", "lab", "inventories"),
    *("molecule/shared", ".config/molecule", "tools/test.sh", "tools/playbooks.py", "tests/integration/*.py"),
)
#: and what some run besides
MORE = {
    "border": ("tests/integration/border", "tests/unit/hub_stand_in.py", "tools/release.py"),
    "border_serve": ("tests/integration/border", "tests/integration/border_lab", "tools/release.py"),
    "engines": (
        "tests/integration/groups",
        "tests/integration/lifecycle",
        "tests/integration/serve",
        "tests/fixtures/gguf",
    ),
    "engines_trt": ("tests/integration/groups", "tests/integration/engines"),
    "faults": ("tools/faults",),
    "examples": ("examples",),
    "lifecycle_cables": ("tests/integration/lifecycle",),
    "lifecycle_hosts": ("tests/integration/lifecycle",),
    "readme": ("Makefile", "tools", "README.md"),
    "rings": ("tests/integration/host_layer",),
    "rings_serve": ("tests/integration/serve",),
    "serve_container": ("tests/integration/serve",),
    "sglang": ("tests/integration/groups",),
}
#: rounds of chaos begin for so many minutes, on each of three clusters
CHAOS_MINUTES = 10
CHAOS = ("ray", "mp", "direct")


class Green(NamedTuple):
    """When a scenario passed last."""

    commit: str
    seconds: int


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=True).stdout.strip()


def commit() -> str:
    """The commit that is tested, with a word for changes that are in none; the page of results does not count."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{PAGE}")
    return git("rev-parse", "--short=8", "HEAD") + ("-dirty" if changed else "")


def covers(name: str) -> list[str]:
    """Paths, as git takes them, whose change makes a scenario's last result an old one; words for people do not."""
    if name.startswith("chaos_"):
        return [*COMMON, "tools/chaos", ":!*.md"]
    given = yaml.safe_load((TOP / "molecule" / name / "molecule.yml").read_text(encoding="utf-8"))
    tests = ((given.get("ansible") or {}).get("env") or {}).get("SPARKLAB_TESTS", name)
    # tests of a folder share what stands beside them
    folder = tests.partition("/")[0]
    return [*COMMON, f"molecule/{name}", f"tests/integration/{folder}", *MORE.get(name, ()), ":!*.md"]


def read_page() -> dict[str, Green]:
    """The rows of the page; a scenario that was never green has none here."""
    rows = re.findall(r"^\| (\w+) \| `([0-9a-f]{8})` \| (\d+) \|$", (TOP / PAGE).read_text(encoding="utf-8"), re.M)
    return {name: Green(found, int(seconds)) for name, found, seconds in rows}


def write_page(greens: dict[str, Green]) -> None:
    """One row for each scenario that there is; the words above the table stay."""
    text = (TOP / PAGE).read_text(encoding="utf-8")
    head = text[: text.index("|---|")].rstrip("\n")
    told = {name: f"`{green.commit}` | {green.seconds}" for name, green in greens.items()}
    rows = [f"| {name} | {told.get(name, 'never |')} |" for name in commands()]
    (TOP / PAGE).write_text("\n".join([head, "|---|---|---|", *rows, ""]), encoding="utf-8")


def changed(name: str, since: str) -> list[str]:
    """Files of a scenario that differ from what they were then."""
    return git("diff", "--name-only", since, "--", *covers(name)).splitlines()


def age(name: str, greens: dict[str, Green]) -> str:
    """Why a scenario's last result is older than the code it covers; empty where it is not."""
    if name not in greens:
        return "never green"
    known = greens[name].commit
    try:
        found = changed(name, known)
    except subprocess.CalledProcessError:
        return f"green at {known}, which this repository does not have"
    return f"green at {known}, and {len(found)} of its files changed since ({found[0]} first)" if found else ""


def older() -> list[str]:
    """One line for each scenario that is older than the code it covers."""
    greens = read_page()
    return [f"{name}: {why}" for name in commands() if (why := age(name, greens))]


def commands() -> dict[str, list[str]]:
    names = sorted(path.parent.name for path in TOP.glob("molecule/*/molecule.yml"))
    found = {name: [str(TOP / "tools" / "test.sh"), "molecule", name] for name in names}
    for cluster in CHAOS:
        words = ["--cluster", cluster, "--minutes", str(CHAOS_MINUTES)]
        found[f"chaos_{cluster}"] = [sys.executable, "-m", "tools.chaos", *words]
    return found


def run(name: str, folder: Path) -> dict[str, int]:
    begun = time.monotonic()
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(commands()[name], cwd=TOP, stdout=log, stderr=subprocess.STDOUT)
        try:
            rc = process.wait(LIMITS.get(name, LIMIT_SECONDS))
        except subprocess.TimeoutExpired:
            rc = 124
            end(process)
    return {"rc": rc, "seconds": round(time.monotonic() - begun)}


def end(process: subprocess.Popen[bytes]) -> None:
    """A scenario with all that it has started, also in sessions of their own; they may end by themselves first.

    What is left would go on beside the next scenario, and lose its lab as soon as this one is run again.
    """
    family = [process.pid, *descendants(process.pid)]
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and processes().keys() & set(family):
            process.poll()
            time.sleep(0.1)


def processes() -> dict[int, int]:
    """The parent of each process that has not ended, reaped or not."""
    running = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # the name in front of this may have anything in it
            state, parent = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[:2]
            if state != "Z":
                running[int(path.parent.name)] = int(parent)
    return running


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in processes().items():
        children.setdefault(parent, []).append(child)
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found[1:]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-full", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios, or chaos_ray, chaos_mp, chaos_direct (default: all)")
    parser.add_argument("--older", action="store_true", help="run nothing, say which are older than their code")
    parser.add_argument("--again", action="store_true", help="run what is green as well")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(commands()):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(commands())}")
    if arguments.older:
        print("\n".join(older()))
        return 0
    folder = TOP / ".lab" / "results" / commit()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "results.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in arguments.names or commands():
        if not arguments.again and not age(name, read_page()):
            print(f"{name:16} was green at {read_page()[name].commit}, and its code is the same")
            continue
        print(f"{name:16} running, log in {folder / (name + '.log')}", flush=True)
        before = git("rev-parse", "--short=8", "HEAD")
        committed = not changed(name, before)
        results[name] = run(name, folder)
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        # of code that is in no commit, or changed meanwhile, nobody could say later what was green
        if results[name]["rc"] == 0 and committed and not changed(name, before):
            write_page({**read_page(), name: Green(before, int(results[name]["seconds"]))})
        print(
            f"{name:16} {'passed' if results[name]['rc'] == 0 else 'FAILED'} in {results[name]['seconds']} s",
            flush=True,
        )
    failed = [name for name, result in results.items() if result["rc"] != 0]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    print("older than their code:", *older() or ["none"], sep="\n  ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
