# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files as they are recorded before a network change and made again after it; links and what they lead to as well.

Goes to the host beside :mod:`netplan_job`, so it needs nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import stat
from typing import Any

#: ``{content, mode, uid, gid}``; of a symbolic link these are what it leads to, and ``link`` says where
FileState = dict[str, Any]
#: what netplan's generator writes for the network services
GENERATED = (
    "/run/systemd/network/*netplan*",
    "/run/NetworkManager/system-connections/netplan-*",
    "/run/NetworkManager/conf.d/netplan.conf",
    "/run/NetworkManager/conf.d/10-globally-managed-devices.conf",
    "/run/udev/rules.d/*netplan*",
)


def read_state(path: str) -> FileState | None:
    """Content, mode and owner of a file or of what a link leads to; None where there is neither."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    link = {"link": os.readlink(path)} if stat.S_ISLNK(status.st_mode) else {}
    content = ""
    with contextlib.suppress(OSError) if link else contextlib.nullcontext():
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) and not link:
            return None
        if stat.S_ISREG(status.st_mode):
            with open(path, encoding="utf-8", errors="surrogateescape", newline="") as handle:
                content = handle.read()
    return {"content": content, "mode": status.st_mode & 0o7777, "uid": status.st_uid, "gid": status.st_gid, **link}


def plain(state: FileState, **over: Any) -> FileState:
    """The same as a file of its own, also where it was a link."""
    return {**{key: value for key, value in state.items() if key != "link"}, **over}


def write_state(path: str, state: FileState | None) -> bool:
    """Make a file or link be as recorded (None: absent), atomically; True when something had to change."""
    current = read_state(path)
    if current == state:
        return False
    if state is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return True
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    temporary = os.path.join(folder, f".{os.path.basename(path)}.sparkthor-tmp")
    if "link" in state:
        return _write_link(path, state, current, temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="") as handle:
        handle.write(state["content"])
        handle.flush()
        os.fchown(handle.fileno(), state["uid"], state["gid"])
        os.fchmod(handle.fileno(), state["mode"])
        os.fsync(handle.fileno())
    os.rename(temporary, path)
    _sync(folder)
    return True


def _write_link(path: str, state: FileState, current: FileState | None, temporary: str) -> bool:
    """The link, and what it led to where that has been changed or removed since."""
    changed = False
    if current is None or current.get("link") != state["link"]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(state["link"], temporary)
        os.rename(temporary, path)
        _sync(os.path.dirname(path))
        changed = True
    there = read_state(path) or {}
    if state["content"] and there.get("content") != state["content"]:
        changed |= write_state(os.path.realpath(path), plain(state))
    return changed


def _sync(folder: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def generated_files(root: str = "") -> dict[str, FileState]:
    """netplan's generated files below a root folder, by their path without it."""
    states: dict[str, FileState] = {}
    for pattern in GENERATED:
        for path in sorted(glob.glob(root + pattern)):
            state = read_state(path)
            if state is not None:
                states[path[len(root) :]] = state
    return states


def write_json(path: str, value: Any) -> None:
    """Write a private JSON file atomically."""
    write_state(
        path, {"content": json.dumps(value, indent=1) + "\n", "mode": 0o600, "uid": os.geteuid(), "gid": os.getegid()}
    )


def read_netplan_json(path: str) -> dict[str, Any] | None:
    """A JSON file as a dict; None when it is missing or was never finished."""
    try:
        with open(path, encoding="utf-8") as handle:
            value = json.load(handle)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
