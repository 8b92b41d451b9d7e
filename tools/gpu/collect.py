# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What chaos on many clusters found, in few files of a size that can be carried: python -m tools.gpu.collect FOLDER

``summary.txt`` has a line for each run and its findings; all results are in ``chaos.tar.xz``, cut into pieces
(``cat chaos.tar.xz.* | tar xJ``). Runs that still go on are in it as far as they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.gpu.suite import RESULTS

#: bytes of a piece, and how many of them
PIECE = 15 << 20
PIECES = 4


def line(run: dict[str, Any]) -> str:
    laid = " ".join(f"{kind}={count}" for kind, count in run["laid"].items()).replace("watchdog stopped", "stopped")
    found = "goes on" if run["findings"] is None else f"{len(run['findings'])} findings"
    cut = ", cut short" if run["cut"] else ""
    return (
        f"{run['cluster']} ({run['executor']}) seed {run['seed']}: {run['minutes']:g} min, {run['rounds']} rounds, "
        f"{sum(run['laid'].values())} faults, {found}{cut}; healed after {run['healed']} s of {run['limit']}; {laid}"
    )


def summary(results: Path) -> list[str]:
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*/*/result.json"))]
    lines = [line(run) for run in runs]
    lines += [f"{run['cluster']} seed {run['seed']}: FINDING  {one}" for run in runs for one in run["findings"] or ()]
    minutes = sum(run["minutes"] for run in runs)
    return [f"{len(runs)} runs, {minutes:.0f} min of chaos", *lines]


def pack(results: Path, target: Path, size: int = PIECE, most: int = PIECES) -> int:
    """How many bytes did not fit."""
    words = ["tar", "-C", str(results), "--use-compress-program=xz -1 -T0", "-c", "."]
    # a file that grows meanwhile (1) is taken as it is
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise OSError(f"tar of {results} ended with {done.returncode}")
    for number in range(most):
        piece = done.stdout[number * size : (number + 1) * size]
        if piece:
            (target / f"chaos.tar.xz.{number}").write_bytes(piece)
    return max(0, len(done.stdout) - most * size)


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print(__doc__)
        return 2
    target = Path(argv[0])
    target.mkdir(parents=True, exist_ok=True)
    lines = summary(RESULTS)
    left = pack(RESULTS, target)
    lines += [f"{left} bytes of the archive did not fit"] if left else []
    (target / "summary.txt").write_text("".join(f"{one}\n" for one in lines), encoding="utf-8")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
