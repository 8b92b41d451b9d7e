# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of big files on a host, complete or absent, known by their content.

A store is a directory that holds named folders (models, sets of wheels)::

    <root>/<name>/...            a folder under its final name: every file in it is whole and was verified
    <root>/<name>@<digest>/...   the same for one revision of a model; revisions.py has the links to them
    <root>/.incoming/<sha256>    a file on its way, root's alone; mode 0400 says that its content was verified
    <root>/.records/<name>.json  what was verified: relative path -> size, mtime, SHA-256 (of a link its target), and
                                 of a file that was found to be something else since then what was committed
    <root>/.records/.lock        held by whoever changes the store, never longer than that process lives

Whoever sends asks with a manifest what is missing, delivers pieces in any number of calls, and commits. A file that
another folder of the store already has is linked instead of sent; one that arrived half is continued. A file whose
recorded size and time still hold is not read again, whatever it was found to be.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import stat
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import (
    free_bytes,
    human,
    measure,
    read_link,
    walk,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.incoming import PROVED, Incoming
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import (
    Busy,
    Entry,
    StoreError,
    StoreLink,
    base_of,
    check_folder,
    valid_folder,
)

#: of the bytes still to come, kept free on top of them
RESERVE = 0.05
#: how the record of a symbolic link begins
LINK = "-> "


class Owner(NamedTuple):
    uid: int
    gid: int


class ContentSource(NamedTuple):
    """A file of which a content can be had: it was read, and is that as long as it is not touched."""

    path: str
    identity: tuple[int, int, int]


class FolderPlan(NamedTuple):
    """What a folder lacks."""

    wrong: list[str]  # files absent, damaged or different
    need: list[dict[str, Any]]  # contents to send: {sha256, size, have}
    modes: list[str]  # files and folders whose owner or mode is wrong
    extra: list[str]  # files the manifest does not know; they are left alone
    bytes_needed: int  # that the disk must still take
    links: list[str] = []  # links absent or different
    read: dict[str, list[Any]] = {}  # what had to be read, as a record has it

    @property
    def right(self) -> bool:
        return not (self.wrong or self.modes or self.links)


class Store:
    def __init__(self, root: str, owner: Owner) -> None:
        if not os.path.isabs(root):
            # it would lie wherever the module happened to be started
            raise StoreError(f"root {root!r}: the folder of a store is named by its absolute path")
        self.root = root
        self.owner = owner
        self._incoming = os.path.join(root, ".incoming")
        self._records = os.path.join(root, ".records")
        self._arrivals = Incoming(root, self._incoming, self._records)

    # -- what is there ---------------------------------------------------------------------------------------------

    def folder(self, name: str) -> str:
        return os.path.join(self.root, check_folder(name))

    def _record_path(self, name: str, committed: bool = True) -> str:
        return os.path.join(self._records, f"{name}.json" if committed else f".{name}.json")

    def read_record(self, name: str) -> dict[str, list[Any]]:
        """What was found by reading: relative path -> [size, mtime in ns, SHA-256, what was committed if another]."""
        for committed in (True, False):
            path = self._record_path(name, committed)
            if content.state_of(path) is not None:
                return {path: row for path, row in files.read_json(path).items() if content.is_row(row)}
        return {}

    def names(self) -> list[str]:
        """Folders of the store that were committed once."""
        with contextlib.suppress(OSError):
            return sorted(
                name[:-5] for name in os.listdir(self._records) if name.endswith(".json") and valid_folder(name[:-5])
            )
        return []

    def _recorded(self, folder: str, entry: Entry, record: Mapping[str, list[Any]]) -> bool:
        state = content.identity(os.path.join(folder, entry.path))
        return (
            state is not None
            and record.get(entry.path, [])[:3] == [*state[1:], entry.sha256]
            and state[1] == entry.size
        )

    def _holds(
        self, folder: str, entry: Entry, record: Mapping[str, list[Any]], full: bool, read: dict[str, list[Any]]
    ) -> bool:
        path = os.path.join(folder, entry.path)
        state = content.identity(path)
        if state is None or state[1] != entry.size:
            return False
        row = record.get(entry.path)
        if not full and row and row[:2] == [*state[1:]]:
            # untouched since it was read: this content, or another one
            return bool(row[2] == entry.sha256)
        found = content.hash_file(path)
        if content.identity(path) == state:
            read[entry.path] = [*state[1:], found]
        return found == entry.sha256

    def plan(
        self, name: str, entries: Iterable[Entry], full: bool = False, links: Iterable[StoreLink] = ()
    ) -> FolderPlan:
        """Compare a folder with its manifest. Unchanged size and time mean unchanged content unless ``full``."""
        folder, record = self.folder(name), self.read_record(name)
        entries = list(entries)
        read: dict[str, list[Any]] = {}
        wrong = [entry for entry in entries if not self._holds(folder, entry, record, full, read)]
        known = self._known_contents(name, [entry.path for entry in wrong]) if wrong else {}
        need: dict[str, dict[str, Any]] = {}
        for entry in wrong:
            if entry.sha256 in known or entry.sha256 in need:
                continue
            state = content.state_of(os.path.join(self._incoming, entry.sha256))
            if state and state.st_size == entry.size and not self._arrivals.proved(state, entry.sha256):
                state = None
            have = state.st_size if state and state.st_size <= entry.size else 0
            if have < entry.size or state is None:
                need[entry.sha256] = {"sha256": entry.sha256, "size": entry.size, "have": have}
                part = content.state_of(os.path.join(self._incoming, f"{entry.sha256}.part"))
                if part is not None:
                    # what a fan-out took of the disk already
                    need[entry.sha256]["held"] = min(entry.size, part.st_blocks * 512)
        bad = {entry.path for entry in wrong}
        modes = [path for path in self._paths(entries) if path not in bad and self._mode_wrong(folder, path)]
        links = list(links)
        listed = {entry.path for entry in entries} | {link.path for link in links}
        extra = sorted(path for path in walk(folder) if path not in listed)
        bytes_needed = sum(to_come(item) for item in need.values())
        bad_links = sorted(link.path for link in links if read_link(os.path.join(folder, link.path)) != link.target)
        return FolderPlan(sorted(bad), list(need.values()), modes, extra, bytes_needed, bad_links, read)

    def as_recorded(self, name: str, entries: Iterable[Entry], links: Iterable[StoreLink] = ()) -> bool:
        """Whether all is right by size, time, owner, mode and record alone; nothing is hashed, nothing is kept."""
        folder, record = self.folder(name), self.read_record(name)
        entries = list(entries)
        if not all(self._recorded(folder, entry, record) for entry in entries):
            return False
        if any(self._mode_wrong(folder, path) for path in self._paths(entries)):
            return False
        return all(read_link(os.path.join(folder, link.path)) == link.target for link in links)

    def remember(self, name: str, read: Mapping[str, list[Any]]) -> None:
        """Keep what files were found to be by reading them, wanted or not, so that none is read twice.

        Of a folder that was never committed it is kept apart: what lies there is not the store's own yet. Of a file
        that is no longer what was committed, that is kept too.
        """
        if not read:
            return
        record, committed = self.read_record(name), os.path.exists(self._record_path(name))
        if committed:
            read = {path: self._beside_committed(row, record.get(path)) for path, row in read.items()}
        if any(record.get(path) != row for path, row in read.items()):
            # a full disk is told by whoever needs it: this only saves time
            with contextlib.suppress(OSError):
                self._arrivals.make()
                note = self._stage_record(name, {**record, **read}, committed)
                os.replace(note, self._record_path(name, committed))

    @staticmethod
    def _beside_committed(row: list[Any], former: list[Any] | None) -> list[Any]:
        was = former[-1] if former else row[2]
        return row if was == row[2] else [*row, was]

    def whole(self, name: str, entries: Iterable[Entry], wrong: Iterable[str]) -> dict[str, str]:
        """SHA-256 -> path of contents that are here whole: of this folder, or of another one of the store."""
        wrong = set(wrong)
        found = self._known_contents(name, wrong)
        found.update(
            {entry.sha256: os.path.join(self.folder(name), entry.path) for entry in entries if entry.path not in wrong}
        )
        return found

    def receive(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Take in uploaded files: a bundle (tar, members named by their SHA-256) or a piece of one content."""
        self._arrivals.receive(parts)

    def drop_parts(self, sha256: str) -> None:
        self._arrivals.drop_parts(sha256)

    @property
    def incoming(self) -> str:
        self._arrivals.make()
        return self._incoming

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """The lock of whoever changes the store."""
        return self._arrivals.alone()

    def _paths(self, entries: Iterable[Entry]) -> list[str]:
        """Every file and folder of a manifest, the folder itself as the empty path."""
        paths = {""}
        for entry in entries:
            path = entry.path
            while path:
                paths.add(path)
                path = os.path.dirname(path)
        return sorted(paths)

    def _mode_wrong(self, folder: str, path: str) -> bool:
        state = content.state_of(os.path.join(folder, path) if path else folder)
        if state is None:
            return False
        wanted = 0o755 if stat.S_ISDIR(state.st_mode) else 0o644
        return (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) != (*self.owner, wanted)

    def _known_contents(self, folder: str, wrong: Iterable[str]) -> dict[str, str]:
        """SHA-256 -> path of every recorded file in the store whose size and time still hold.

        Files of ``folder`` known to be wrong are left out: a full check may have found them so in spite of their time.
        """
        contents = {}
        bad = {(folder, path) for path in wrong}
        for name in self.names():
            for path, (size, mtime, sha256, *_was) in self.read_record(name).items():
                if (name, path) in bad:
                    continue
                full_path = os.path.join(self.root, name, path)
                state = content.state_of(full_path)
                if state and stat.S_ISREG(state.st_mode) and (state.st_size, state.st_mtime_ns) == (size, mtime):
                    contents[sha256] = full_path
        return contents

    def check_space(self, bytes_needed: int, what: str) -> None:
        """Before a byte moves: is there room for all of them?"""
        free = free_bytes(self.root)
        wanted = int(bytes_needed * (1 + RESERVE))
        if wanted > free:
            raise StoreError(
                f"{what} needs {human(wanted)} more under {self.root} (5 % reserve included), but only {human(free)} "
                f"are free there: free {human(wanted - free)} or choose another place. Nothing was copied."
            )

    # -- what becomes visible --------------------------------------------------------------------------------------

    def commit(
        self, name: str, entries: Iterable[Entry], wrong_paths: Iterable[str], links: Iterable[StoreLink] = ()
    ) -> None:
        """Give verified files their final names. A new folder appears in one step, whole.

        ``wrong_paths`` is what a plan made just before found wrong. What arrived keeps its name in .incoming until all
        is done, so that a run which is broken off here costs nothing but another check.
        """
        entries, bad, links = list(entries), set(wrong_paths), list(links)
        fresh = content.state_of(self.folder(name)) is None
        wrong = [entry for entry in entries if fresh or entry.path in bad]
        # before anything is moved, and before the lock: reading takes as long as the contents are big
        sources = self._sources(name, wrong)
        with self._arrivals.alone():
            self._build(name, entries, wrong, links, sources)

    def _sources(self, name: str, wrong: Iterable[Entry]) -> dict[str, ContentSource]:
        """SHA-256 -> a file that is it: one that arrived, else one that another folder has."""
        wrong = list(wrong)
        known = self._known_contents(name, [entry.path for entry in wrong])
        sources: dict[str, ContentSource] = {}
        for entry in wrong:
            if entry.sha256 in sources:
                continue
            path = os.path.join(self._incoming, entry.sha256)
            state = content.state_of(path)
            if state is not None and state.st_size == entry.size:
                if stat.S_IMODE(state.st_mode) != PROVED:
                    self._arrivals.verify(path, entry.sha256)
            elif entry.sha256 in known:
                path = known[entry.sha256]
                self._check_source(path, entry.sha256)
            else:
                continue
            identity = content.identity(path)
            if identity is not None:
                sources[entry.sha256] = ContentSource(path, identity)
        return sources

    def _check_source(self, path: str, sha256: str) -> None:
        """What another folder has must be what its record says; else the record is put right, and nobody takes it."""
        before = content.identity(path)
        found = content.hash_file(path)
        if found == sha256:
            return
        if before is not None and content.identity(path) == before:
            name, _slash, relative = os.path.relpath(path, self.root).partition("/")
            self.remember(name, {relative: [*before[1:], found]})
        raise StoreError(f"{path} is damaged although its size and time are right; it is used no more: run again")

    def _build(
        self,
        name: str,
        entries: list[Entry],
        wrong: list[Entry],
        links: list[StoreLink],
        sources: Mapping[str, ContentSource],
    ) -> None:
        folder = self.folder(name)
        fresh = content.state_of(folder) is None
        target = os.path.join(self._incoming, f"folder-{name}") if fresh else folder
        record = {} if fresh else self.read_record(name)
        moves: list[tuple[str, Entry]] = []
        for entry in entries if fresh else wrong:
            source = sources.get(entry.sha256)
            if source is not None and content.identity(source.path) == source.identity:
                moves.append((source.path, entry))
            elif not self._recorded(folder, entry, record):
                # recorded: another run was here first
                raise StoreError(f"{name}: {entry.path} has not arrived; run again")
        if fresh:
            shutil.rmtree(target, ignore_errors=True)
        # First all folders, outer ones first: once they are the owner's alone, nobody changes what is below meanwhile.
        inside = [*(entry.path for entry in entries), *(link.path for link in links)]
        for path in sorted({"", *map(os.path.dirname, inside)}):
            self._make_folder(target, path)
        last_use = {path: entry.path for path, entry in moves if os.path.dirname(path) == self._incoming}
        for origin, entry in moves:
            scratch = self._second_name(sources[entry.sha256], entry.sha256, last_use.get(origin) == entry.path)
            if not fresh:
                self._own(scratch, 0o644)
            os.replace(scratch, os.path.join(target, entry.path))
            with contextlib.suppress(FileNotFoundError):
                # two names of one file are not replaced by each other
                os.unlink(scratch)
        for entry in entries:
            if self._mode_wrong(target, entry.path):
                self._make_single(os.path.join(target, entry.path), entry.sha256)
                self._own(os.path.join(target, entry.path), 0o644)
        for link in links:
            self._make_link(target, link)
        self.publish(target, name, self._document(target, entries, links))
        for origin in last_use:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(origin)

    def publish(self, target: str, name: str, document: Mapping[str, list[Any]], committed: bool = True) -> None:
        """Give a folder that is whole its name and its record, so that no power loss takes them from here on."""
        # its note is written first: where there is no room for that, nothing becomes visible either
        note = self._stage_record(name, document, committed) if document else ""
        folder = self.folder(name)
        # what other hosts and this one are told to be here must be here after a power loss as well
        for parent, _folders, _names in os.walk(target):
            files.sync_folder(parent)
        if target != folder:
            os.rename(target, folder)
            files.sync_folder(self.root)
        if note:
            self._keep_record(name, note, committed)

    def _second_name(self, source: ContentSource, sha256: str, last: bool) -> str:
        """The same file under a scratch name; where names cannot be had a copy, or itself if nobody else wants it."""
        scratch = os.path.join(self._incoming, f"link-{sha256}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        try:
            os.link(source.path, scratch)
        except OSError:
            if last:
                os.replace(source.path, scratch)
            else:
                self._copy(source.path, scratch, sha256)
                return scratch
        if content.identity(scratch) != source.identity:
            # whoever may write in the other folder may have put another file there meanwhile: its name is not kept
            os.unlink(scratch)
            self._copy(source.path, scratch, sha256)
        return scratch

    @staticmethod
    def _copy(source: str, target: str, sha256: str) -> None:
        with os.fdopen(files.open_checked(source, os.O_RDONLY), "rb") as there, open(target, "wb") as here:
            shutil.copyfileobj(there, here, content.BLOCK)
            here.flush()
            os.fsync(here.fileno())
        if content.hash_file(target) != sha256:
            os.unlink(target)
            raise StoreError(f"{source} was changed while it was copied: run again")

    def _make_single(self, path: str, sha256: str) -> None:
        """A file that has names outside of the store as well is copied: what is theirs keeps its owner and mode."""
        state = os.lstat(path)
        if state.st_nlink > self._names_here().get((state.st_dev, state.st_ino), 0):
            scratch = os.path.join(self._incoming, f"link-{sha256}")
            self._copy(path, scratch, sha256)
            os.replace(scratch, path)

    def _names_here(self) -> Counter[tuple[int, int]]:
        """How many names of the store each file has."""
        found: Counter[tuple[int, int]] = Counter()
        for parent, _folders, names in os.walk(self.root):
            for name in names:
                state = os.lstat(os.path.join(parent, name))
                found[state.st_dev, state.st_ino] += 1
        return found

    def _make_link(self, target: str, link: StoreLink) -> None:
        final = os.path.join(target, link.path)
        if read_link(final) == link.target:
            return
        scratch = os.path.join(self._incoming, "link-new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        os.symlink(link.target, scratch)
        os.chown(scratch, *self.owner, follow_symlinks=False)
        os.replace(scratch, final)

    def _make_folder(self, target: str, relative: str) -> None:
        """A folder inside the target, and those above it; anything else in its way, a link above all, is refused."""
        path = target
        for part in ["", *relative.split("/")] if relative else [""]:
            path = os.path.join(path, part) if part else path
            state = content.state_of(path)
            if state is None:
                files.make_folder(path, *self.owner, 0o755)
            elif not stat.S_ISDIR(state.st_mode):
                raise StoreError(f"{path} is in the way and not a folder: remove it")
            elif self._mode_wrong(path, ""):
                files.own_folder(path, *self.owner, 0o755)

    def _own(self, path: str, mode: int) -> None:
        descriptor = files.open_checked(path, os.O_RDONLY)
        try:
            os.fchown(descriptor, *self.owner)
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def _document(self, folder: str, entries: Iterable[Entry], links: Iterable[StoreLink]) -> dict[str, list[Any]]:
        document: dict[str, list[Any]] = {link.path: [0, 0, f"{LINK}{link.target}"] for link in links}
        for entry in entries:
            state = os.lstat(os.path.join(folder, entry.path))
            document[entry.path] = [entry.size, state.st_mtime_ns, entry.sha256]
        return document

    def _keep_record(self, name: str, note: str, committed: bool = True) -> None:
        os.replace(note, self._record_path(name, committed))
        if committed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._record_path(name, committed=False))
        files.sync_folder(self._records)

    def _stage_record(self, name: str, document: Mapping[str, list[Any]], committed: bool = True) -> str:
        """The record under a name of its own, whole; where it cannot be written, nothing of it stays."""
        scratch = f"{self._record_path(name, committed)}.new"
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump(document, file)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(scratch, 0o644)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)
            raise
        return scratch

    def refresh_record(self, name: str, entries: Iterable[Entry], links: Iterable[StoreLink] = ()) -> bool:
        """Record a folder that was found right by reading it, so that the next check is quick. True if it was new."""
        entries, links = list(entries), list(links)
        folder = self.folder(name)
        if os.path.exists(self._record_path(name)) and self._document(folder, entries, links) == self.read_record(name):
            return False
        self._arrivals.make()
        self._keep_record(name, self._stage_record(name, self._document(folder, entries, links)))
        return True

    def inventory(self) -> list[dict[str, Any]]:
        """Every folder of the store: {name, bytes, files, ours, verdict}, by sizes and times; no file is read."""
        rows = []
        known = set(self.names())
        try:
            there = {
                entry.name
                for entry in os.scandir(self.root)
                # a model's name is a link to one of its revisions
                if not entry.name.startswith(".") and base_of(read_link(entry.path) or "") != entry.name
            }
        except FileNotFoundError:
            there = set()
        for name in sorted(known | there):
            folder, record = os.path.join(self.root, name), self.read_record(name)
            size, count = measure(folder)
            if name not in known:
                verdict = "not of this store"
            elif name not in there:
                verdict = "gone"
            else:
                bad = sorted(
                    path for path, row in record.items() if not self._as_recorded(os.path.join(folder, path), row)
                )
                verdict = f"{len(bad)} of {len(record)} files changed or lost, {bad[0]} first" if bad else "whole"
            rows.append({"name": name, "bytes": size, "files": count, "ours": name in known, "verdict": verdict})
        return rows

    def _as_recorded(self, path: str, row: list[Any]) -> bool:
        if len(row) != 3:
            return False
        if str(row[2]).startswith(LINK):
            return read_link(path) == str(row[2]).removeprefix(LINK)
        state = content.identity(path)
        return state is not None and [*state[1:]] == row[:2]

    def remove(self, name: str) -> None:
        """Remove a folder. Links in it go and not what they lead to; contents that have another name keep that."""
        folder = self.folder(name)
        if os.path.islink(folder):
            raise StoreError(f"{folder} is a link: remove it by hand if it is not wanted, what it leads to is not ours")
        with self._arrivals.alone():
            if content.state_of(folder) is not None:
                # out of sight in one step: half a model under its name would be worse than none
                away = os.path.join(self._incoming, f"removed-{name}")
                shutil.rmtree(away, ignore_errors=True)
                os.rename(folder, away)
                shutil.rmtree(away)
            self.forget(name)

    def forget(self, name: str) -> None:
        """Remove the record of a folder that is gone."""
        for committed in (True, False):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._record_path(name, committed))

    def clean_incoming(self, entries: Iterable[Entry] | None = None) -> None:
        """Nothing more is to come of these contents, or of any; while another run works here all is left to that one.

        What another run delivered waits between its calls, without the lock: only who knows of none takes everything.
        """
        if content.state_of(self._incoming) is None:
            return
        with contextlib.suppress(Busy), self._arrivals.alone(0.0):
            if entries is None:
                shutil.rmtree(self._incoming, ignore_errors=True)
                return
            for sha256 in {entry.sha256 for entry in entries}:
                self._arrivals.drop_parts(sha256)
                for name in (sha256, f"link-{sha256}"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self._incoming, name))
            with contextlib.suppress(OSError):
                os.rmdir(self._incoming)


def to_come(item: Mapping[str, Any]) -> int:
    """Bytes that the disk must still take for a content that is needed."""
    return int(item["size"]) - max(int(item["have"]), int(item.get("held", 0)))


def private_store(root: str) -> Store:
    """A store of whoever runs this, root on a host.

    What root installs, and the models that root works on, must not lie where the serving user can write.
    """
    return Store(root, Owner(os.geteuid(), pwd.getpwuid(os.geteuid()).pw_gid))
