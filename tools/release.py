# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make release``: build the collection from the tracked files into .lab/release; with a tag, check first that tag,
galaxy.yml and changelog agree, and write the release's notes."""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import yaml

TOP = Path(__file__).resolve().parent.parent
RELEASE = TOP / ".lab" / "release"


def problems(tag: str, top: Path = TOP) -> list[str]:
    """Why the checkout cannot be released as ``tag``."""
    version = _yaml(top / "galaxy.yml")["version"]
    reasons = []
    if tag != f"v{version}":
        reasons.append(
            f"the tag is {tag}, but galaxy.yml has the version {version}; the tag of that version is v{version}"
        )
    if version not in _yaml(top / "changelogs" / "changelog.yaml")["releases"]:
        reasons.append(f"the changelog has no version {version}; run tools/changelog.sh {version}")
    if waiting := sorted(path.name for path in (top / "changelogs" / "fragments").glob("*.y*ml")):
        reasons.append(f"changes were not released: {', '.join(waiting)}; run tools/changelog.sh {version}")
    return reasons


def notes(changelog: str, version: str) -> str:
    """The section of ``version`` in CHANGELOG.rst, without its heading."""
    lines = changelog.splitlines()
    begin = lines.index(f"v{version}") + 2
    ends = (number for number in range(begin, len(lines) - 1) if lines[number + 1].startswith("==="))
    return "\n".join(lines[begin : next(ends, len(lines))]).strip() + "\n"


def build(dest: Path) -> Path:
    """The built collection: of the tracked files alone, so that nothing of this machine gets into it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as scratch:
        for name in listed.stdout.split("\0")[:-1]:
            if (TOP / name).is_file():
                (Path(scratch) / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TOP / name, Path(scratch) / name)
        command = [
            str(Path(sys.executable).parent / "ansible-galaxy"),
            "collection",
            "build",
            "--output-path",
            str(dest),
        ]
        subprocess.run(command, cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    return next(dest.glob("*.tar.gz"))


def folders(archive: bytes) -> dict[str, int]:
    """By name at the top of a built collection, how many files it holds."""
    counts: dict[str, int] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if member.isfile():
                name = member.name.split("/")[0]
                counts[name] = counts.get(name, 0) + 1
    return dict(sorted(counts.items()))


def _yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--tag", default="", help="release under this tag, such as v0.2.0")
    tag = parser.parse_args().tag
    if tag and (found := problems(tag)):
        sys.exit("\n".join(f"make release: {problem}" for problem in found))
    shutil.rmtree(RELEASE, ignore_errors=True)
    RELEASE.mkdir(parents=True)
    built = build(RELEASE)
    if tag:
        changelog = (TOP / "CHANGELOG.rst").read_text(encoding="utf-8")
        (RELEASE / "notes.md").write_text(notes(changelog, tag[1:]), encoding="utf-8")
    content = built.read_bytes()
    print(f"{built}: {len(content) / 1e6:.1f} MB")
    for name, count in folders(content).items():
        print(f"  {count:4d}  {name}")


if __name__ == "__main__":
    main()
