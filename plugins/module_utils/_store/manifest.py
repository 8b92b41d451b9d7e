# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a folder of the store is to hold: files with size and SHA-256, and links between them."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_REVISION = re.compile(r"\A(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,127})@[0-9a-f]{16}\Z")
_SHA = re.compile(r"\A[0-9a-f]{64}\Z")


class StoreError(Exception):
    """A sentence for the user."""


class Busy(StoreError):
    """Another run works in the store."""


class Entry(NamedTuple):
    """One file of a manifest."""

    path: str
    size: int
    sha256: str


class StoreLink(NamedTuple):
    """A symbolic link of a manifest; it leads to something in the same folder."""

    path: str
    target: str


def valid_name(name: str) -> bool:
    return _NAME.match(name) is not None


def base_of(folder: str) -> str:
    """The name of the model of which a folder holds a revision; empty for a folder without revisions."""
    found = _REVISION.match(folder)
    return found["name"] if found else ""


def valid_folder(folder: str) -> bool:
    return valid_name(folder) or bool(base_of(folder))


def check_folder(folder: str) -> str:
    return folder if base_of(folder) else check_name(folder)


def revision_folder(name: str, entries: Iterable[Entry], links: Iterable[StoreLink] = ()) -> str:
    """``name@digest``: the folder of these very contents, the same on every host and for every controller."""
    document = json.dumps([sorted(entries), sorted(links)])
    return f"{check_name(name)}@{hashlib.sha256(document.encode()).hexdigest()[:16]}"


def valid_sha256(word: str) -> bool:
    return _SHA.match(word) is not None


def check_name(name: str) -> str:
    if not valid_name(name):
        raise StoreError(
            f"name {name!r}: a folder of the store is named with letters, digits, '.', '_' and '-', beginning with a "
            "letter or a digit"
        )
    return name


def parse_manifest(rows: Iterable[Iterable[Any]]) -> list[Entry]:
    """Rows of (path, size, sha256), checked: a path may not leave its folder."""
    entries: dict[str, Entry] = {}
    for row in rows:
        path, size, sha256 = row
        parts = str(path).split("/")
        if not path or str(path).startswith("/") or "\0" in str(path) or {"", ".", ".."} & set(parts):
            raise StoreError(f"manifest: the path {path!r} does not stay inside its folder")
        if not valid_sha256(str(sha256)) or int(size) < 0:
            raise StoreError(f"manifest: {path!r} has no proper size and SHA-256")
        if path in entries:
            raise StoreError(f"manifest: {path!r} occurs twice")
        entries[str(path)] = Entry(str(path), int(size), str(sha256))
    if not entries:
        raise StoreError("manifest: no file in it")
    _check_parents(entries, entries)
    return list(entries.values())


def _check_parents(paths: Iterable[str], files: Iterable[str]) -> None:
    """A file or link is nobody's parent."""
    files = set(files)
    for path in paths:
        parent = os.path.dirname(path)
        while parent:
            if parent in files:
                raise StoreError(f"manifest: {parent!r} is both a file and a folder")
            parent = os.path.dirname(parent)


def parse_store_links(rows: Iterable[Iterable[Any]], entries: Iterable[Entry]) -> list[StoreLink]:
    """Rows of (path, target), checked: a link may lead to a file of the same manifest alone."""
    files = {entry.path for entry in entries}
    links: dict[str, StoreLink] = {}
    for row in rows:
        path, target = (str(word) for word in row)
        parts = path.split("/")
        if not path or path.startswith("/") or "\0" in path + target or {"", ".", ".."} & set(parts):
            raise StoreError(f"manifest: the path {path!r} does not stay inside its folder")
        if target.startswith("/") or os.path.normpath(os.path.join(os.path.dirname(path), target)) not in files:
            raise StoreError(f"manifest: the link {path!r} leads to {target!r}, which is not a file of the same folder")
        if path in files or path in links:
            raise StoreError(f"manifest: {path!r} occurs twice")
        links[path] = StoreLink(path, target)
    _check_parents([*files, *links], [*files, *links])
    return list(links.values())
