# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make vLLM and Ray small enough to be carried: without what a text model on one kind of GPU never loads.

GPU code for other architectures is overwritten with zeros in place, so a library keeps its size and layout and
compresses to what is left. nvcc keeps code in ELF sections named ``nv_fatbin``: containers (magic 0xBA55ED50) of
entries, each with its kind (1 PTX, 2 machine code) and architecture.
"""

from __future__ import annotations

import fnmatch
import mmap
import os
import shutil
import struct
from collections.abc import Iterator

MAGIC = 0xBA55ED50
PTX, MACHINE = 1, 2

#: below an unpacked wheel, by distribution
UNWANTED = {
    "vllm": (
        *("vllm/vllm_flash_attn/_vllm_fa2_C*", "vllm/vllm-rs", "vllm/third_party/fmha_sm100"),
        "vllm/third_party/deep_gemm",
    ),
    "ray": ("ray/jars", "ray/rllib", "ray/include", "ray/cpp", "ray/tune", "*.map"),
}


def remove_unwanted(tree: str, distribution: str) -> None:
    """Delete what matches; a pattern without a slash counts at any depth."""
    for parent, folders, names in os.walk(tree):
        for name in [*folders, *names]:
            path = os.path.join(parent, name)
            inside = os.path.relpath(path, tree)
            for pattern in UNWANTED.get(distribution, ()):
                if fnmatch.fnmatch(inside if "/" in pattern else name, pattern):
                    if os.path.isdir(path):
                        shutil.rmtree(path)
                        folders.remove(name)
                    else:
                        os.unlink(path)
                    break


def sections(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Place and size of the sections with GPU code in a 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    rows = [struct.unpack_from("<IIQQQQ", data, table + index * size) for index in range(count)]
    strings = rows[names][4]
    for name, _kind, _flags, _address, offset, length in rows:
        title = data[strings + name : data.find(b"\0", strings + name)]
        if b"nv_fatbin" in title or title == b"__nv_relfatbin":
            yield offset, length


def entries(data: mmap.mmap, start: int, length: int) -> Iterator[list[tuple[int, int, int, int]]]:
    """The entries of each container: kind, architecture, place and size of the code."""
    place, end = start, start + length
    while place + 16 <= end:
        magic, _version, header, content = struct.unpack_from("<IHHQ", data, place)
        if magic != MAGIC:
            place += 8  # containers are aligned, what lies between them is padding
            continue
        inner, last, found = place + header, place + header + content, []
        while inner + 32 <= last:
            kind, _version, head, size = struct.unpack_from("<HHIQ", data, inner)
            (arch,) = struct.unpack_from("<I", data, inner + 28)
            if not head:
                break
            found.append((kind, arch, inner + head, size))
            inner += head + size
        yield found
        place = (last + 7) // 8 * 8


def keep_architecture(path: str, arch: int) -> int:
    """Zero machine code for other architectures, and PTX where this one has machine code; the bytes zeroed."""
    zeroed = 0
    if os.path.getsize(path) < 64:
        return 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for start, length in sections(data):
            for container in entries(data, start, length):
                served = any(kind == MACHINE and one == arch for kind, one, _place, _size in container)
                for kind, one, place, size in container:
                    if (kind == MACHINE and one != arch) or (kind == PTX and served):
                        data[place : place + size] = bytes(size)
                        zeroed += size
    return zeroed


def trim(tree: str, distribution: str, arch: int) -> int:
    """All of it for one unpacked wheel; the bytes of GPU code that went."""
    remove_unwanted(tree, distribution)
    zeroed = 0
    for parent, _folders, names in os.walk(tree):
        for name in names:
            if name.endswith(".so"):
                zeroed += keep_architecture(os.path.join(parent, name), arch)
    return zeroed
