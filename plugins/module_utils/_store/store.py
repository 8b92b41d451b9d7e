# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Folders of big files on a host, complete or absent, known by their content.

A store is a directory that holds named folders (models, sets of wheels)::

    <root>/<name>/...            a folder under its final name: every file in it is whole and was verified
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
import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

_NAME = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_SHA = re.compile(r"\A[0-9a-f]{64}\Z")
_BLOCK = 1 << 20
#: of the bytes still to come, kept free on top of them
RESERVE = 0.05
#: mode of a file in .incoming whose content was verified and lies on the disk (_fanout.py gives the same)
PROVED = 0o400
#: seconds that a run waits for another one in the same store
LOCK_LIMIT = 300.0
#: how the record of a symbolic link begins
_LINK = "-> "


class StoreError(Exception):
    """A sentence for the user."""


class Busy(StoreError):
    """Another run works in the store."""


class Entry(NamedTuple):
    """One file of a manifest."""

    path: str
    size: int
    sha256: str


class Link(NamedTuple):
    """A symbolic link of a manifest; it leads to something in the same folder."""

    path: str
    target: str


class Owner(NamedTuple):
    uid: int
    gid: int


class Source(NamedTuple):
    """A file of which a content can be had: it was read, and is that as long as it is not touched."""

    path: str
    identity: tuple[int, int, int]


def check_name(name: str) -> str:
    if not _NAME.match(name):
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
        if not _SHA.match(str(sha256)) or int(size) < 0:
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


def parse_links(rows: Iterable[Iterable[Any]], entries: Iterable[Entry]) -> list[Link]:
    """Rows of (path, target), checked: a link may lead to a file of the same manifest alone."""
    files = {entry.path for entry in entries}
    links: dict[str, Link] = {}
    for row in rows:
        path, target = (str(word) for word in row)
        parts = path.split("/")
        if not path or path.startswith("/") or "\0" in path + target or {"", ".", ".."} & set(parts):
            raise StoreError(f"manifest: the path {path!r} does not stay inside its folder")
        if target.startswith("/") or os.path.normpath(os.path.join(os.path.dirname(path), target)) not in files:
            raise StoreError(f"manifest: the link {path!r} leads to {target!r}, which is no file of the same folder")
        if path in files or path in links:
            raise StoreError(f"manifest: {path!r} occurs twice")
        links[path] = Link(path, target)
    _check_parents([*files, *links], [*files, *links])
    return list(links.values())


def hash_file(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def hash_parts(path: str, size: int) -> list[str]:
    """SHA-256 of each part of a file."""
    found = []
    with open(path, "rb", buffering=0) as file:
        while block := file.read(size):
            while len(block) < size and (more := file.read(size - len(block))):
                block += more
            found.append(hashlib.sha256(block).hexdigest())
    return found


class Plan(NamedTuple):
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


def free_bytes(path: str) -> int:
    """Room on the file system that a path, which need not be there yet, lies or will lie on."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    usage = os.statvfs(path)
    return usage.f_bavail * usage.f_frsize


class Store:
    def __init__(self, root: str, owner: Owner) -> None:
        if not os.path.isabs(root):
            # it would lie wherever the module happened to be started
            raise StoreError(f"root {root!r}: the folder of a store is named by its absolute path")
        self.root = root
        self.owner = owner
        self._incoming = os.path.join(root, ".incoming")
        self._records = os.path.join(root, ".records")

    # -- what is there ---------------------------------------------------------------------------------------------

    def folder(self, name: str) -> str:
        return os.path.join(self.root, check_name(name))

    def _record_path(self, name: str, committed: bool = True) -> str:
        return os.path.join(self._records, f"{name}.json" if committed else f".{name}.json")

    def read_record(self, name: str) -> dict[str, list[Any]]:
        """What was found by reading: relative path -> [size, mtime in ns, SHA-256, what was committed if another]."""
        for committed in (True, False):
            try:
                with open(self._record_path(name, committed), encoding="utf-8") as file:
                    document = json.load(file)
            except FileNotFoundError:
                continue
            except (OSError, ValueError):
                return {}
            return document if isinstance(document, dict) else {}
        return {}

    def names(self) -> list[str]:
        """Folders of the store that were committed once."""
        with contextlib.suppress(OSError):
            return sorted(
                name[:-5] for name in os.listdir(self._records) if name.endswith(".json") and _NAME.match(name[:-5])
            )
        return []

    @staticmethod
    def _state(path: str) -> os.stat_result | None:
        try:
            return os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _identity(self, path: str) -> tuple[int, int, int] | None:
        """Which file it is and since when: None for all that is no file."""
        state = self._state(path)
        if state is None or not stat.S_ISREG(state.st_mode):
            return None
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _recorded(self, folder: str, entry: Entry, record: Mapping[str, list[Any]]) -> bool:
        state = self._identity(os.path.join(folder, entry.path))
        return (
            state is not None
            and record.get(entry.path, [])[:3] == [*state[1:], entry.sha256]
            and state[1] == entry.size
        )

    def _holds(
        self, folder: str, entry: Entry, record: Mapping[str, list[Any]], full: bool, read: dict[str, list[Any]]
    ) -> bool:
        path = os.path.join(folder, entry.path)
        state = self._identity(path)
        if state is None or state[1] != entry.size:
            return False
        row = record.get(entry.path)
        if not full and row and row[:2] == [*state[1:]]:
            # untouched since it was read: this content, or another one
            return row[2] == entry.sha256
        found = hash_file(path)
        if self._identity(path) == state:
            read[entry.path] = [*state[1:], found]
        return found == entry.sha256

    def _proved(self, state: os.stat_result, sha256: str) -> bool:
        """Whether a file of full size in .incoming is right.

        A run that was killed, or lost power, between the last byte and the verification leaves one that nobody read.
        """
        return stat.S_IMODE(state.st_mode) == PROVED or hash_file(os.path.join(self._incoming, sha256)) == sha256

    def plan(self, name: str, entries: Iterable[Entry], full: bool = False, links: Iterable[Link] = ()) -> Plan:
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
            state = self._state(os.path.join(self._incoming, entry.sha256))
            if state and state.st_size == entry.size and not self._proved(state, entry.sha256):
                state = None
            have = state.st_size if state and state.st_size <= entry.size else 0
            if have < entry.size or state is None:
                need[entry.sha256] = {"sha256": entry.sha256, "size": entry.size, "have": have}
                part = self._state(os.path.join(self._incoming, f"{entry.sha256}.part"))
                if part is not None:
                    # what a fan-out took of the disk already
                    need[entry.sha256]["held"] = min(entry.size, part.st_blocks * 512)
        bad = {entry.path for entry in wrong}
        modes = [path for path in self._paths(entries) if path not in bad and self._mode_wrong(folder, path)]
        links = list(links)
        listed = {entry.path for entry in entries} | {link.path for link in links}
        extra = sorted(path for path in _walk(folder) if path not in listed)
        bytes_needed = sum(to_come(item) for item in need.values())
        bad_links = sorted(link.path for link in links if _read_link(os.path.join(folder, link.path)) != link.target)
        return Plan(sorted(bad), list(need.values()), modes, extra, bytes_needed, bad_links, read)

    def as_recorded(self, name: str, entries: Iterable[Entry], links: Iterable[Link] = ()) -> bool:
        """Whether all is right by size, time, owner, mode and record alone; nothing is hashed, nothing is kept."""
        folder, record = self.folder(name), self.read_record(name)
        entries = list(entries)
        if not all(self._recorded(folder, entry, record) for entry in entries):
            return False
        if any(self._mode_wrong(folder, path) for path in self._paths(entries)):
            return False
        return all(_read_link(os.path.join(folder, link.path)) == link.target for link in links)

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
                self._make_incoming()
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

    @property
    def incoming(self) -> str:
        self._make_incoming()
        return self._incoming

    def _paths(self, entries: Iterable[Entry]) -> list[str]:
        """Every file and folder of a manifest, the folder itself as the empty path."""
        found = {""}
        for entry in entries:
            path = entry.path
            while path:
                found.add(path)
                path = os.path.dirname(path)
        return sorted(found)

    def _mode_wrong(self, folder: str, path: str) -> bool:
        state = self._state(os.path.join(folder, path) if path else folder)
        if state is None:
            return False
        wanted = 0o755 if stat.S_ISDIR(state.st_mode) else 0o644
        return (state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)) != (*self.owner, wanted)

    def _known_contents(self, folder: str, wrong: Iterable[str]) -> dict[str, str]:
        """SHA-256 -> path of every recorded file in the store whose size and time still hold.

        Files of ``folder`` known to be wrong are left out: a full check may have found them so in spite of their time.
        """
        found = {}
        bad = {(folder, path) for path in wrong}
        for name in self.names():
            for path, (size, mtime, sha256, *_was) in self.read_record(name).items():
                if (name, path) in bad:
                    continue
                full_path = os.path.join(self.root, name, path)
                state = self._state(full_path)
                if state and stat.S_ISREG(state.st_mode) and (state.st_size, state.st_mtime_ns) == (size, mtime):
                    found[sha256] = full_path
        return found

    def check_space(self, bytes_needed: int, what: str) -> None:
        """Before a byte moves: is there room for all of them?"""
        free = free_bytes(self.root)
        wanted = int(bytes_needed * (1 + RESERVE))
        if wanted > free:
            raise StoreError(
                f"{what} needs {human(wanted)} more under {self.root} (5 % reserve included), but only {human(free)} "
                f"are free there: free {human(wanted - free)} or choose another place. Nothing was copied."
            )

    # -- what comes in ---------------------------------------------------------------------------------------------

    def _make_root(self) -> None:
        """With whatever lies above it; the engine reads there, whatever the umask of whoever runs this."""
        absent, path = [], self.root
        while not os.path.isdir(path):
            absent.append(path)
            path = os.path.dirname(path)
        for path in reversed(absent):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
                os.chmod(path, 0o755)

    def _make_incoming(self) -> None:
        self._make_root()
        for path, mode in ((self._incoming, 0o700), (self._records, 0o755)):
            os.makedirs(path, exist_ok=True)
            state = os.lstat(path)
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
                raise StoreError(f"{path} must be a folder of the user who fills the store: remove it")
            os.chmod(path, mode)

    @contextlib.contextmanager
    def _alone(self, seconds: float | None = None) -> Iterator[None]:
        """Two runs at once must not build one folder together, nor append to one file.

        The lock is the kernel's, so it ends with the process that holds it, however that ends.
        """
        self._make_incoming()
        limit = LOCK_LIMIT if seconds is None else seconds
        path = os.path.join(self._records, ".lock")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            end = time.monotonic() + limit
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= end:
                        holder = os.pread(handle, 32, 0).decode("ascii", "replace") or "unknown"
                        raise Busy(
                            f"another run works in {self.root} (process {holder} of this host, waited for {limit:.0f} "
                            f"s): run again when it has ended; if it hangs, end it there (kill {holder}) and run again"
                        ) from error
                    time.sleep(0.2)
            with contextlib.suppress(OSError):
                # for the others' message alone: a full disk must not keep anybody from removing something
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            # whoever had it may have tidied up
            self._make_incoming()
            yield
        finally:
            os.close(handle)

    def receive(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Take in uploaded files: a bundle (tar, members named by their SHA-256) or a piece of one content."""
        with self._alone():
            for part in parts:
                path = str(part["file"])
                if part.get("bundle"):
                    self._receive_bundle(path)
                else:
                    self._receive_piece(path, str(part["sha256"]), int(part["offset"]), int(part["size"]))
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _drop_parts(self, sha256: str) -> None:
        """What a broken fan-out holds of a content that comes another way now: there is room for it once."""
        for end in ("part", "have"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._incoming, f"{sha256}.{end}"))

    def _receive_bundle(self, path: str) -> None:
        with tarfile.open(path) as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isfile() else None
                if source is None or not _SHA.match(member.name):
                    raise StoreError(f"bundle: unexpected member {member.name!r}")
                target = os.path.join(self._incoming, member.name)
                self._drop_parts(member.name)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(target)
                with open(target, "wb") as file:
                    shutil.copyfileobj(source, file, _BLOCK)
                    file.flush()
                    os.fsync(file.fileno())
                self._verify(target, member.name)

    def _receive_piece(self, path: str, sha256: str, offset: int, size: int) -> None:
        if not _SHA.match(sha256):
            raise StoreError(f"piece: {sha256!r} is no SHA-256")
        self._drop_parts(sha256)
        target = os.path.join(self._incoming, sha256)
        state = self._state(target)
        here = state.st_size if state else 0
        if state and here == size and stat.S_IMODE(state.st_mode) == PROVED:
            return  # another run brought it meanwhile
        if here < offset or here >= size:
            # a gap, or more than there can be: begin this content anew rather than guess
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)
            if offset:
                raise StoreError(f"piece of {sha256[:12]} at {offset} does not continue what is here; run again")
            here = 0
        with open(path, "rb") as source, open(target, "ab") as file:
            # what was sent twice, or by two runs at once, counts once
            source.seek(here - offset)
            shutil.copyfileobj(source, file, _BLOCK)
            file.flush()
            os.fsync(file.fileno())
        if os.path.getsize(target) >= size:
            self._verify(target, sha256)

    @staticmethod
    def _verify(path: str, sha256: str) -> None:
        found = hash_file(path)
        if found != sha256:
            os.unlink(path)
            raise StoreError(
                f"a file arrived with SHA-256 {found[:12]}…, expected {sha256[:12]}…: it was discarded. Its source "
                "changed during the copy, or the transfer or a disk is bad. Run again."
            )
        os.chmod(path, PROVED)

    # -- what becomes visible --------------------------------------------------------------------------------------

    def commit(
        self, name: str, entries: Iterable[Entry], wrong_paths: Iterable[str], links: Iterable[Link] = ()
    ) -> None:
        """Give verified files their final names. A new folder appears in one step, whole.

        ``wrong_paths`` is what a plan made just before found wrong. What arrived keeps its name in .incoming until all
        is done, so that a run which is broken off here costs nothing but another look.
        """
        entries, bad, links = list(entries), set(wrong_paths), list(links)
        fresh = self._state(self.folder(name)) is None
        wrong = [entry for entry in entries if fresh or entry.path in bad]
        # before anything is moved, and before the lock: reading takes as long as the contents are big
        sources = self._sources(name, wrong)
        with self._alone():
            self._build(name, entries, wrong, links, sources)

    def _sources(self, name: str, wrong: Iterable[Entry]) -> dict[str, Source]:
        """SHA-256 -> a file that is it: one that arrived, else one that another folder has."""
        wrong = list(wrong)
        known = self._known_contents(name, [entry.path for entry in wrong])
        found: dict[str, Source] = {}
        for entry in wrong:
            if entry.sha256 in found:
                continue
            path = os.path.join(self._incoming, entry.sha256)
            state = self._state(path)
            if state is not None and state.st_size == entry.size:
                if stat.S_IMODE(state.st_mode) != PROVED:
                    self._verify(path, entry.sha256)
            elif entry.sha256 in known:
                path = known[entry.sha256]
                self._check_source(path, entry.sha256)
            else:
                continue
            identity = self._identity(path)
            if identity is not None:
                found[entry.sha256] = Source(path, identity)
        return found

    def _check_source(self, path: str, sha256: str) -> None:
        """What another folder has must be what its record says; else the record is put right, and nobody takes it."""
        before = self._identity(path)
        found = hash_file(path)
        if found == sha256:
            return
        if before is not None and self._identity(path) == before:
            name, _slash, relative = os.path.relpath(path, self.root).partition("/")
            self.remember(name, {relative: [*before[1:], found]})
        raise StoreError(f"{path} is damaged although its size and time are right; it is used no more: run again")

    def _build(
        self, name: str, entries: list[Entry], wrong: list[Entry], links: list[Link], sources: Mapping[str, Source]
    ) -> None:
        folder = self.folder(name)
        fresh = self._state(folder) is None
        target = os.path.join(self._incoming, f"folder-{name}") if fresh else folder
        record = {} if fresh else self.read_record(name)
        moves: list[tuple[str, Entry]] = []
        for entry in entries if fresh else wrong:
            source = sources.get(entry.sha256)
            if source is not None and self._identity(source.path) == source.identity:
                moves.append((source.path, entry))
            elif not self._recorded(folder, entry, record):
                # recorded: another run was here first
                raise StoreError(f"{name}: {entry.path} has not arrived; run again")
        if fresh:
            shutil.rmtree(target, ignore_errors=True)
        self._make_folder(target, "")
        last_use = {source: entry.path for source, entry in moves if os.path.dirname(source) == self._incoming}
        for source, entry in moves:
            self._make_folder(target, os.path.dirname(entry.path))
            scratch = self._second_name(source, entry.sha256, last_use.get(source) == entry.path)
            if not fresh:
                self._own(scratch, 0o644)
            os.replace(scratch, os.path.join(target, entry.path))
            with contextlib.suppress(FileNotFoundError):
                # two names of one file are not replaced by each other
                os.unlink(scratch)
        for path in self._paths(entries):
            if self._mode_wrong(target, path):
                full_path = os.path.join(target, path) if path else target
                self._own(full_path, 0o755 if os.path.isdir(full_path) else 0o644)
        for link in links:
            self._make_link(target, link)
        # its note is written first: where there is no room for that, nothing becomes visible either
        note = self._stage_record(name, self._document(target, entries, links))
        if fresh:
            os.rename(target, folder)
        self._keep_record(name, note)
        for source in last_use:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(source)

    def _second_name(self, source: str, sha256: str, last: bool) -> str:
        """The same file under a scratch name; where names cannot be had a copy, or itself if nobody else wants it."""
        scratch = os.path.join(self._incoming, f"link-{sha256}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        try:
            os.link(source, scratch)
        except OSError:
            if last:
                os.replace(source, scratch)
            else:
                with open(source, "rb") as there, open(scratch, "wb") as here:
                    shutil.copyfileobj(there, here, _BLOCK)
                    here.flush()
                    os.fsync(here.fileno())
        return scratch

    def _make_link(self, target: str, link: Link) -> None:
        final = os.path.join(target, link.path)
        if _read_link(final) == link.target:
            return
        self._make_folder(target, os.path.dirname(link.path))
        scratch = os.path.join(self._incoming, "link-new")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        os.symlink(link.target, scratch)
        os.chown(scratch, *self.owner, follow_symlinks=False)
        os.replace(scratch, final)

    def _make_folder(self, target: str, relative: str) -> None:
        """Make a folder inside the target; anything else in its way, a link above all, is refused."""
        path = target
        for part in ["", *relative.split("/")] if relative else [""]:
            path = os.path.join(path, part) if part else path
            state = self._state(path)
            if state is None:
                os.makedirs(path)
                self._own(path, 0o755)
            elif not stat.S_ISDIR(state.st_mode):
                raise StoreError(f"{path} is in the way and not a folder: remove it")

    def _own(self, path: str, mode: int) -> None:
        # through a descriptor: the folder may belong to a service user, who must not be able to put a link there
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            os.fchown(descriptor, *self.owner)
            os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)

    def _document(self, folder: str, entries: Iterable[Entry], links: Iterable[Link]) -> dict[str, list[Any]]:
        document: dict[str, list[Any]] = {link.path: [0, 0, f"{_LINK}{link.target}"] for link in links}
        for entry in entries:
            state = os.lstat(os.path.join(folder, entry.path))
            document[entry.path] = [entry.size, state.st_mtime_ns, entry.sha256]
        return document

    def _keep_record(self, name: str, note: str) -> None:
        os.replace(note, self._record_path(name))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._record_path(name, committed=False))

    def _stage_record(self, name: str, document: Mapping[str, list[Any]], committed: bool = True) -> str:
        """The record under a name of its own, whole; where it cannot be written, nothing of it stays."""
        scratch = f"{self._record_path(name, committed)}.new"
        try:
            with open(scratch, "w", encoding="utf-8") as file:
                json.dump(document, file)
            os.chmod(scratch, 0o644)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(scratch)
            raise
        return scratch

    def refresh_record(self, name: str, entries: Iterable[Entry], links: Iterable[Link] = ()) -> bool:
        """Record a folder that was found right by reading it, so that the next look is quick. True if it was new."""
        entries, links = list(entries), list(links)
        folder = self.folder(name)
        if os.path.exists(self._record_path(name)) and self._document(folder, entries, links) == self.read_record(name):
            return False
        self._make_incoming()
        self._keep_record(name, self._stage_record(name, self._document(folder, entries, links)))
        return True

    def inventory(self) -> list[dict[str, Any]]:
        """Every folder of the store: {name, bytes, files, ours, verdict}, by sizes and times; no file is read."""
        rows = []
        known = set(self.names())
        try:
            there = {entry.name for entry in os.scandir(self.root) if not entry.name.startswith(".")}
        except FileNotFoundError:
            there = set()
        for name in sorted(known | there):
            folder, record = os.path.join(self.root, name), self.read_record(name)
            size, count = _measure(folder)
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
        if str(row[2]).startswith(_LINK):
            return _read_link(path) == str(row[2]).removeprefix(_LINK)
        state = self._identity(path)
        return state is not None and [*state[1:]] == row[:2]

    def remove(self, name: str) -> None:
        """Remove a folder. Links in it go and not what they lead to; contents that have another name keep that."""
        folder = self.folder(name)
        if os.path.islink(folder):
            raise StoreError(f"{folder} is a link: remove it by hand if it is not wanted, what it leads to is not ours")
        with self._alone():
            if self._state(folder) is not None:
                # out of sight in one step: half a model under its name would be worse than none
                away = os.path.join(self._incoming, f"removed-{name}")
                shutil.rmtree(away, ignore_errors=True)
                os.rename(folder, away)
                shutil.rmtree(away)
            for committed in (True, False):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._record_path(name, committed))

    def clean_incoming(self, entries: Iterable[Entry] | None = None) -> None:
        """Nothing more is to come of these contents, or of any; while another run works here all is left to that one.

        What another run delivered waits between its calls, without the lock: only who knows of none takes everything.
        """
        if self._state(self._incoming) is None:
            return
        with contextlib.suppress(Busy), self._alone(0.0):
            if entries is None:
                shutil.rmtree(self._incoming, ignore_errors=True)
                return
            for sha256 in {entry.sha256 for entry in entries}:
                self._drop_parts(sha256)
                for name in (sha256, f"link-{sha256}"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(self._incoming, name))
            with contextlib.suppress(OSError):
                os.rmdir(self._incoming)


def to_come(item: Mapping[str, Any]) -> int:
    """Bytes that the disk must still take for a content that is needed."""
    return item["size"] - max(item["have"], item.get("held", 0))


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _walk(folder: str) -> Iterator[str]:
    for parent, _folders, names in os.walk(folder):
        for name in names:
            yield os.path.relpath(os.path.join(parent, name), folder)


def _measure(folder: str) -> tuple[int, int]:
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


def private_store(root: str) -> Store:
    """A store of whoever runs this, root on a host.

    What is installed as root must not pass through a folder that the serving user can write to.
    """
    return Store(root, Owner(os.geteuid(), pwd.getpwuid(os.geteuid()).pw_gid))
