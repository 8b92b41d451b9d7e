# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make test-full``: every scenario and chaos on each of its clusters, one after the other, resumable.

What passed at this commit is not run again; ``--again`` runs it all the same, names run only those.  Logs and results
stay in ``.lab/results/<commit>``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 3600
#: the fault table is 27 runs of minutes each; what one call measured is kept and not measured again by the next
LIMITS = {"faults": 4 * 3600}


#: rounds of chaos begin for so many minutes, on each of three clusters
CHAOS_MINUTES = 10
CHAOS = ("ray", "mp", "direct")


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=TOP, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commands() -> dict[str, list[str]]:
    names = sorted(path.parent.name for path in TOP.glob("molecule/*/molecule.yml"))
    found = {name: [str(TOP / "tools" / "test.sh"), "molecule", name] for name in names}
    for cluster in CHAOS:
        words = ["--cluster", cluster, "--minutes", str(CHAOS_MINUTES)]
        found[f"chaos_{cluster}"] = [sys.executable, "-m", "tools.chaos", *words]
    return found


def run(name: str, folder: Path) -> dict[str, object]:
    begun = time.monotonic()
    with (folder / f"{name}.log").open("w", encoding="utf-8") as log:
        try:
            rc = subprocess.run(
                commands()[name],
                cwd=TOP,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LIMITS.get(name, LIMIT_SECONDS),
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            rc = 124
    return {"rc": rc, "seconds": round(time.monotonic() - begun)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make test-full", description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios, or chaos_ray, chaos_mp, chaos_direct (default: all)")
    parser.add_argument("--again", action="store_true", help="run what has passed at this commit as well")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(commands()):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(commands())}")
    folder = TOP / ".lab" / "results" / commit()
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "results.json"
    results = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    for name in arguments.names or commands():
        if results.get(name, {}).get("rc") == 0 and not arguments.again:
            print(f"{name:16} passed before at this commit")
            continue
        print(f"{name:16} running, log in {folder / (name + '.log')}", flush=True)
        results[name] = run(name, folder)
        kept.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(
            f"{name:16} {'passed' if results[name]['rc'] == 0 else 'FAILED'} in {results[name]['seconds']} s",
            flush=True,
        )
    failed = [name for name, result in results.items() if result["rc"] != 0]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
