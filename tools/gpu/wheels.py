# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine's wheels on a machine without a network: what a bundle carries, and what a Python there has already.

    wheels.py WHEELS LOCK [PYTHON] [--thin]

Run by any Python 3.10 or newer with ``packaging``. WHEELS holds the carried wheels. Whatever they require and PYTHON
(this one unless given) has installed is packed into wheels of the same folder, without compression; LOCK is written
from both. So hosts get torch and CUDA's libraries by the very way that any engine takes, the wheel directory.

With ``--thin`` those wheels hold their metadata alone, and one of them a line that leads to PYTHON's own packages: for
many hosts on one machine, which all have that Python.
"""

from __future__ import annotations

import base64
import concurrent.futures
import csv
import hashlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser

from packaging.requirements import InvalidRequirement, Requirement

#: what every engine's lock has to pin
ROOTS = ("vllm", "ray[default]", "uv")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(lines: Iterable[str], extra: str = "") -> list[tuple[str, str]]:
    """What ``Requires-Dist`` asks for under an extra: (canonical name, extra of that), each once for no extra too."""
    requirements = []
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            requirements += [(canonical(requirement.name), more) for more in ("", *sorted(requirement.extras))]
    return requirements


def carried(folder: str) -> dict[str, tuple[str, list[str]]]:
    """Name → version and lines of requirements of every wheel in a folder."""
    wheels = {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".whl"):
            continue
        with zipfile.ZipFile(os.path.join(folder, file)) as archive:
            member = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
            metadata = HeaderParser().parsestr(archive.read(member).decode("utf-8", "replace"))
        wheels[canonical(metadata["Name"])] = (metadata["Version"], metadata.get_all("Requires-Dist") or [])
    return wheels


def installed() -> dict[str, importlib.metadata.Distribution]:
    """What this interpreter has, by canonical name; the first on its path counts, as for an import."""
    found: dict[str, importlib.metadata.Distribution] = {}
    for one in importlib.metadata.distributions():
        if one.metadata["Name"]:
            found.setdefault(canonical(one.metadata["Name"]), one)
    return found


def closure(
    here: dict[str, tuple[str, list[str]]], there: dict[str, tuple[str, list[str]]], roots: Iterable[str] = ROOTS
) -> tuple[list[str], list[str], list[str]]:
    """Names the carried wheels give, names the Python gives, and required names that neither has."""
    queue, seen = [*needs(roots), *((name, "") for name in here)], set[tuple[str, str]]()
    while queue:
        name, extra = one = queue.pop(0)
        if one not in seen:
            seen.add(one)
            known = here.get(name) or there.get(name)
            queue += needs(known[1], extra) if known else []
    names = {name for name, _extra in seen}
    theirs = names & there.keys() - here.keys()
    return sorted(names & here.keys()), sorted(theirs), sorted(names - here.keys() - there.keys())


def record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([name, f"sha256={digest}", len(data)])
    return line.getvalue()


def write_wheel(target: str, members: Iterator[tuple[str, str]], info: str) -> int:
    """Pack (name in the wheel, file) pairs without compression and give it a RECORD; the number of files."""
    part, record = f"{target}.part", []
    with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name, path in members:
            with open(path, "rb") as file:
                data = file.read()
            entry = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | (0o755 if os.access(path, os.X_OK) else 0o644)) << 16
            archive.writestr(entry, data)
            record.append(record_line(name, data))
        entry = zipfile.ZipInfo(f"{info}/RECORD", date_time=(2026, 1, 1, 0, 0, 0))
        entry.external_attr = 0o100644 << 16
        archive.writestr(entry, "".join([*record, f"{info}/RECORD,,\n"]))
    os.replace(part, target)
    return len(record)


def tree_members(folder: str) -> Iterator[tuple[str, str]]:
    """Every file of an unpacked wheel except its RECORD, which is made anew."""
    for parent, folders, names in sorted(os.walk(folder)):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, folder)
            if not inside.endswith(".dist-info/RECORD"):
                yield inside, path


def dist_members(dist: importlib.metadata.Distribution) -> Iterator[tuple[str, str]]:
    """Files of an installed distribution that lie in its site folder; programs are made anew from entry points."""
    for file in dist.files or []:
        name = file.as_posix()
        unwanted = name.startswith(("..", "/")) or "__pycache__" in name
        leftover = name.endswith((".dist-info/RECORD", ".dist-info/INSTALLER", ".dist-info/REQUESTED", ".pyc"))
        path = str(dist.locate_file(file))
        if not unwanted and not leftover and os.path.isfile(path):
            yield name, path


def wheel_name(info: str, wheel_file: str) -> str:
    """The file name that a wheel's own WHEEL file stands for."""
    tags = [line.split(":", 1)[1].strip() for line in wheel_file.splitlines() if line.startswith("Tag:")]
    parts = [sorted({tag.split("-")[place] for tag in tags}) for place in range(3)]
    return f"{info.removesuffix('.dist-info')}-{'-'.join('.'.join(part) for part in parts)}.whl"


def pack_installed(folder: str, name: str) -> str:
    """One distribution of this Python as a wheel; its file name."""
    dist = installed()[name]
    info = next(file.parts[0] for file in dist.files or [] if file.name == "METADATA" and len(file.parts) == 2)
    target = wheel_name(info, dist.read_text("WHEEL") or "Tag: py3-none-any")
    if not os.path.exists(os.path.join(folder, target)):
        write_wheel(os.path.join(folder, target), dist_members(dist), info)
    return target


def pack_thin(folder: str, name: str, pointer: str = "") -> str:
    """A distribution of this Python as a wheel of metadata alone, with a path file for ``pointer``; its file name."""
    dist = installed()[name]
    members = [(inside, path) for inside, path in dist_members(dist) if inside.split("/")[0].endswith(".dist-info")]
    info = next(inside.split("/")[0] for inside, _path in members)
    if pointer:
        line = os.path.join(folder, ".pointer")
        with open(line, "w", encoding="utf-8") as file:
            file.write(f"{pointer}\n")
        members.append(("zz_of_the_machine.pth", line))
    target = wheel_name(info, dist.read_text("WHEEL") or "Tag: py3-none-any")
    write_wheel(os.path.join(folder, target), iter(members), info)
    return target


def pack_tree(tree: str, folder: str) -> str:
    """An unpacked wheel as a wheel again; the folder's name is the wheel's, without its ending."""
    info = next(name for name in os.listdir(tree) if name.endswith(".dist-info"))
    target = os.path.join(folder, f"{os.path.basename(tree.rstrip('/'))}.whl")
    write_wheel(target, tree_members(tree), info)
    return target


def hashes(folder: str) -> dict[tuple[str, str], list[str]]:
    """SHA-256 of the wheels of a folder, by canonical name and version."""
    digests: dict[tuple[str, str], list[str]] = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".whl"):
            name, version = file.split("-")[:2]
            digest = hashlib.sha256()
            with open(os.path.join(folder, file), "rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            digests.setdefault((canonical(name), version), []).append(digest.hexdigest())
    return digests


def lock_text(
    versions: dict[str, str], lacking: Iterable[str], digests: dict[tuple[str, str], list[str]] | None = None
) -> str:
    """A lock names the wheels that may be installed, so their hashes are those of what lies in the folder."""
    head = "# The engine of this machine: carried wheels, and what its Python had already.\n"
    absent = "".join(f"# required and left out: {name}\n" for name in lacking)
    lines = []
    for name, version in sorted(versions.items()):
        known = (digests or {}).get((canonical(name), version), [])
        lines.append(" ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in known)]) + "\n")
    return head + absent + "".join(lines)


def make(folder: str, lock: str, thin: bool = False) -> dict[str, object]:
    here, dists = carried(folder), installed()
    there = {name: (one.version, one.requires or []) for name, one in dists.items()}
    ours, theirs, lacking = closure(here, there)
    absent = [name for name, _extra in needs(ROOTS) if name in lacking]
    if absent:
        raise SystemExit(f"wheels: neither {folder} nor {sys.executable} has {', '.join(absent)}: carry it")
    # one of them leads to all, wherever they lie
    pointer = "\n".join(dict.fromkeys(str(dists[name].locate_file("")) for name in theirs))
    for number, name in enumerate(theirs if thin else ()):
        pack_thin(folder, name, "" if number else pointer)
    with concurrent.futures.ProcessPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
        for future in [pool.submit(pack_installed, folder, name) for name in ([] if thin else theirs)]:
            future.result()
    versions = {name: here[name][0] for name in ours} | {name: there[name][0] for name in theirs}
    with open(f"{lock}.part", "w", encoding="utf-8") as file:
        file.write(lock_text(versions, lacking, hashes(folder)))
    os.replace(f"{lock}.part", lock)
    return {"carried": len(ours), "packed": len(theirs), "left_out": lacking}


def main() -> int:
    thin, words = "--thin" in sys.argv, [word for word in sys.argv[1:] if word != "--thin"]
    if len(words) == 3 and os.path.realpath(words[2]) != os.path.realpath(sys.executable):
        return subprocess.call([words[2], __file__, *words[:2], *(["--thin"] if thin else [])])
    print(json.dumps(make(words[0], words[1], thin)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
