# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package that runs on hosts without Ansible: its files, and which of them a program is made of."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path, PurePosixPath

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location, verbs

SOURCES = Path(__file__).resolve().parents[2] / "module_utils"
PROGRAMS = "_onhost"
FOLDERS = ("_lib", PROGRAMS, f"{PROGRAMS}/engines")
#: lies one level above the folder that holds it here
START = f"{PROGRAMS}/__main__.py"
#: ``from . import a, b``, ``from .a import x`` and ``from .._lib import a``, also over several lines
RELATIVE_IMPORT = re.compile(r"^[ \t]*from (\.{1,3})([\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)


@cache
def sources() -> dict[str, str]:
    """Text by path below module_utils (``_onhost/serving.py``) of every file of the package."""
    return {
        f"{folder}/{path.name}": path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted((SOURCES / folder).glob("*.py"))
    }


def installed_path(source: str) -> str:
    """Where a file of :func:`sources` lies on a host."""
    return str(PurePosixPath(location.PACKAGE) / ("__main__.py" if source == START else source))


def package_files(folder: str = location.PACKAGE) -> list[dict[str, str]]:
    """All files of the package, in this folder of a host: ``path`` and ``content`` of each."""
    within = len(location.PACKAGE)
    return [{"path": folder + installed_path(name)[within:], "content": text} for name, text in sources().items()]


def imported(source: str) -> set[str]:
    """The files of the package that a file of it imports itself."""
    folders = source.split("/")[:-1]
    modules = set()
    for dots, module, names in RELATIVE_IMPORT.findall(sources()[source]):
        base = "/".join([*folders[: len(folders) - len(dots) + 1], *module.split(".")]).strip("/")
        if f"{base}.py" in sources():
            modules.add(f"{base}.py")
        for name in re.findall(r"(\w+)(?: as \w+)?", re.sub(r"#.*", "", names)):
            if f"{base}/{name}.py" in sources():
                modules.add(f"{base}/{name}.py")
    return modules


def _sources_of(verb: str) -> list[str]:
    # not what only picks the program: another verb is no reason to restart this one
    todo, seen = [f"{PROGRAMS}/{verbs.VERBS[verb]}.py"], set()
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += imported(name)
    return sorted(seen)


def program_files(verb: str) -> list[str]:
    """Paths on a host of the files that the program imports, directly or not.  Raises KeyError for an unknown verb."""
    return [installed_path(name) for name in _sources_of(verb)]


@cache
def program_digest(verb: str) -> str:
    """Another one than before means that the program's code is another one.

    A unit that must be restarted for its code says it in its own file: the files of the package may have been written
    by an earlier run, or by another role of this one.
    """
    found = hashlib.sha256()
    for name in _sources_of(verb):
        found.update(f"{name}\0{sources()[name]}\0".encode())
    return found.hexdigest()[:16]
