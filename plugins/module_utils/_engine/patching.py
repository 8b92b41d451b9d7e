# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# its source travels into the container of a build and runs there alone:
# pylint: disable=ansible-bad-function
"""A unified diff, applied to the folder that holds a Python package: every line as the patch says it, or nothing.

Images of engines have Python, but often no ``patch``. A hunk may have moved; its lines may not differ. Nothing is
written before every hunk of every file has found its place, and a Python file must still compile.
Standard library only, Python 3.9: it runs under the image's own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
NOTHING = "/dev/null"


class PatchError(ValueError):
    """One sentence: the file, and what of the patch does not fit it."""


#: the line at which a hunk begins in the old file, its old lines, its new lines
Hunk = tuple[int, list[str], list[str]]


def parse(text: str) -> list[tuple[str, str, list[Hunk]]]:
    """Each file of a unified diff: its old name, its new name (``/dev/null`` for none) and its hunks."""
    patches: list[tuple[str, str, list[Hunk]]] = []
    lines = text.splitlines(keepends=True)
    number = 0
    while number < len(lines):
        line = lines[number]
        if line.startswith(("GIT binary patch", "rename from ", "copy from ")):
            raise PatchError("it renames, copies or holds binary files: write it as a plain unified diff")
        if line.startswith("--- ") and number + 1 < len(lines) and lines[number + 1].startswith("+++ "):
            patches.append((_name(line), _name(lines[number + 1]), []))
            number += 2
        elif match := _HUNK.match(line):
            if not patches:
                raise PatchError(f"line {number + 1}: a hunk stands before the name of its file")
            number, hunk = _hunk(lines, number + 1, match)
            patches[-1][2].append(hunk)
        else:
            number += 1
    if not any(hunks for _old, _new, hunks in patches):
        raise PatchError("it holds no hunk of a unified diff")
    return patches


def _name(line: str) -> str:
    """The path after ``a/`` or ``b/``; one that leads out of the folder is refused."""
    name = line[4:].split("\t")[0].strip()
    if name == NOTHING:
        return name
    parts = name.split("/")[1:]
    if not parts or any(part in ("", ".", "..") for part in parts):
        raise PatchError(f"{name!r} is no path below the package's folder")
    return "/".join(parts)


def _hunk(lines: list[str], number: int, head: re.Match[str]) -> tuple[int, Hunk]:
    """The line behind a hunk, and the hunk."""
    old: list[str] = []
    new: list[str] = []
    wanted = int(head[2] or 1), int(head[4] or 1)
    while (len(old), len(new)) != wanted:
        line = lines[number] if number < len(lines) else ""
        if line[:1] == "\\":
            _without_end(old, new, lines[number - 1])
        elif line[:1] in (" ", "\n", "-", "+"):
            text = line[1:] if line[:1] != "\n" else line
            old += [text] if line[:1] != "+" else []
            new += [text] if line[:1] != "-" else []
        if line[:1] not in (" ", "\n", "-", "+", "\\") or len(old) > wanted[0] or len(new) > wanted[1]:
            raise PatchError(f"line {number + 1}: the hunk has not the lines that its head says")
        number += 1
    if number < len(lines) and lines[number][:1] == "\\":
        _without_end(old, new, lines[number - 1])
        number += 1
    return number, (int(head[1]), old, new)


def _without_end(old: list[str], new: list[str], before: str) -> None:
    """The line before ``\\ No newline at end of file`` ends its file."""
    for side, signs in ((old, " -"), (new, " +")):
        if before[:1] in signs and side:
            side[-1] = side[-1].rstrip("\n")


def patched(text: str, hunks: list[Hunk], name: str) -> str:
    """A file's text with its hunks, each where its old lines stand: at the line it names, else at the only place."""
    lines = text.splitlines(keepends=True)
    moved = 0
    for start, old, new in hunks:
        expected = max(start - 1, 0) + moved
        places = [at for at in range(len(lines) - len(old) + 1) if lines[at : at + len(old)] == old]
        if not old or expected in places:
            at = min(expected, len(lines))
        elif len(places) == 1:
            at = places[0]
        else:
            found = f"{len(places)} places" if places else "no place"
            raise PatchError(f"{name}: the hunk of line {start} fits {found}: it was made for another version")
        lines[at : at + len(old)] = new
        moved = at - max(start - 1, 0) + len(new) - len(old)
    return "".join(lines)


def changes(root: str, text: str) -> dict[str, str | None]:
    """New content of each file below ``root``, by its path; None for one that goes. Nothing is written."""
    contents: dict[str, str | None] = {}
    for old, new, hunks in parse(text):
        name = old if new == NOTHING else new
        path = os.path.join(root, name)
        before = contents.get(path)
        if old != NOTHING and before is None:
            if old != name or os.path.islink(path) or not os.path.isfile(path):
                raise PatchError(f"{old}: there is no such file in the image")
            with open(path, encoding="utf-8", newline="") as file:
                before = file.read()
        elif old == NOTHING and os.path.exists(path):
            raise PatchError(f"{name}: the patch makes this file, and the image has it")
        after = patched(before or "", hunks, name)
        if new != NOTHING and name.endswith(".py"):
            compile(after, name, "exec", dont_inherit=True)
        contents[path] = None if new == NOTHING else after
    return contents


def main(package: str, path: str) -> None:
    """Apply the diff in the file ``path`` to the folder in which ``package`` lies, and name the files."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise PatchError(f"there is no Python package {package} in the image")
    root = os.path.dirname(next(iter(spec.submodule_search_locations)))
    with open(path, encoding="utf-8", newline="") as file:
        found = changes(root, file.read())
    for name, after in found.items():
        if after is None:
            os.unlink(name)
        else:
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "w", encoding="utf-8", newline="") as target:
                target.write(after)
        print("patched " + os.path.relpath(name, root))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2])
    except (PatchError, SyntaxError, UnicodeDecodeError) as error:
        sys.exit(f"{os.path.basename(sys.argv[2])}: {error}")
