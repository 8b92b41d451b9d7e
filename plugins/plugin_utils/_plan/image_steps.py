# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps by which a recipe changes its image: patches, packages and mods, which are scripts of other tools.

Each has a SHA-256, and none is done unless the inventory acknowledges that very one. Reads the steps' files on the
controller; asks no host, and downloads nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import hash_file

#: by which the inventory says what it means
ACKNOWLEDGED = "engine_build_acknowledged"
PATCH, PACKAGE, MOD = "patch", "package", "mod"
#: what a step has to say, by its kind; a mod comes from a tool that says nothing of the rest
_FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((PATCH, PACKAGE), ("name", "file", "sha256", "source", "commit", "licence", "what")),
    MOD: ("name", "file", "sha256"),
}
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "name": (re.compile(r"[a-z0-9][\w./-]{0,99}"), "letters, digits and . _ - /"),
    "sha256": (re.compile(r"[0-9a-f]{64}"), "64 hexadecimal digits, as sha256sum prints them"),
    "commit": (re.compile(r"[0-9a-f]{40}"), "40 hexadecimal digits of a commit"),
    "file": (re.compile(r"(?!.*\.\.)[\w][\w.+-]*(?:/[\w][\w.+-]*)*"), "a path beside the recipe, without .."),
    "into": (re.compile(r"[A-Za-z_]\w*"), "the name of a Python package"),
}
_ENDS = {PATCH: (".patch", ".diff"), PACKAGE: (".whl",)}
#: files of a mod, and their bytes
MOST_FILES, MOST_BYTES = 1000, 256 << 20


class StepError(ValueError):
    """One sentence: the step, the field, the value, the fix."""


def problem_of_build(steps: Any) -> tuple[str, str]:
    """What is wrong with a recipe's ``build``, and the fix; both empty if nothing is."""
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        return "build is no list of steps", "Write a list; each step has a kind, a name, a file and its sha256."
    names = [step.get("name") for step in steps]
    for number, step in enumerate(steps, 1):
        where, kind = f"build: step {number} ({step.get('name')!r})", step.get("kind")
        if kind not in _FIELDS:
            return f"{where}: kind is {kind!r}", f"Write one of {', '.join(_FIELDS)}."
        if missing := [name for name in _FIELDS[kind] if not step.get(name)]:
            return f"{where} has no {missing[0]}", f"Say it: a {kind} needs {', '.join(_FIELDS[kind])}."
        if unknown := sorted(set(step) - {*_FIELDS[kind], "kind", "what", "into", "path"}):
            return f"{where} has unknown fields {', '.join(unknown)}", "Take them out."
        for name, value in step.items():
            text = value if isinstance(value, str) else ""
            if not text.isprintable() or not text or len(text) > 1000:
                return f"{where}: {name} is {value!r}", "Write it as one line of text."
            if name in _FORMS and not _FORMS[name][0].fullmatch(text):
                return f"{where}: {name} is {value!r}", f"Give {_FORMS[name][1]}."
        if kind in _ENDS and not step["file"].endswith(_ENDS[kind]):
            return f"{where}: file is {step['file']!r}", f"A {kind} ends with {' or '.join(_ENDS[kind])}."
        if names.count(step["name"]) > 1:
            return f"{where}: two steps have this name", "Give each a name of its own."
    return "", ""


def beside(recipe: Mapping[str, Any], original: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """The recipe of a file, with the place of each step's file where it lies beside the recipe.

    ``original`` is the file as it stands. Mods of a foreign recipe are steps where the checkout has all of them;
    otherwise they stay among what is not translated.
    """
    placed = {**recipe, "build": [_placed(step, folder) for step in recipe.get("build") or []]}
    mods = original.get("mods")
    if not mods or not isinstance(mods, list) or "args" in original:
        return placed
    steps = [_mod(str(name), folder) for name in mods]
    if all(steps):
        placed["build"] += [step for step in steps if step]
        placed["untranslated"] = [note for note in placed["untranslated"] if not note.startswith("mods ")]
    return placed


def _placed(step: Mapping[str, Any], folder: str) -> dict[str, Any]:
    path = os.path.join(folder, step["file"])
    there = os.path.realpath(path).startswith(f"{os.path.realpath(folder)}{os.sep}") and os.path.exists(path)
    return {**{name: value for name, value in step.items() if name != "path"}, **({"path": path} if there else {})}


def _mod(name: str, folder: str) -> dict[str, Any] | None:
    """A mod of a recipe in a folder of a checkout; None where there is no such folder with a run.sh."""
    if not _FORMS["file"][0].fullmatch(name):
        return None
    # recipes lie in folders of the checkout, some of them two deep
    for top in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
        path = os.path.join(top, name)
        if os.path.isfile(os.path.join(path, "run.sh")) and os.path.realpath(path) == os.path.join(
            os.path.realpath(top), name
        ):
            digest = step_digest(path)
            return {"kind": MOD, "name": name, "file": name, "sha256": digest, "path": path}
    return None


def files_of(path: str) -> Iterator[tuple[str, str]]:
    """The path of each file of a step below its own, and where it lies. Raises StepError for a link, or too much."""
    if os.path.isfile(path):
        yield os.path.basename(path), path
        return
    count = size = 0
    for parent, folders, names in os.walk(path):
        folders.sort()
        for name in sorted([*names, *(each for each in folders if os.path.islink(os.path.join(parent, each)))]):
            whole = os.path.join(parent, name)
            if os.path.islink(whole) or not os.path.isfile(whole):
                raise StepError(f"{whole} is no plain file: put the file itself there")
            count, size = count + 1, size + os.path.getsize(whole)
            if count > MOST_FILES or size > MOST_BYTES:
                raise StepError(f"{path} has more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB: take out the rest")
            yield os.path.relpath(whole, path), whole


def step_digest(path: str) -> str:
    """SHA-256 of a step's file, or of a folder's files and their names."""
    if os.path.isfile(path):
        return hash_file(path)
    rows = [f"{hash_file(whole)}  {name}\n" for name, whole in files_of(path)]
    return hashlib.sha256("".join(rows).encode()).hexdigest()


def acknowledged(
    recipe: Mapping[str, Any], given: Any, contained: bool, own_image: str = ""
) -> tuple[list[dict[str, Any]], list[str]]:
    """The steps that are done, and what is to be said of the others. Raises StepError.

    ``given`` is the inventory's: by the name of each step its digest, or false for one that is left out.
    ``contained`` says whether a container serves, ``own_image`` names the image that the inventory sets.
    """
    steps, name = list(recipe.get("build") or []), recipe["name"]
    if own_image and recipe.get("image") and own_image != recipe["image"]:
        changed = ", ".join(step["name"] for step in steps)
        return [], [f"recipe {name}: {own_image} serves, so without its {changed}"] if steps else []
    known = given if isinstance(given, Mapping) else {}
    left_out = [step["name"] for step in steps if known.get(step["name"]) is False]
    done = [step for step in steps if step["name"] not in left_out]
    for step in done:
        digest, said = f"sha256:{step['sha256']}", known.get(step["name"])
        if said == digest:
            continue
        what = "acknowledged by nobody" if said is None else f"not what was acknowledged, {said}"
        raise StepError(
            f"recipe {name}: build: {step['kind']} {step['name']} ({digest}) is {what}. Read it"
            f"{' at ' + step['path'] if step.get('path') else ' at its source'}, then set {ACKNOWLEDGED}: "
            f"{{{step['name']}: '{digest}'}}, or false in place of the digest to serve without it."
        )
    if done and not contained:
        raise StepError(f"recipe {name}: build changes an image, and engine_runtime is venv. Set it to container.")
    words = [f"recipe {name}: {', '.join(left_out)} is left out of its image"] if left_out else []
    return done, words


def inputs(base: str, script: str, steps: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 of all that makes the image: the digest of the one that is changed, the script, each step's content."""
    rows = [[step.get(name, "") for name in ("kind", "name", "file", "sha256", "into")] for step in steps]
    return hashlib.sha256(json.dumps([base, script, rows]).encode()).hexdigest()


def places(steps: Sequence[Mapping[str, Any]], folder: str, recipe: str) -> list[tuple[str, str]]:
    """Each file that the steps need, as the build sees it and on the controller. Raises StepError.

    A file is looked for beside the recipe, then in ``folder``, and must have the digest that the step says.
    """
    placed: list[tuple[str, str]] = []
    for number, step in enumerate(steps):
        path = str(step.get("path") or "") or os.path.join(folder, os.path.basename(step["file"]))
        where = f"recipe {recipe}: build: {step['name']}"
        if not os.path.exists(path):
            raise StepError(
                f"{where}: {step['file']} is neither beside the recipe nor in {folder or 'engine_build_dir'}. Put it "
                f"there from {step.get('source', 'its checkout')}, at commit {step.get('commit', 'of the recipe')}."
            )
        if (digest := step_digest(path)) != step["sha256"]:
            raise StepError(
                f"{where}: sha256 is {step['sha256']}, but {path} has {digest}. Put the file of that digest there, or "
                "read this one, and change the recipe and what the inventory acknowledges."
            )
        placed += [(f"{number:02d}/{name}", whole) for name, whole in files_of(path)]
    return placed
