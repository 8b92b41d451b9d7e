# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside modules on hosts and in tests:
# pylint: disable=ansible-bad-function

"""For which GPUs a library carries CUDA kernels, read from its file alone: no GPU, no CUDA tools, no import.

A wheel that was built without the host's architecture imports, loads the model for ten minutes and then dies with "no
kernel image is available".  nvcc puts kernels into the ELF section C(.nv_fatbin): containers (magic 0xBA55ED50, header
and content size) of entries, each with its kind (1 PTX, 2 machine code), sizes and architecture (C(121) is sm_121).
Only these headers are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

#: compute capability by kind of host, as nvcc numbers it
DEVICES = {"spark": 121, "thor": 110}

SECTION = ".nv_fatbin"
_FATBIN = 0xBA55ED50
_PTX, _MACHINE = 1, 2


class Kernels(NamedTuple):
    """Architectures of machine code and of PTX, which the driver can compile for newer GPUs."""

    machine: tuple[int, ...] = ()
    ptx: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        names = [f"sm_{arch}" for arch in self.machine] + [f"compute_{arch} (PTX)" for arch in self.ptx]
        return ", ".join(names) or "none"

    def serve(self, device: int) -> bool:
        """Machine code runs on its own minor version and later ones of the same major, PTX on everything later."""
        return any(arch // 10 == device // 10 and arch <= device for arch in self.machine) or any(
            arch <= device for arch in self.ptx
        )


def _section(file: BinaryIO) -> tuple[int, int] | None:
    """Place and size of the section in a 64-bit little-endian ELF file."""
    file.seek(0)
    head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", head, 40)
    size, count, names_index = struct.unpack_from("<HHH", head, 58)
    file.seek(table)
    raw = file.read(size * count)
    if size < 64 or len(raw) < size * count or names_index >= count:
        return None
    rows = [struct.unpack_from("<IIQQQQ", raw, index * size) for index in range(count)]
    file.seek(rows[names_index][4])
    names = file.read(rows[names_index][5])
    wanted = SECTION.encode() + b"\0"
    for name, _kind, _flags, _address, offset, length in rows:
        if names[name : name + len(wanted)] == wanted:
            return offset, length
    return None


def _entries(file: BinaryIO, start: int, length: int) -> Iterator[tuple[int, int]]:
    """(kind, architecture) of everything in the section."""
    place, end = start, start + length
    while place + 16 <= end:
        file.seek(place)
        magic, _version, header, content = struct.unpack("<IHHQ", file.read(16))
        if magic != _FATBIN:
            place += 8  # containers are aligned, what lies between them is padding
            continue
        inner, place = place + header, place + header + content
        while inner + 32 <= min(place, end):
            file.seek(inner)
            kind, _version, size, body = struct.unpack("<HHIQ", file.read(16))
            file.seek(inner + 28)
            (arch,) = struct.unpack("<I", file.read(4))
            yield kind, arch
            if size + body <= 0:
                return
            inner += size + body


def of_file(path: str) -> Kernels:
    """Kernels of one library; none where it holds no CUDA code or is no ELF file."""
    with open(path, "rb") as file:
        found = _section(file)
        entries = set(_entries(file, *found)) if found else set()
    return Kernels(
        tuple(sorted(arch for kind, arch in entries if kind == _MACHINE)),
        tuple(sorted(arch for kind, arch in entries if kind == _PTX)),
    )


def libraries(folder: str) -> Iterator[str]:
    for place, _folders, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names if name.endswith(".so"))


def of_package(folder: str) -> dict[str, Kernels]:
    """Kernels of each library of a package that has some, by its name up to the first dot."""
    found = ((os.path.basename(path).partition(".")[0], of_file(path)) for path in sorted(libraries(folder)))
    return {name: kernels for name, kernels in found if kernels.machine or kernels.ptx}


def for_cpu(version: str) -> bool:
    """Whether a build calls itself one for CPUs."""
    return "cpu" in version.partition("+")[2]
