# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A folder of logs that somebody sent, and the doctor's rules: the two things it reads from the controller's disk."""

from __future__ import annotations

import collections
import gzip
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import (
    Log,
    Rule,
    RuleError,
    read_rules,
)

# several times faster where PyYAML was built with libyaml, and as safe
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RULES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules")
#: bytes read of one file (its end), and of all
FILE_LIMIT = 64 << 20
TOTAL_LIMIT = 256 << 20
#: bytes unpacked of one archive to get at its end
UNPACK_LIMIT = 1 << 30
_BLOCK = 1 << 20
FILES = 500
_DULL = re.compile(
    r"\.(?:png|jpe?g|gif|pdf|zip|tar|tgz|xz|zst|bz2|so|bin|safetensors|pyc|sqlite|db|html?)$", re.IGNORECASE
)


def load_rules(checks: Iterable[str], folder: str = RULES) -> list[Rule]:
    """All rules of a folder; RuleError names the file and what is wrong in it."""
    documents: dict[str, Any] = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".yml"):
            with open(os.path.join(folder, name), encoding="utf-8") as handle:
                try:
                    documents[name] = yaml.load(handle, Loader=_LOADER)
                except yaml.YAMLError as error:
                    raise RuleError(f"{name}: {error}") from error
    return read_rules(documents, checks)


def _content(path: str, limit: int) -> tuple[bytes, str]:
    """The end of a file, unpacked where it is a gzip archive, and what of it was left out."""
    with open(path, "rb") as handle:
        if handle.read(2) == b"\x1f\x8b":
            return _unpacked(path, limit)
        size = handle.seek(0, os.SEEK_END)
        handle.seek(max(0, size - limit))
        return handle.read(limit), f"only its last {limit} bytes were read" if size > limit else ""


def _unpacked(path: str, limit: int) -> tuple[bytes, str]:
    kept: collections.deque[bytes] = collections.deque()
    size = done = 0
    with gzip.open(path, "rb") as packed:
        while done < UNPACK_LIMIT and (block := packed.read(_BLOCK)):
            kept.append(block)
            size += len(block)
            done += len(block)
            while size - len(kept[0]) >= limit:
                size -= len(kept.popleft())
        more = done >= UNPACK_LIMIT and bool(packed.read(1))
    left_out = f"only its last {limit} bytes were read" if done > limit else ""
    return b"".join(kept)[-limit:], f"what comes after {UNPACK_LIMIT} bytes was not read" if more else left_out


def _files(folder: str) -> Iterator[str]:
    for top, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            yield os.path.join(top, name)


def _is_plain(path: str, given: bool) -> bool:
    """Whether it is a file; what was ``given`` by its own name may be a link to one."""
    try:
        return stat.S_ISREG(os.stat(path, follow_symlinks=given).st_mode)
    except OSError:
        return False


_CONTROL = bytes(set(range(32)) - {0, 7, 8, 9, 10, 12, 13, 27})


def _is_text(sample: bytes) -> bool:
    return len(sample) - len(sample.translate(None, _CONTROL)) <= len(sample) // 20


def host_of(relative: str, hosts: Sequence[str]) -> str:
    """Whose log it is: a host of the inventory in its path, else its first folder, else nobody's."""
    parts = relative.split(os.sep)
    for part in parts:
        for host in sorted(hosts, key=len, reverse=True):
            if re.search(rf"(?:^|[^\w-]){re.escape(host)}(?:$|[^\w-])", part):
                return host
    return parts[0] if len(parts) > 1 else ""


def read_logs(path: str, hosts: Sequence[str] = ()) -> tuple[list[Log], list[str]]:
    """``(logs, notes)`` of a file or folder.  What cannot be read is a note; nothing here raises."""
    notes: list[str] = []
    logs: list[Log] = []
    if os.path.isfile(path):
        folder, paths = os.path.dirname(path) or ".", [path]
    elif os.path.isdir(path):
        folder, paths = path, list(_files(path))
    else:
        return [], [f"{path}: no such file or folder"]
    left = TOTAL_LIMIT
    for number, name in enumerate(paths):
        relative = os.path.relpath(name, folder)
        if number >= FILES or left <= 0:
            notes.append(f"{len(paths) - number} files from {relative} on were not read: there are too many")
            break
        if _DULL.search(name):
            continue
        if not _is_plain(name, folder != path):
            # who sent the folder may have laid a link to a file of the reader's into it, or a pipe
            notes.append(f"{relative} is no plain file and was not read")
            continue
        try:
            raw, left_out = _content(name, min(FILE_LIMIT, left))
        except (OSError, EOFError, ValueError, zlib.error) as error:
            notes.append(f"{relative} cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        left -= len(raw)
        if left_out:
            notes.append(f"{relative}: {left_out}")
        if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            text = raw.decode("utf-16", "replace")
        elif not _is_text(raw[:65536]):
            notes.append(f"{relative} is not text")
            continue
        else:
            # a file that was being written when the power went holds a run of zeros
            text = raw.replace(b"\0", b"").decode("utf-8", "replace")
        logs.append(Log(host_of(relative, hosts), relative, text))
    if not paths:
        notes.append(f"{path}: the folder is empty")
    return logs, notes
