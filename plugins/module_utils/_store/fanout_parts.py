# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, as a part of the program fanout.py:
# pylint: disable=ansible-bad-function

"""The parts of all contents of a fan-out: which are here, who waits for which, and the files they lie in.

The digests of parts may come from a host, and say no more than that all have the same. A content counts as proved when
this host has hashed the whole of it, which it does while the parts come in, in their order, and right behind them: what
was just written is still in memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

HAVE_HEADER = 36 + 32  # a boot id, and a digest of the digests of all parts
#: contents that are hashed at the same time: a file that is as fast to come as to hash is not waited for
HASHERS = 4
#: bytes that are read at once
BLOCK = 1 << 20
#: mode of a file whose content was verified, for the module that takes it over (incoming.py has the same)
PROVED = 0o400


class FanoutError(Exception):
    """A sentence for the user."""


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class NotWhole(FanoutError):
    """All parts are right, and the whole is not what was wanted."""

    def __init__(self, sha256: str, found: str) -> None:
        super().__init__(f"{sha256[:12]} came as {found[:12]}")
        self.sha256, self.found = sha256, found


class PartedContent:
    """A file by its digest, here whole, in parts or not at all."""

    def __init__(self, sha256: str, size: int, first: int, count: int) -> None:
        self.sha256 = sha256
        self.size = size
        self.first = first
        self.count = count
        self.missing = count
        self.path = ""  # where it lies, if whole
        self.fd = -1
        self.have_fd = -1
        self.lock = threading.Lock()


class Parts:
    """All parts of a run: which are here, who waits for which, and the files they lie in."""

    def __init__(self, incoming: str, part_size: int, contents: Iterable[Iterable[Any]]) -> None:
        self.incoming = incoming
        self.part_size = part_size
        self.contents: list[PartedContent] = []
        self.offsets: list[int] = []
        self.lengths: list[int] = []
        self.digests: list[bytes] = []
        self.owners: list[PartedContent] = []
        for sha256, size, digests in contents:
            content = PartedContent(sha256, size, len(self.digests), len(digests))
            if len(digests) != -(-size // part_size):
                raise FanoutError(f"manifest: {sha256[:12]} has {len(digests)} parts, not those of {size} bytes")
            self.contents.append(content)
            for number, digest in enumerate(digests):
                offset = number * part_size
                self.offsets.append(offset)
                self.lengths.append(min(part_size, size - offset))
                self.digests.append(bytes.fromhex(digest))
                self.owners.append(content)
        self.total = len(self.digests)
        self.have = bytearray(self.total)
        self.lock = threading.Lock()
        self.waiting: dict[int, list[threading.Event]] = {}
        #: what is not here whole, in the order in which it comes
        self.unproved: deque[PartedContent] = deque()
        #: when the last step of adopting was done
        self.last_step = time.monotonic()

    @property
    def digest(self) -> bytes:
        """What both ends of a connection must agree on."""
        whole = hashlib.sha256(str(self.part_size).encode())
        for content in self.contents:
            whole.update(bytes.fromhex(content.sha256) + content.size.to_bytes(8, "big"))
        for digest in self.digests:
            whole.update(digest)
        return whole.digest()

    def adopt(self, local: Mapping[str, str], spare: Iterable[str]) -> None:
        """Take whole files from ``local`` (digest -> path), else parts of earlier runs and of ``spare`` files."""
        missing = []
        for content in self.contents:
            whole = local.get(content.sha256)
            arrived = os.path.join(self.incoming, content.sha256)
            if whole is None and self._proved(arrived, content.size):
                whole = arrived
            if whole is not None:
                content.path, content.missing = whole, 0
                self.have[content.first : content.first + content.count] = b"\1" * content.count
            else:
                missing.append(content)
        for content in missing:
            self._open(content)
            self.last_step = time.monotonic()
        if any(content.missing for content in missing):
            self._salvage([*spare, *(os.path.join(self.incoming, content.sha256) for content in missing)])
        for content in missing:
            if content.count:
                self.unproved.append(content)
            else:
                # nothing is to come
                self._prove(content, lambda: False)

    @staticmethod
    def _proved(path: str, size: int) -> bool:
        """Whether a file arrived and was verified; another one may be of use in parts, each of which is read first."""
        try:
            state = os.lstat(path)
        except FileNotFoundError:
            return False
        return state.st_size == size and stat.S_IMODE(state.st_mode) == PROVED

    def _open(self, content: PartedContent) -> None:
        name = os.path.join(self.incoming, content.sha256)
        content.fd = os.open(f"{name}.part", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        if content.size:
            try:
                # taken now, so that a full disk is known before a byte moves
                os.posix_fallocate(content.fd, 0, content.size)
            except OSError as error:
                raise self.write_error(error) from error
        content.have_fd = os.open(f"{name}.have", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        kept = os.pread(content.have_fd, HAVE_HEADER + content.count, 0)
        # flags of another boot, or of parts that somebody named otherwise, are asked of the data
        header = boot_id().encode() + self._list_digest(content)
        flags = kept[HAVE_HEADER:]
        if len(flags) == content.count:
            # after a loss of power the note may be younger than the data: then the data is asked
            sure = kept[:HAVE_HEADER] == header
            for number, flag in enumerate(flags):
                index = content.first + number
                if flag and (sure or self._matches(content.fd, index)):
                    self.have[index] = 1
                    content.missing -= 1
        os.ftruncate(content.have_fd, 0)
        os.pwrite(content.have_fd, header + self.have[content.first : content.first + content.count], 0)

    def _list_digest(self, content: PartedContent) -> bytes:
        return hashlib.sha256(b"".join(self.digests[content.first : content.first + content.count])).digest()

    def _matches(self, fd: int, index: int) -> bool:
        data = os.pread(fd, self.lengths[index], self.offsets[index])
        self.last_step = time.monotonic()
        return hashlib.sha256(data).digest() == self.digests[index]

    def _salvage(self, paths: Iterable[str]) -> None:
        """Parts that lie in other files here at a part's offset, a damaged file above all, need not be sent."""
        wanted: dict[bytes, list[int]] = {}
        for index in range(self.total):
            if not self.have[index]:
                wanted.setdefault(self.digests[index], []).append(index)
        for path in paths:
            with contextlib.suppress(FileNotFoundError), open(path, "rb", buffering=0) as source:
                while wanted and (data := source.read(self.part_size)):
                    self.last_step = time.monotonic()
                    for index in wanted.pop(hashlib.sha256(data).digest(), ()):
                        self.store(index, data)

    def store(self, index: int, data: bytes | memoryview) -> None:
        """Keep a part whose digest is right and wake those who wait for it."""
        content = self.owners[index]
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(content.fd, data[done:], self.offsets[index] + done)
            os.pwrite(content.have_fd, b"\1", HAVE_HEADER + index - content.first)
        except OSError as error:
            raise self.write_error(error) from error
        with self.lock:
            self.have[index] = 1
            content.missing -= 1
            for event in self.waiting.pop(index, ()):
                event.set()

    def prove(self, stop: threading.Event) -> None:
        """Hash all that was not here whole, as its parts come in; returns when all is proved, or on ``stop``.

        Raises FanoutError.
        """
        errors: list[FanoutError] = []
        failed = threading.Event()

        def hasher() -> None:
            try:
                while not (stop.is_set() or failed.is_set()):
                    with self.lock:
                        content = self.unproved.popleft() if self.unproved else None
                    if content is None:
                        return
                    self._prove(content, lambda: stop.is_set() or failed.is_set())
            except FanoutError as error:
                errors.append(error)
            except OSError as error:
                errors.append(self.write_error(error))
            finally:
                if errors:
                    failed.set()

        hashers = [threading.Thread(target=hasher, daemon=True) for _number in range(HASHERS)]
        for one in hashers:
            one.start()
        for one in hashers:
            one.join()
        if errors:
            raise errors[0]

    def _prove(self, content: PartedContent, stopped: Callable[[], bool]) -> None:
        whole = hashlib.sha256()
        for index in range(content.first, content.first + content.count):
            while not self.wait(index, 0.5):
                if stopped():
                    return
            offset, end = self.offsets[index], self.offsets[index] + self.lengths[index]
            while offset < end:
                block = os.pread(content.fd, min(BLOCK, end - offset), offset)
                if not block:
                    raise FanoutError(f"{self.incoming}: a file became shorter while it was read; run again")
                whole.update(block)
                offset += len(block)
                self.last_step = time.monotonic()
        if whole.hexdigest() != content.sha256:
            self._discard(content)
            raise NotWhole(content.sha256, whole.hexdigest())
        self._finish(content)

    def _discard(self, content: PartedContent) -> None:
        for end in ("part", "have"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.incoming, f"{content.sha256}.{end}"))

    def _finish(self, content: PartedContent) -> None:
        """The whole is right: the file gets the name by which the module finds it."""
        name = os.path.join(self.incoming, content.sha256)
        try:
            os.fdatasync(content.fd)
            os.fchmod(content.fd, PROVED)
            os.replace(f"{name}.part", name)
        except OSError as error:
            # another run may have taken it away
            raise self.write_error(error) from error
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{name}.have")
        os.close(content.have_fd)
        content.have_fd = -1

    def write_error(self, error: OSError) -> FanoutError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            usage = os.statvfs(self.incoming)
            return FanoutError(
                f"the disk of {self.incoming} became full ({usage.f_bavail * usage.f_frsize >> 20} MiB left). What "
                "arrived is kept: make room and run again"
            )
        return FanoutError(f"{self.incoming}: {error.strerror}. What arrived is kept: fix it and run again")

    def wait(self, index: int, seconds: float) -> bool:
        event = threading.Event()
        with self.lock:
            if self.have[index]:
                return True
            self.waiting.setdefault(index, []).append(event)
        if event.wait(seconds):
            return True
        with self.lock:
            entries = self.waiting.get(index, [])
            if event in entries:
                entries.remove(event)
        return bool(self.have[index])

    def descriptor(self, content: PartedContent) -> int:
        if content.fd < 0:
            with content.lock:
                if content.fd < 0:
                    content.fd = os.open(content.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return content.fd
