# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that other programs read while we write them, or write while we read them.

Root works in folders where the serving user may write as well. So a path is walked folder by folder, each opened
inside the one before, and a link is followed only if root or whoever runs this made it: another user's link never
decides which file is read, written, owned or removed. All functions raise ``OSError`` unless they say otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import Any

#: to pass through a folder takes no right to read it; Linux alone can say so
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
#: a link is never followed by the kernel, and a pipe's other end is not waited for
_ALWAYS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MOST_LINKS = 40
_READ_LIMIT = 32_000_000


def open_checked(path: str, flags: int, mode: int = 0o600) -> int:
    """``os.open``, but no link of another user's is followed, anywhere in the path."""
    waiting, links = _names(os.path.abspath(path)) or ["."], 0
    place = os.open("/", _PASS)
    try:
        while True:
            name = waiting.pop()
            try:
                found = os.open(name, (_PASS if waiting else flags) | _ALWAYS, mode, dir_fd=place)
            except OSError as error:
                links += 1
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise OSError(error.errno, error.strerror, path) from None
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                target = _target(place, name, path)
                waiting += _names(target)
                found = os.open("/", _PASS) if target.startswith("/") else os.dup(place)
            else:
                if not waiting:
                    return found
            os.close(place)
            place = found
    finally:
        os.close(place)


def _names(path: str) -> list[str]:
    """The parts of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name]


def _target(place: int, name: str, path: str) -> str:
    """Where a link leads that may be followed."""
    state = os.stat(name, dir_fd=place, follow_symlinks=False)
    if not stat.S_ISLNK(state.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    if state.st_uid not in (0, os.geteuid()):
        raise OSError(errno.ELOOP, f"{name} is a link of user {state.st_uid}, which is not followed", path)
    return os.readlink(name, dir_fd=place)


@contextlib.contextmanager
def _inside(path: str) -> Iterator[tuple[int, str]]:
    """The folder of a path, open, and the name in it."""
    folder, name = os.path.split(os.path.abspath(path))
    place = open_checked(folder, _FOLDER)
    try:
        yield place, name
    finally:
        os.close(place)


def _scratch(name: str) -> str:
    """A name that nobody can foresee."""
    return f".{name}.{secrets.token_hex(8)}"


def write_atomic(path: str, content: bytes | str, uid: int = -1, gid: int = -1, mode: int = 0o644) -> None:
    """Replace ``path`` in one step: no reader ever sees half of the content, or all of it with another owner or mode.

    The folder must exist.  ``uid`` and ``gid`` of -1 leave the owner to the kernel.  Where it fails, what stood at
    ``path`` is still there, and nothing else is left behind.
    """
    with _inside(path) as (place, name):
        temporary = _scratch(name)
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _ALWAYS, 0o600, dir_fd=place)
        try:
            with os.fdopen(handle, "wb") as stream:
                # units without privileges may not ask for it, not even for nothing
                if (uid, gid) != (-1, -1):
                    os.fchown(stream.fileno(), uid, gid)
                os.fchmod(stream.fileno(), mode)
                stream.write(content.encode() if isinstance(content, str) else content)
                stream.flush()
                os.fsync(stream.fileno())
            os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=place)
            raise
        # the new name must survive a power loss as well as the content
        os.fsync(place)


def sync_folder(path: str) -> None:
    """The names in a folder survive a power loss from here on."""
    handle = open_checked(path, _FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_in_place(path: str, content: str) -> None:
    """For a file that somebody waits at: it stays the same one. A file with a second name elsewhere is refused."""
    with os.fdopen(open_checked(path, os.O_WRONLY | os.O_CREAT, 0o644), "w", encoding="utf-8") as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_nlink != 1:
            raise OSError(errno.EMLINK, "not a plain file with one name", path)
        stream.truncate(0)
        stream.write(content)


def read_plain(path: str, limit: int = _READ_LIMIT) -> bytes:
    """What stands in a file, ``limit`` bytes of it at most; a pipe or a device is none."""
    with os.fdopen(open_checked(path, os.O_RDONLY), "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        return stream.read(limit)


def read_own(path: str) -> bytes:
    """What stands in a file that nobody but root or this user can have written; ``PermissionError`` for another."""
    with os.fdopen(open_checked(path, os.O_RDONLY), "rb") as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_uid not in (0, os.geteuid()) or state.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "another user can have written it", path)
        return stream.read(_READ_LIMIT)


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file; empty where the file is absent, unreadable, torn or holds something else."""
    try:
        document = json.loads(read_plain(path))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def make_folder(path: str, uid: int, gid: int, mode: int) -> None:
    """Make a folder in one that is there; it is narrow until it has its owner."""
    with _inside(path) as (place, name):
        os.mkdir(name, 0o700, dir_fd=place)
        handle = os.open(name, _FOLDER | _ALWAYS, dir_fd=place)
    _own(handle, uid, gid, mode)


def own_folder(path: str, uid: int, gid: int, mode: int) -> None:
    """Give a folder that is there its owner and mode."""
    _own(open_checked(path, _FOLDER), uid, gid, mode)


def _own(handle: int, uid: int, gid: int, mode: int) -> None:
    try:
        os.fchown(handle, uid, gid)
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def make_link(path: str, target: str) -> None:
    """A link at ``path``, in one step, in the place of whatever link or file is there."""
    with _inside(path) as (place, name):
        temporary = _scratch(name)
        os.symlink(target, temporary, dir_fd=place)
        try:
            os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError:
            os.unlink(temporary, dir_fd=place)
            raise
        os.fsync(place)


def remove(path: str) -> None:
    """Remove a file, a link or a folder with all that is below; what links lead to stays."""
    with _inside(path) as (place, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            # shutil follows no link below; by way of the descriptor none above either (dir_fd came with Python 3.11)
            shutil.rmtree(f"/proc/self/fd/{place}/{name}")
        else:
            os.unlink(name, dir_fd=place)
