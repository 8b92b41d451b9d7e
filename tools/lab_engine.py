# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prepare the lab's wheels and model, and link them where inventories/lab looks for them (``.lab/engine``).

The folders themselves lie in a cache that outlives the checkout and are named by what made them; the links give the
inventory one constant path.
"""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "lab" / "engine"))

import prepare  # noqa: E402 - it lies beside what it prepares, not on the path


def link(name: str, target: str) -> None:
    path = TOP / ".lab" / "engine" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() and str(path.readlink()) == target:
        return
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def main() -> None:
    paths = prepare.prepare(progress=lambda line: print(line, flush=True))
    link("wheels", paths["wheel_dir"])
    link("model", paths["model"])


if __name__ == "__main__":
    main()
