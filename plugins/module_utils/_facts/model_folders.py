# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of models: links that lead nowhere, and what names the content (a revision, a manifest's digest).

Some of them are other users'. No link of theirs is followed: one that leads out of its model's folder is a file, and
nobody asks what is there.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files

#: files looked at and models told at most
FILES = 20_000
MODELS = 200
_REVISION = re.compile(r"[0-9A-Za-z._-]{1,80}")
_PASS = getattr(os, "O_PATH", os.O_RDONLY)


def read(patterns: Iterable[str], root: str) -> tuple[list[dict[str, Any]], bool]:
    """The models in these folders, and whether those are all; ``root`` is left out of the paths told."""
    folders: list[dict[str, Any]] = []
    left = FILES
    for place in (place for pattern in patterns for place in sorted(glob.glob(pattern))):
        names = files.list_folder(place)
        for name in names:
            # a revision's folder is there under its model's name as well
            if name.startswith(".") or "@" in name:
                continue
            folder = os.path.join(place, name)
            counted = _count(folder, left)
            if counted is None:
                continue
            number, broken, visited = counted
            left -= visited
            revisions = [item for item in names if item.startswith(f"{name}@")]
            folders.append(
                {
                    "name": name,
                    "path": _shown(folder, root),
                    # the engine's configuration names one of them
                    "folders": [_shown(os.path.join(place, item), root) for item in revisions],
                    "files": number,
                    "broken": broken[:20],
                    "broken_count": len(broken),
                    "revision": _revision(place, name),
                }
            )
            if left <= 0 or len(folders) >= MODELS:
                return folders, False
    return folders, True


def _shown(path: str, root: str) -> str:
    return "/" + os.path.relpath(path, root).lstrip("/")


def _count(folder: str, most: int) -> tuple[int, list[str], int] | None:
    """Files, links that lead nowhere, and how much was looked at; None where there is no folder of ours to read."""
    number = visited = 0
    broken: list[str] = []
    waiting = [""]
    while waiting and visited <= most:
        below = waiting.pop()
        try:
            handle = files.open_checked(os.path.join(folder, below), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            if not below:
                return None
            continue
        try:
            with os.scandir(handle) as entries:
                for entry in entries:
                    visited += 1
                    if visited > most:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        waiting += [f"{below}{entry.name}/"] if entry.name not in (".no_exist", ".locks") else []
                    elif entry.is_symlink() and _leads_nowhere(handle, folder, below, entry.name):
                        broken.append(below + entry.name)
                    else:
                        number += 1
        except OSError:
            continue
        finally:
            os.close(handle)
    return number, sorted(broken), visited


def _leads_nowhere(handle: int, folder: str, below: str, name: str) -> bool:
    """Whether a link within a model's folder has no end there."""
    target = os.path.normpath(os.path.join(below, os.readlink(name, dir_fd=handle)))
    if target.startswith(("/", "..")):
        return False
    try:
        os.close(files.open_checked(os.path.join(folder, target), _PASS))
    except OSError:
        return True
    return False


def _revision(place: str, name: str) -> str:
    try:
        head = files.read_plain(os.path.join(place, name, "refs", "main"), 100).decode("ascii", "replace").strip()
        return head if _REVISION.fullmatch(head) else ""
    except OSError:
        pass
    try:
        folder = os.readlink(os.path.join(place, name))
    except OSError:
        folder = name
    rows = files.read_json(os.path.join(place, ".records", f"{os.path.basename(folder)}.json"))
    try:
        told = sorted((path, str(row[2])) for path, row in rows.items())
    except (IndexError, KeyError, TypeError):
        return ""
    return "sha256:" + hashlib.sha256(repr(told).encode()).hexdigest()[:16] if told else ""
