# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents that the hub's own client has brought to this host before: nothing of them has to be sent.

A cache names a large file by its SHA-256. What it holds is copied and never linked, because it stays its user's, who
may change or remove it at any time; so a content counts only if the copy that was made has the wanted SHA-256.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.incoming import PROVED
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import valid_sha256
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store

#: where the hub's own tools keep models unless they are told otherwise
DEFAULT = ("/home/*/.cache/huggingface/hub", "/root/.cache/huggingface/hub")
#: seconds for a list of files; a home on a server that is gone does not answer at all
LIMIT = 15.0

Found = TypeVar("Found")


class Taken(NamedTuple):
    """What a cache gave."""

    sha256: set[str]
    size: int
    caches: list[str]


def blobs(patterns: Iterable[str]) -> dict[str, str]:
    """SHA-256 -> path of each large file in the caches that these patterns lead to and that answer in time."""
    found: dict[str, str] = {}
    return _in_time(found, lambda: _find(patterns, found))


def sizes(patterns: Iterable[str]) -> dict[str, int]:
    """Of each model in these caches the bytes of its large files, as far as this user may read there in time."""
    found: dict[str, int] = {}
    return _in_time(found, lambda: _count(patterns, found))


def _in_time(found: dict[str, Found], fill: Callable[[], None]) -> dict[str, Found]:
    """What is found until the limit; who waits longer for a file system is left behind, and ends with the program."""
    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return found.copy()


def _find(patterns: Iterable[str], found: dict[str, str]) -> None:
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(pattern, "models--*", "blobs", "*"))):
            name = os.path.basename(path)
            # a file on its way has an ending, and one that git keeps has a shorter name
            if valid_sha256(name):
                found.setdefault(name, path)


def _count(patterns: Iterable[str], found: dict[str, int]) -> None:
    paths: dict[str, str] = {}
    _find(patterns, paths)
    for path in paths.values():
        repo = os.path.basename(os.path.dirname(os.path.dirname(path))).removeprefix("models--").replace("--", "/", 1)
        with contextlib.suppress(OSError):
            # a large file is never a link: only small ones are
            found[repo] = found.get(repo, 0) + os.lstat(path).st_size


def take_for(store: Store, need: Mapping[str, Mapping[str, Any]], patterns: Iterable[str]) -> Taken:
    """Take into a store what it needs, by SHA-256; where nothing of it is in a cache, nothing is made either."""
    found = blobs(patterns) if need else {}
    return take(store.incoming, need.values(), found) if not need.keys().isdisjoint(found) else Taken(set(), 0, [])


def take(incoming: str, need: Iterable[Mapping[str, Any]], found: Mapping[str, str]) -> Taken:
    """Copy what is needed and was ``found`` to where contents arrive; what cannot be read is left to be sent."""
    taken, size, caches = set(), 0, set()
    for item in need:
        path = found.get(str(item["sha256"]))
        if path is not None and _copy(path, incoming, str(item["sha256"]), int(item["size"])):
            taken.add(str(item["sha256"]))
            size += int(item["size"])
            caches.add(path.rpartition("/models--")[0])
    return Taken(taken, size, sorted(caches))


def _copy(path: str, incoming: str, sha256: str, size: int) -> bool:
    scratch = os.path.join(incoming, f"copy-{sha256}")
    digest = hashlib.sha256()
    try:
        with os.fdopen(files.open_checked(path, os.O_RDONLY), "rb", buffering=0) as source:
            state = os.fstat(source.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size != size:
                return False
            for end in ("part", "have"):
                # of a broken fan-out: there is room for a content once
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(incoming, f"{sha256}.{end}"))
            with open(scratch, "wb") as target:
                while block := source.read(content.BLOCK):
                    digest.update(block)
                    target.write(block)
                target.flush()
                os.fsync(target.fileno())
        if digest.hexdigest() != sha256:
            return False
        os.chmod(scratch, PROVED)
        # whatever an earlier run left of it under this name, this is whole
        os.replace(scratch, os.path.join(incoming, sha256))
        return True
    except OSError:
        # another's home, a link of another user's, a disk that is full or bad: the other ways are still open
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
