# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Contents on their way into a store: received in pieces, verified, and under the store's lock.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.deadline import lock
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import content
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Busy, StoreError, valid_sha256

#: mode of a file in .incoming whose content was verified and lies on the disk (fanout_parts.py gives the same)
PROVED = 0o400
#: seconds that a run waits for another one in the same store
LOCK_LIMIT = 300.0


class Incoming:
    """The folder ``.incoming`` of a store, and the lock of whoever changes the store."""

    def __init__(self, root: str, folder: str, records: str) -> None:
        self._root = root
        self._folder = folder
        self._records = records

    def _make_root(self) -> None:
        """With whatever lies above it; the engine reads there, whatever the umask of whoever runs this."""
        absent, path = [], self._root
        while not os.path.isdir(path):
            absent.append(path)
            path = os.path.dirname(path)
        for path in reversed(absent):
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)
                os.chmod(path, 0o755)

    def _check_root(self) -> None:
        """Whoever owns the store could put anything in the place of what is about to be checked and linked."""
        state = os.stat(self._root)
        if state.st_uid != os.geteuid() or state.st_mode & 0o022:
            raise StoreError(
                f"{self._root} belongs to user {state.st_uid} with mode {stat.S_IMODE(state.st_mode):04o}, so others "
                "can change what is in it: run the role engine, or give it to root with mode 0755"
            )

    def make(self) -> None:
        self._make_records()
        self._make(self._folder, 0o700)

    def _make_records(self) -> None:
        """All that the lock needs: nobody removes this folder."""
        self._make_root()
        self._check_root()
        # what somebody else has put there is refused before anything is made
        with contextlib.suppress(FileNotFoundError):
            self._check(self._folder)
        self._make(self._records, 0o755)

    def _make(self, path: str, mode: int) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, mode)
        self._check(path)
        os.chmod(path, mode)

    @staticmethod
    def _check(path: str) -> None:
        state = os.lstat(path)
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
            raise StoreError(f"{path} must be a folder of the user who fills the store: remove it")

    @contextlib.contextmanager
    def alone(self, seconds: float | None = None) -> Iterator[None]:
        """Two runs at once must not build one folder together, nor append to one file.

        The lock is the kernel's, so it ends with the process that holds it, however that ends.
        """
        self._make_records()
        limit = LOCK_LIMIT if seconds is None else seconds
        path = os.path.join(self._records, ".lock")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            if not lock(handle, limit):
                holder = os.pread(handle, 32, 0).decode("ascii", "replace") or "unknown"
                raise Busy(
                    f"another run works in {self._root} (process {holder} of this host, waited for {limit:.0f} "
                    f"s): run again when it has ended; if it hangs, end it there (kill {holder}) and run again"
                )
            with contextlib.suppress(OSError):
                # for the others' message alone: a full disk must not keep anybody from removing something
                os.ftruncate(handle, 0)
                os.pwrite(handle, str(os.getpid()).encode(), 0)
            # here alone: whoever had the lock may have tidied up a moment ago
            self.make()
            yield
        finally:
            os.close(handle)

    def receive(self, parts: Iterable[Mapping[str, Any]]) -> None:
        """Take in uploaded files: a bundle (tar, members named by their SHA-256) or a piece of one content."""
        with self.alone():
            for part in parts:
                path = str(part["file"])
                if part.get("bundle"):
                    self._receive_bundle(path)
                else:
                    self._receive_piece(path, str(part["sha256"]), int(part["offset"]), int(part["size"]))
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _receive_bundle(self, path: str) -> None:
        with tarfile.open(path) as archive:
            for member in archive:
                source = archive.extractfile(member) if member.isfile() else None
                if source is None or not valid_sha256(member.name):
                    raise StoreError(f"bundle: unexpected member {member.name!r}")
                target = os.path.join(self._folder, member.name)
                self.drop_parts(member.name)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(target)
                with open(target, "wb") as file:
                    shutil.copyfileobj(source, file, content.BLOCK)
                    file.flush()
                    os.fsync(file.fileno())
                self.verify(target, member.name)

    def _receive_piece(self, path: str, sha256: str, offset: int, size: int) -> None:
        if not valid_sha256(sha256):
            raise StoreError(f"piece: {sha256!r} is not a SHA-256")
        self.drop_parts(sha256)
        target = os.path.join(self._folder, sha256)
        state = content.state_of(target)
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
            shutil.copyfileobj(source, file, content.BLOCK)
            file.flush()
            os.fsync(file.fileno())
        if os.path.getsize(target) >= size:
            self.verify(target, sha256)

    def drop_parts(self, sha256: str) -> None:
        """What a broken fan-out holds of a content that comes another way now: there is room for it once."""
        for end in ("part", "have"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, f"{sha256}.{end}"))

    def proved(self, state: os.stat_result, sha256: str) -> bool:
        """Whether a file of full size in .incoming is right.

        A run that was killed, or lost power, between the last byte and the verification leaves one that nobody read.
        """
        return stat.S_IMODE(state.st_mode) == PROVED or content.hash_file(os.path.join(self._folder, sha256)) == sha256

    @staticmethod
    def verify(path: str, sha256: str) -> None:
        found = content.hash_file(path)
        if found != sha256:
            os.unlink(path)
            raise StoreError(
                f"a file arrived with SHA-256 {found[:12]}…, expected {sha256[:12]}…: it was discarded. Its source "
                "changed during the copy, or the transfer or a disk is bad. Run again."
            )
        os.chmod(path, PROVED)
