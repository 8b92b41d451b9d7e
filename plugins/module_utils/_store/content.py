# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents on a file system: their digests, their sizes, and the room for them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from typing import Any

BLOCK = 1 << 20


def hash_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def hash_parts(path: str, size: int) -> list[str]:
    """SHA-256 of each part of a file."""
    digests = []
    with open(path, "rb", buffering=0) as file:
        while block := file.read(size):
            while len(block) < size and (more := file.read(size - len(block))):
                block += more
            digests.append(hashlib.sha256(block).hexdigest())
    return digests


def free_bytes(path: str) -> int:
    """Room on the file system that a path, which need not be there yet, lies or will lie on."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize


def state_of(path: str) -> os.stat_result | None:
    """What lies under that name, links not followed; None if nothing does."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_row(row: Any) -> bool:
    """Whether a record's row says what a file was found to be; of any other file nothing is known, so it is read."""
    return (
        isinstance(row, list)
        and len(row) in (3, 4)
        and all(isinstance(number, int) for number in row[:2])
        and all(isinstance(text, str) for text in row[2:])
    )


def identity(path: str) -> tuple[int, int, int] | None:
    """Which file it is and since when: None for all that is no file."""
    state = state_of(path)
    if state is None or not stat.S_ISREG(state.st_mode):
        return None
    return state.st_ino, state.st_size, state.st_mtime_ns


def read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def walk(folder: str) -> Iterator[str]:
    for parent, _folders, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(parent, name), folder)


def measure(folder: str) -> tuple[int, int]:
    """Bytes and number of the files below, each content once however many names it has."""
    seen: set[tuple[int, int]] = set()
    size = count = 0
    for parent, _folders, names in os.walk(folder):
        for name in names:
            state = os.lstat(os.path.join(parent, name))
            if not stat.S_ISREG(state.st_mode):
                continue
            count += 1
            if (state.st_dev, state.st_ino) not in seen:
                seen.add((state.st_dev, state.st_ino))
                size += state.st_size
    return size, count


def human(size: float) -> str:
    """12 B, 3.4 MiB, 379.0 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError
