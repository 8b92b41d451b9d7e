# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the SHA-256 of each wheel into the locks of ``requirements/engine``, after pins were added or changed.

    python -m tools.engine_locks [FILE...]      the shipped ones unless others are named

A lock says in a comment which target it is for: ``# target: python 3.12, aarch64, glibc 2.39``. pip names the one wheel
that it would install there and its hash as the index has it; no wheel is downloaded where the index serves metadata
apart. Pins of the lab's own wheels are hashed from the wheels that are made here.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import (
    EngineError,
    Pin,
    Target,
    canonical,
    make_target,
    parse_lock,
    parse_wheel,
    requirement_lines,
    wheel_rank,
)

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "lab" / "engine"))

# after the path was set: a program in a folder, not a package, so the import cannot stand at the top
import packages  # noqa: E402

LOCKS = TOP / "requirements" / "engine"
_TARGET = re.compile(r"^# target: python (\S+), (\S+), glibc (\S+)$", re.MULTILINE)


def target_of(text: str, source: str) -> Target:
    found = _TARGET.search(text)
    if found is None:
        raise EngineError(f"{source}: no line such as '# target: python 3.12, aarch64, glibc 2.39'")
    return make_target(*found.groups())


def own_wheels() -> dict[str, str]:
    """Pin -> SHA-256 of the wheels that no index has."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in map(Path, packages.build_local_wheels(folder)):
            name, version = path.name.split("-")[:2]
            found[f"{canonical(name)}=={version}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def index_hashes(pins: list[Pin], target: Target) -> dict[str, str]:
    """Canonical name -> SHA-256 of the wheel that pip would install on the target, by pip's own settings."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder, "pins.txt"), Path(folder, "report.json")
        wanted.write_text(requirement_lines([pin._replace(hashes=()) for pin in pins]), encoding="utf-8")
        argv = [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"),
            *("--only-binary=:all:", "--implementation=cp", f"--python-version={target.python}"),
            f"--abi={target.interpreter}",
            *(f"--platform={tag}" for tag in target.platforms()),
            *(f"--report={report}", f"--requirement={wanted}"),
        ]
        result = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode:
            raise EngineError(f"pip: {result.stderr.strip()[-2000:]}")
        rows = json.loads(report.read_text(encoding="utf-8"))["install"]
    hashes = {}
    for row in rows:
        info = row["download_info"]
        wheel = parse_wheel(info["url"].rpartition("/")[2].replace("%2B", "+"))
        if wheel is None or wheel_rank(wheel, target) is None:
            raise EngineError(f"{info['url']}: not a wheel that runs on {target.label}")
        hashes[wheel.name] = info["archive_info"]["hashes"]["sha256"]
    return hashes


def with_hashes(text: str, hashes: dict[str, str]) -> str:
    """The lock again, each pin with its hash on its line; comments stay where they are."""
    lines = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        name = canonical(re.split(r"[\[=\s]", line, maxsplit=1)[0])
        pin = re.sub(r"\s+--hash=\S+", "", line)
        lines.append(f"{pin} --hash=sha256:{hashes[name]}" if "==" in line and not line.startswith("#") else line)
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> int:
    own = own_wheels()
    for path in [Path(name) for name in names] or sorted(LOCKS.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        pins = parse_lock(text, str(path))
        hashes = {pin.name: own[str(pin)] for pin in pins if str(pin) in own}
        hashes |= index_hashes([pin for pin in pins if pin.name not in hashes], target_of(text, str(path)))
        path.write_text(with_hashes(text, hashes), encoding="utf-8")
        print(f"{path}: {len(pins)} pins")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
