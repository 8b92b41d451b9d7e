# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives that somebody made up: what they cost is bounded, whatever they say."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import bounded_tar

PACKED: list[Callable[[bytes], bytes]] = [lambda data: data, gzip.compress, bz2.compress, lzma.compress]
MOST = 1 << 20


def archive(*files: tuple[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return stream.getvalue()


def read(path: Path, most: int = MOST, count: int = 100) -> dict[str, bytes]:
    found = {}
    for tar, member in bounded_tar.members(str(path), most, count):
        stream = tar.extractfile(member)
        found[member.name] = stream.read() if stream else b""
    return found


@pytest.mark.parametrize("pack", PACKED, ids=["plain", "gzip", "bzip2", "xz"])
def test_an_archive_is_read_however_it_is_packed(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(pack(archive(("a", b"one"), ("b" * 200, b"two"))))
    assert read(path) == {"a": b"one", "b" * 200: b"two"}
    path.write_bytes(path.read_bytes()[: 700 if pack is PACKED[0] else 100])
    with pytest.raises((ValueError, tarfile.TarError)):
        read(path)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"])
def test_a_name_takes_no_more_than_all_may(tmp_path: Path, form: int) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(gzip.compress(archive(("n" * (8 << 20), b""), form=form)))
    with pytest.raises(ValueError, match="names and small files have more bytes"):
        read(path)
    assert len(read(path, most=32 << 20)) == 1


def test_members_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(gzip.compress(archive(*((f"{number}", b"") for number in range(101)))))
    with pytest.raises(ValueError, match="more than 100 members"):
        read(path)
    assert len(read(path, count=101)) == 101


def test_what_unpacks_for_ever_ends(tmp_path: Path) -> None:
    """A layer of zeros that are nowhere."""
    path = tmp_path / "a.tar"
    large = tarfile.TarInfo("layer.tar")
    large.size = 1 << 30
    with gzip.open(path, "wb") as packed:
        packed.write(large.tobuf())
        for _block in range(80):
            packed.write(bytes(1 << 20))
    with pytest.raises(ValueError, match="unpacks to more than 100 times its size"):
        for _tar, _member in bounded_tar.members(str(path), MOST, 100):
            pass
