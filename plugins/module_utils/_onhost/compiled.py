# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as the serving user:
# pylint: disable=ansible-bad-function
"""What engines have compiled, packed on one host and laid into the cache of another that is like it.

::

    sparkthor_host compiled pack CACHE > tar
    sparkthor_host compiled lay CACHE < tar

Whoever compiled it named it by all that it was made of: release, source, options and GPU. So what another engine has
left there is never taken for one's own, and what a host has no use for costs room alone. What is of a single rank is
named by the rank as well, and serves a host that gets that very one.

It is code that the serving user will run, so that user alone packs and lays it; what is there is never touched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import stat
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from .engines import registry

#: below the cache, what every engine in Python compiles with, and each engine's own
FOLDERS: tuple[str, ...] = (
    *("triton", "inductor", ".cache/flashinfer"),
    *(folder for engine in registry.ENGINES.values() for folder in engine.compiled),
)
#: bytes and files that are passed on, at most
MOST = 2 << 30
MOST_FILES = 200_000
#: folders that are looked into for a first file, at most
MOST_FOLDERS = 20_000
#: seconds for which a file was left alone before it is taken for whole
SETTLED = 60.0
#: the last name of a tar: one that broke off has no end
END = ".whole"
#: of memory, for the names in a tar that somebody else wrote
MEMORY = 1 << 30
_SCRATCH = ".compiled-"
_BLOCK = 1 << 20


class CompiledError(Exception):
    """A sentence for the user."""


def _folders(cache: str) -> Iterator[str]:
    """Those that are there, and no link on the way."""
    for name in FOLDERS:
        path = cache
        for part in name.split("/"):
            path = os.path.join(path, part)
            if not _is_folder(path):
                break
        else:
            yield path


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _files(cache: str, most: int = MOST_FOLDERS * 10) -> Iterator[tuple[str, os.stat_result]]:
    """Every plain file that is no lock, with its state; no link is followed."""
    for top in _folders(cache):
        for parent, folders, names in os.walk(top):
            folders.sort()
            most -= 1
            if most < 0:
                return
            for name in sorted(names):
                path = os.path.join(parent, name)
                with contextlib.suppress(OSError):
                    state = os.lstat(path)
                    if stat.S_ISREG(state.st_mode) and not name.endswith(".lock"):
                        yield path, state


def present(cache: str) -> bool:
    """Whether anything was compiled here. Reads names alone, so root may ask."""
    return any(state.st_size for _path, state in _files(cache, MOST_FOLDERS))


def pack(cache: str, out: BinaryIO, now: float) -> int:
    """Write a tar of the own files that nobody writes to any more; how many they are. Raises CompiledError."""
    count = size = 0
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, state in _files(cache):
            if state.st_uid != os.geteuid() or now - state.st_mtime < SETTLED:
                continue
            count, size = count + 1, size + state.st_size
            _check(count, size)
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                info = tarfile.TarInfo(os.path.relpath(path, cache))
                info.size, info.mtime = state.st_size, int(state.st_mtime)
                info.mode = 0o755 if state.st_mode & stat.S_IXUSR else 0o644
                archive.addfile(info, file)
        archive.addfile(tarfile.TarInfo(END))
    return count


def _check(count: int, size: int) -> None:
    if count > MOST_FILES or size > MOST:
        raise CompiledError(f"more than {MOST >> 30} GiB or {MOST_FILES} files were compiled: they are not passed on")


def lay(cache: str, source: BinaryIO) -> dict[str, int]:
    """Give files of a tar their places below the cache, all that are not taken; what was laid.

    They are written beside it first, so a tar that breaks off leaves nothing. Raises CompiledError.
    """
    for name in os.listdir(cache):
        if name.startswith(_SCRATCH):
            # of one that was killed
            shutil.rmtree(os.path.join(cache, name), ignore_errors=True)
    scratch = tempfile.mkdtemp(prefix=_SCRATCH, dir=cache)
    try:
        _unpack(scratch, source)
        # a name that is there after a loss of power has its content too
        os.sync()
        laid = {"files": 0, "bytes": 0}
        for name in sorted(os.listdir(scratch)):
            _move(os.path.join(scratch, name), os.path.join(cache, name), laid)
        return laid
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _unpack(folder: str, source: BinaryIO) -> None:
    count = size = 0
    with tarfile.open(fileobj=source, mode="r|") as archive:
        for member in archive:
            # the reader keeps a description of each
            archive.members = []  # type: ignore[attr-defined]
            if member.name == END:
                break
            count, size = count + 1, size + max(0, member.size)
            _check(count, size)
            path = os.path.join(folder, _place(member))
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            content = archive.extractfile(member)
            if content is None:
                raise CompiledError(f"{member.name!r} has no content")
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                shutil.copyfileobj(content, file, _BLOCK)
                if file.tell() != member.size:
                    raise CompiledError(f"{member.name!r} broke off")
                os.fchmod(descriptor, 0o755 if member.mode & stat.S_IXUSR else 0o644)
            # what is built by make's rules is built anew when its sources are the younger ones
            os.utime(path, (member.mtime, member.mtime))
        else:
            raise CompiledError("what came has no end")
    if not count:
        raise CompiledError("nothing came")


def _place(member: tarfile.TarInfo) -> str:
    """Where a member belongs; CompiledError for all that is no plain file in one of the folders."""
    name = member.name
    plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
    inside = any(name.startswith(f"{folder}/") for folder in FOLDERS)
    if not plain or not inside or "\0" in name or {"", ".", ".."} & set(name.split("/")):
        raise CompiledError(f"{name[:200]!r} is no file that an engine compiles")
    return name


def _move(source: str, target: str, laid: dict[str, int]) -> None:
    """A folder in one step where there is none; else what it lacks. A link or a file in the way stays."""
    if _is_folder(source):
        if _is_folder(target):
            for name in sorted(os.listdir(source)):
                _move(os.path.join(source, name), os.path.join(target, name), laid)
        elif not os.path.lexists(target):
            files = [os.path.join(parent, name) for parent, _folders, names in os.walk(source) for name in names]
            size = sum(os.lstat(path).st_size for path in files)
            os.rename(source, target)
            laid["files"] += len(files)
            laid["bytes"] += size
        return
    with contextlib.suppress(FileExistsError):
        # a rename would take the place of another
        os.link(source, target)
        laid["files"] += 1
        laid["bytes"] += os.lstat(target).st_size


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="sparkthor_host compiled", description="Pass what an engine has compiled on to a host that is like this."
    )
    parser.add_argument("what", choices=["pack", "lay"])
    parser.add_argument("cache", help="the folder of the engine's caches")
    options = parser.parse_args(argv)
    try:
        if os.geteuid() == 0:
            raise CompiledError("root touches nothing that an engine has compiled: this is for the serving user alone")
        os.umask(0o022)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        told: dict[str, Any]
        if options.what == "pack":
            told = {"files": pack(options.cache, sys.stdout.buffer, time.time())}
            if not told["files"]:
                raise CompiledError("nothing is whole yet that could be passed on")
        else:
            told = dict(lay(options.cache, sys.stdin.buffer))
            print(json.dumps(told), flush=True)
    except (CompiledError, OSError, tarfile.TarError, MemoryError, EOFError, ValueError) as error:
        print(str(error) or type(error).__name__, file=sys.stderr, flush=True)
        return 1
    return 0
