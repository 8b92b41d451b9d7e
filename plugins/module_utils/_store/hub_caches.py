# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents that the hub's own client has brought to this host before: nothing of them has to be sent.

A cache names a large file by its SHA-256; the name may be the client's link to bytes that models share elsewhere in
the same cache. It is read with the rights of whoever has the cache, and only there. What it holds is copied and never
linked, because it stays its user's, who may change or remove it at any time; so a content counts only if the copy that
was made has the wanted SHA-256.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.incoming import PROVED
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import valid_sha256

#: where the hub's own tools keep models unless they are told otherwise
DEFAULT = ("/home/*/.cache/huggingface/hub", "/root/.cache/huggingface/hub")
_MODEL = "models--"
#: what the hub calls a model, and models of one cache that are looked at: anybody with a home may fill such a folder
_NAMED, _MODELS = re.compile(r"models--[A-Za-z0-9._-]{1,200}"), 500
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
        for blob in _blobs(pattern):
            found.setdefault(blob.sha256, blob.path)


class _Blob(NamedTuple):
    path: str
    repo: str
    sha256: str
    size: int


def _blobs(pattern: str) -> Iterator[_Blob]:
    """The large files that can be taken out of caches."""
    for cache in sorted(glob.glob(pattern)):
        models = [name for name in files.list_of_owner(cache, "") if _NAMED.fullmatch(name)]
        for model in models[:_MODELS]:
            folder = os.path.join(model, "blobs")
            # a file on its way has an ending, and one that git keeps has a shorter name
            for name in filter(valid_sha256, files.list_of_owner(cache, folder)):
                path = os.path.join(cache, folder, name)
                with contextlib.suppress(OSError), _opened(path) as source:
                    size = os.fstat(source.fileno()).st_size
                    yield _Blob(path, model.removeprefix(_MODEL).replace("--", "/", 1), name, size)


def _opened(path: str) -> BinaryIO:
    """A file of a cache, as :func:`blobs` names it."""
    cache, begin, rest = path.rpartition(f"/{_MODEL}")
    source = os.fdopen(files.open_of_owner(cache, begin[1:] + rest), "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
        source.close()
        raise OSError(errno.EINVAL, "not a plain file", path)
    return cast(BinaryIO, source)


def _count(patterns: Iterable[str], sizes_by_model: dict[str, int]) -> None:
    counted: set[tuple[str, str]] = set()
    for pattern in patterns:
        for blob in _blobs(pattern):
            # models may share a file, and users a model
            if (blob.repo, blob.sha256) not in counted:
                counted.add((blob.repo, blob.sha256))
                sizes_by_model[blob.repo] = sizes_by_model.get(blob.repo, 0) + blob.size


def take(incoming: str, need: Iterable[Mapping[str, Any]], found: Mapping[str, str]) -> Taken:
    """Copy what is needed and was ``found`` to where contents arrive; what cannot be read is left to be sent."""
    taken, size, caches = set(), 0, set()
    for item in need:
        path = found.get(str(item["sha256"]))
        if path is not None and _copy(path, incoming, str(item["sha256"]), int(item["size"])):
            taken.add(str(item["sha256"]))
            size += int(item["size"])
            caches.add(path.rpartition(f"/{_MODEL}")[0])
    return Taken(taken, size, sorted(caches))


def _copy(path: str, incoming: str, sha256: str, size: int) -> bool:
    scratch = os.path.join(incoming, f"copy-{sha256}")
    digest = hashlib.sha256()
    try:
        with _opened(path) as source:
            if os.fstat(source.fileno()).st_size != size:
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
        # another's home, a link out of the cache, a disk that is full or bad: the other ways are still open
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
