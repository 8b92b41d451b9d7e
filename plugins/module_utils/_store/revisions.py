# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Revisions of a model in a store: a folder for each content, and one link that says which of them the name means.

::

    <root>/<name>                the link, root's: to the revision that every host has whole
    <root>/<name>@<digest>/...   a revision; once it is whole nothing in it changes

What serves names its revision's folder, never the link (docs/developers-design.md, "One revision everywhere").

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
from collections.abc import Collection, Iterable

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    Entry,
    StoreError,
    StoreLink,
    base_of,
    revision_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import LINK, Store

_AT_FDCWD, _EXCHANGE = -100, 2


def current(store: Store, name: str) -> str:
    """The revision that a model's name leads to; empty where it leads to none."""
    found = content.read_link(os.path.join(store.root, name)) or ""
    return found if base_of(found) == name else ""


def of(store: Store, name: str) -> list[str]:
    """The folders of a model's revisions, the newest first."""
    found = [folder for folder in store.names() if base_of(folder) == name]
    return sorted(found, key=lambda folder: _age(store.folder(folder)))


def _age(path: str) -> float:
    state = content.state_of(path)
    return -state.st_mtime if state else 0.0


def adopt(store: Store, folder: str) -> bool:
    """Give the plain folder that an earlier version filled, or a person, the name of a revision; whether there was one.

    ``folder`` is the declared revision. A folder that this store filled becomes the revision that its record says,
    and no file of it is read; one of unknown content becomes the declared one, and is compared like it. The files get
    second names there and the link takes the old folder's place in one step, so the path works at every moment.
    """
    name = base_of(folder)
    if not is_plain(store, name):
        if name in store.names():
            # a run that was broken off right here
            _clear(store, name)
        return False
    plain, record = os.path.join(store.root, name), store.read_record(name)
    ours = name in store.names()
    with store.alone():
        if ours:
            links = [
                StoreLink(path, row[2].removeprefix(LINK)) for path, row in record.items() if row[2].startswith(LINK)
            ]
            # of a damaged file its last column says what was committed
            entries = [Entry(path, row[0], row[-1]) for path, row in record.items() if not row[2].startswith(LINK)]
            folder = revision_folder(name, entries, links)
        target = store.folder(folder)
        if content.state_of(target) is None:
            scratch = os.path.join(store.incoming, f"folder-{folder}")
            shutil.rmtree(scratch, ignore_errors=True)
            for parent, _folders, _names in os.walk(plain):
                # first these, outer ones first: whoever had them before changes nothing below meanwhile
                files.own_folder(parent, *store.owner, 0o755)
            shutil.copytree(plain, scratch, symlinks=True, ignore=_foreign_links, copy_function=os.link)
            store.publish(scratch, folder, record, ours)
        _lead_to(store, name, folder)
    _clear(store, name)
    return True


def _foreign_links(folder: str, inside: list[str]) -> list[str]:
    """Links of another user's: root would follow its own copy of one."""
    states = {name: os.lstat(os.path.join(folder, name)) for name in inside}
    return [
        name for name, state in states.items() if stat.S_ISLNK(state.st_mode) and state.st_uid not in (0, os.geteuid())
    ]


def _clear(store: Store, name: str) -> None:
    """The files have their names in the revision's folder now."""
    with store.alone():
        shutil.rmtree(os.path.join(store.incoming, f"plain-{name}"), ignore_errors=True)
        store.forget(name)


def is_plain(store: Store, name: str) -> bool:
    """Whether a folder, and no link, has the model's name."""
    path = os.path.join(store.root, name)
    return os.path.isdir(path) and not os.path.islink(path)


def lead_to(store: Store, folder: str) -> bool:
    """Make the model's name lead to a revision, in one step; whether it led elsewhere."""
    name = base_of(folder)
    if current(store, name) == folder:
        return False
    with store.alone():
        _lead_to(store, name, folder)
    return True


def _lead_to(store: Store, name: str, folder: str) -> None:
    path = os.path.join(store.root, name)
    if not is_plain(store, name):
        files.make_link(path, folder)
        return
    away = os.path.join(store.incoming, f"plain-{name}")
    with contextlib.suppress(FileNotFoundError):
        files.remove(away)
    os.symlink(folder, away)
    if not _exchange(away, path):
        os.unlink(away)
        os.rename(path, away)
        files.make_link(path, folder)
    files.sync_folder(store.root)


def _exchange(first: str, other: str) -> bool:
    """Two names change places in one step; False where the file system or the C library cannot."""
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(function(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0)


def part(store: Store, folder: str) -> None:
    """Remove the name that leads to a revision which is about to go."""
    name = base_of(folder)
    if name and current(store, name) == folder:
        files.remove(os.path.join(store.root, name))


def superfluous(store: Store, name: str, most: int, in_use: Collection[str]) -> list[str]:
    """Revisions beyond the newest ``most``; never the one that the name leads to, nor one that any host names."""
    now = current(store, name)
    others = [folder for folder in of(store, name) if folder != now]
    return [folder for folder in others[max(0, most - 1) :] if folder not in in_use]


def switch(store: Store, folder: str, entries: Iterable[Entry], links: Iterable[StoreLink], dry: bool) -> bool:
    """Let the model's name mean this revision, which must be whole here; whether it meant another one."""
    if not dry and not store.as_recorded(folder, entries, links):
        raise StoreError(f"{store.folder(folder)} is not whole, so {base_of(folder)} keeps its revision: run again")
    return current(store, base_of(folder)) != folder if dry else lead_to(store, folder)
