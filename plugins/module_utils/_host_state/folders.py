# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a folder that a variable names may become ours: it is new, empty or private. Reads only."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping

#: who may own a folder of ours and everything above it
_OWNERS = ("root", "sparkthor")
#: what a new file system brings along
_OF_A_DISK = frozenset(("lost+found",))


def refused(folders: Mapping[str, str]) -> list[str]:
    """For each variable whose folder is somebody else's: variable, value, why and fix."""
    found = []
    for name, path in folders.items():
        problem = unfit(path)
        if problem:
            found.append(f"{name}: {path!r}: {problem}; give a folder that is new, or one of root's or sparkthor's own")
    return found


def unfit(path: str, top: str = "/") -> str:
    """Why a folder is not ours to take; empty if it is new, empty or private. What is above ``top`` is not judged."""
    above = os.path.dirname(path.rstrip("/"))
    try:
        state = os.stat(path)
    except FileNotFoundError:
        return _open_above(above, top)
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISDIR(state.st_mode):
        return "it is not a folder"
    problem = _open_above(os.path.dirname(os.path.realpath(path)), top)
    if problem:
        return problem
    try:
        if not set(os.listdir(path)) - _OF_A_DISK:
            return ""
    except OSError as error:
        return str(error.strerror)
    if _name(state.st_uid) not in _OWNERS:
        return f"it is not empty and belongs to {_name(state.st_uid)}"
    return "it is not empty and others may write to it" if state.st_mode & stat.S_IWOTH else ""


def _open_above(path: str, top: str) -> str:
    """Why somebody else could put another folder in its place."""
    while path not in ("", "/", top):
        try:
            state = os.stat(path)
        except OSError:
            path = os.path.dirname(path)
            continue
        if state.st_mode & stat.S_IWOTH:
            return f"everybody may write to {path}"
        if _name(state.st_uid) not in _OWNERS:
            return f"{path} belongs to {_name(state.st_uid)}"
        path = os.path.dirname(path)
    return ""


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
