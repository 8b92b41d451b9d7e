# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The members of a tar that somebody else wrote, read within bounds.

Python's reader takes whatever an archive says: a name of a thousand gibibytes, a million of members, of each of which
it keeps a description, and a compressed file that never ends.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Generator
from contextlib import closing
from typing import Any, BinaryIO

#: times a compressed archive's own size, to which it unpacks at most; an image unpacks to some four times its own
MOST_RATIO = 100
#: bytes that a small one may have in any case
_SMALL = 64 << 20
_KINDS: tuple[tuple[bytes, Any], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)
_BROKEN = (EOFError, lzma.LZMAError, zlib.error)


class _Bounded:
    """A file of which no more than ``left`` bytes are read in all, and nothing behind ``end``."""

    def __init__(self, stream: BinaryIO, left: int, end: int) -> None:
        self._stream, self._left, self._end = stream, left, end

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise ValueError("its names and small files have more bytes than docker save ever writes")
        self._left -= size
        try:
            return self._stream.read(size)
        except _BROKEN as error:
            raise ValueError(f"it does not unpack: {error}") from None

    def seek(self, position: int, whence: int = 0) -> int:
        if whence or position > self._end:
            raise ValueError(f"it unpacks to more than {MOST_RATIO} times its size, or is shorter than it says")
        try:
            return self._stream.seek(position)
        except _BROKEN as error:
            raise ValueError(f"it does not unpack: {error}") from None

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True


def members(path: str, most: int, count: int) -> Generator[tuple[tarfile.TarFile, tarfile.TarInfo], None, None]:
    """Each member with its archive, of which ``most`` bytes are read in all and ``count`` members at most.

    Raises OSError, tarfile.TarError or ValueError, here and where a member is read.
    """
    with open(path, "rb") as raw:
        magic = raw.read(6)
        size = raw.seek(0, 2)
        raw.seek(0)
        opened = next((opener for begin, opener in _KINDS if magic.startswith(begin)), None)
        end = max(MOST_RATIO * size, _SMALL) if opened else size
        with closing(opened(raw) if opened else raw) as stream:
            bounded: Any = _Bounded(stream, most, end)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:
                for number, member in enumerate(archive):
                    if number >= count:
                        raise ValueError(f"it has more than {count} members")
                    yield archive, member
