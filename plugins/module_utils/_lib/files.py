# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that other programs read while we write them, or write while we read them.

Root works in folders where the serving user may write as well. So a path is walked folder by folder, each opened
inside the one before, and a link is followed only if root or whoever runs this made it: another user's link never
decides which file is read, written, owned or removed. A second name (hard link) in another user's folder is no more
than a link. All functions raise ``OSError`` unless they say otherwise.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
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
    return _opened(path, flags, mode)[0]


def _opened(path: str, flags: int, mode: int = 0o600) -> tuple[int, os.stat_result]:
    """:func:`open_checked`, and the state of the folder that it is in."""
    waiting, links = _names(os.path.abspath(path)) or ["."], 0
    place = os.open("/", _PASS)
    try:
        while True:
            name = waiting.pop()
            try:
                descriptor = os.open(name, (_PASS if waiting else flags) | _ALWAYS, mode, dir_fd=place)
            except OSError as error:
                links += 1
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise OSError(error.errno, error.strerror, path) from None
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                target = _target(place, name, path)
                waiting += _names(target)
                descriptor = os.open("/", _PASS) if target.startswith("/") else os.dup(place)
            else:
                if not waiting:
                    return descriptor, os.fstat(place)
            os.close(place)
            place = descriptor
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
        with contextlib.suppress(OSError):
            # whoever waits is another user, whatever the umask; a file of somebody else's stays as it is
            os.fchmod(stream.fileno(), 0o644)
        stream.truncate(0)
        stream.write(content)


def read_plain(path: str, limit: int = _READ_LIMIT, end: bool = False) -> bytes:
    """What stands in a file, ``limit`` bytes of it at most, with ``end`` the last ones.

    A pipe, a device or a folder is no file, and neither is a second name of a file that whoever gave it that name may
    not read.
    """
    handle, folder = _opened(path, os.O_RDONLY)
    with os.fdopen(handle, "rb") as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        if _lent(state, folder):
            raise PermissionError(errno.EPERM, "another user gave this name to a file that is not for him", path)
        if end:
            stream.seek(max(0, state.st_size - limit))
        return stream.read(limit)


def _lent(state: os.stat_result, folder: os.stat_result) -> bool:
    """Whether a name may have been given to a file by somebody who may not read it."""
    own = (0, os.geteuid())
    theirs = folder.st_uid not in own or bool(folder.st_mode & 0o022)
    readable = bool(state.st_mode & 0o004) or (state.st_uid == folder.st_uid and state.st_uid not in own)
    return state.st_nlink > 1 and theirs and not readable


def read_beneath(top: str, path: str, reader: int, limit: int = _READ_LIMIT) -> bytes:
    """What a process sees at a path below its own root folder ``top``, as ``/proc/PID/root``.

    No link is followed below, since there it means another file than here.  Whoever has a root folder of his own can
    mount any file of this host in it, so a file counts only if the user ``reader``, whose process it is, may read it.
    """
    place = os.open(top, _PASS | os.O_CLOEXEC)
    try:
        *folders, name = [part for part in path.split("/") if part]
        for folder in folders:
            found = os.open(folder, _PASS | _ALWAYS, dir_fd=place)
            os.close(place)
            place = found
        with os.fdopen(os.open(name, os.O_RDONLY | _ALWAYS, dir_fd=place), "rb") as stream:
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, "not a plain file", path)
            if reader not in (0, state.st_uid) and not state.st_mode & 0o004:
                raise PermissionError(errno.EPERM, f"user {reader} may not read it", path)
            return stream.read(limit)
    finally:
        os.close(place)


class _Reader:
    """The rights of the user who has a folder, by owner, groups and mode as the kernel counts them."""

    def __init__(self, owner: os.stat_result) -> None:
        self.uid = owner.st_uid
        try:
            name = pwd.getpwuid(self.uid)
            self.groups = {*os.getgrouplist(name.pw_name, name.pw_gid)}
        except KeyError:
            self.groups = set()

    def check(self, handle: int, right: int) -> None:
        """``PermissionError`` where the user lacks ``right``, 4 to read or 1 to pass."""
        state = os.fstat(handle)
        shift = 6 if state.st_uid == self.uid else 3 if state.st_gid in self.groups else 0
        if self.uid and not (state.st_mode >> shift) & right:
            raise PermissionError(errno.EPERM, f"user {self.uid} may not read there")


def open_of_owner(top: str, path: str, flags: int = os.O_RDONLY) -> int:
    """Open what is below a folder, if whoever has that folder may read it.

    Within it the owner's links are followed, and none that leaves it: neither one that begins at ``/`` nor one that
    goes up too far. A second name of a file that is not for him is refused, as in :func:`read_plain`.
    """
    places = [open_checked(top, _FOLDER)]
    try:
        reader, links = _Reader(os.fstat(places[0])), 0
        waiting = _names(path)
        while waiting:
            reader.check(places[-1], 1)
            name = waiting.pop()
            if name == "..":
                if len(places) == 1:
                    raise OSError(errno.EXDEV, "a link that leads out", os.path.join(top, path))
                os.close(places.pop())
                # what was passed on the way is opened as asked for where the way ends there
                waiting += [] if waiting else ["."]
                continue
            if name == "." and waiting:
                continue
            try:
                places.append(os.open(name, (_PASS if waiting else flags) | _ALWAYS, dir_fd=places[-1]))
            except OSError as error:
                links += 1
                if error.errno not in (errno.ELOOP, errno.ENOTDIR) or links > _MOST_LINKS:
                    raise
                target = os.readlink(name, dir_fd=places[-1])
                if target.startswith("/"):
                    raise OSError(errno.EXDEV, "a link that leads out", os.path.join(top, path)) from None
                waiting += _names(target)
        reader.check(places[-1], 4)
        state = os.fstat(places[-1])
        if len(places) > 1 and stat.S_ISREG(state.st_mode) and _lent(state, os.fstat(places[-2])):
            raise PermissionError(errno.EPERM, "another user gave this name to a file that is not for him", path)
        return os.dup(places[-1])
    finally:
        for place in places:
            os.close(place)


def list_of_owner(top: str, path: str) -> list[str]:
    """The names in a folder below ``top``, sorted; none where whoever has ``top`` may not read it."""
    try:
        handle = open_of_owner(top, path, _FOLDER)
    except OSError:
        return []
    try:
        return sorted(os.listdir(handle))
    except OSError:
        return []
    finally:
        os.close(handle)


def list_folder(path: str) -> list[str]:
    """The names in a folder, sorted; none where it cannot be read or a link of another user's leads there."""
    try:
        handle = open_checked(path, _FOLDER)
    except OSError:
        return []
    try:
        return sorted(os.listdir(handle))
    except OSError:
        return []
    finally:
        os.close(handle)


def read_own(path: str) -> bytes:
    """What stands in a file that nobody but root or this user can have written; ``PermissionError`` for another."""
    with os.fdopen(open_checked(path, os.O_RDONLY), "rb") as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_uid not in (0, os.geteuid()) or state.st_mode & 0o022:
            raise PermissionError(errno.EPERM, "another user can have written it", path)
        return stream.read(_READ_LIMIT)


def read_json(path: str) -> dict[str, Any]:
    """The object in a JSON file; empty where the file is absent, unreadable, torn, too deep or holds something else."""
    try:
        document = json.loads(read_plain(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


class Below:
    """Reads files of a host below a root folder: its own /, or that of a host that a test has made."""

    def __init__(self, root: str = "/") -> None:
        self._root = root

    def _path(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    def _text(self, path: str, limit: int = 1_000_000) -> str:
        """Empty where nothing can be read."""
        try:
            return read_plain(self._path(path), limit).decode("utf-8", "replace")
        except OSError:
            return ""

    def _object(self, path: str) -> dict[str, Any]:
        return read_json(self._path(path))


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
