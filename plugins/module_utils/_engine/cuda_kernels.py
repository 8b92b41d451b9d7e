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
from collections.abc import Collection, Iterator, Mapping
from typing import BinaryIO, NamedTuple

#: compute capability by kind of host, as nvcc numbers it
DEVICES = {"spark": 121, "thor": 110}

#: who calls a library of vLLM 0.20 to 0.33, by its name up to the first dot.  Others have a substitute on these GPUs
#: or are for other ones (FlashMLA, FlashAttention 3), and vLLM asks for the GPU before it calls them.
EVERY, EXPERTS, KDA = "every", "experts", "kda"
_WORDS = {
    EVERY: "every model",
    EXPERTS: "a model with experts",
    KDA: "a model with Kimi's linear attention (Kimi, GLM-5.3-Flash)",
}
CALLERS = {
    "_C": EVERY,
    "_C_stable_libtorch": EVERY,
    "_moe_C": EXPERTS,
    "_moe_C_stable_libtorch": EXPERTS,
    "_flashkda_C": KDA,
}
#: major versions of GPUs on which vLLM calls a library; on others it takes Triton
CALLED_ON = {"_flashkda_C": (9, 10, 12)}

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


def _called(name: str, device: int, calls: Collection[str]) -> bool:
    caller = CALLERS.get(name)
    return caller == EVERY or (caller in calls and device // 10 in CALLED_ON.get(name, (device // 10,)))


def problem(kind: str, version: str, found: Mapping[str, Kernels], calls: Collection[str] = ()) -> str:
    """Why this build cannot serve on a host of this kind, with the fix; empty if it can, or if it is a CPU build.

    ``found`` are its libraries, ``calls`` says what the model calls beside what every model does (EXPERTS, KDA).  Of a
    build that has none of the libraries that every model calls, the fullest one is judged.
    """
    device = DEVICES.get(kind)
    if device is None or for_cpu(version):
        return ""
    if not any(CALLERS.get(name) == EVERY for name in found):
        fullest = max(found.values(), key=lambda kernels: len(kernels.machine) + len(kernels.ptx), default=Kernels())
        lacking = [] if fullest.serve(device) else [f"vLLM {version} carries kernels for {fullest.text}"]
    else:
        lacking = [
            f"library {name} of vLLM {version}, which {_WORDS[CALLERS[name]]} calls, carries kernels for {kernels.text}"
            for name, kernels in sorted(found.items())
            if _called(name, device, calls) and not kernels.serve(device)
        ]
    return f"{'; '.join(lacking)}, and a {kind} needs sm_{device}" if lacking else ""


def remarks(kind: str, version: str, found: Mapping[str, Kernels], calls: Collection[str] = ()) -> list[str]:
    """Libraries that lack this host's GPU, and that the model does not call: what could not be served instead."""
    device = DEVICES.get(kind)
    if device is None or for_cpu(version):
        return []
    return [
        f"library {name} of vLLM {version} carries kernels for {kernels.text}, not for sm_{device} of a {kind}: "
        f"{_WORDS[CALLERS[name]]} cannot be served with it; the model that is served does not call it"
        for name, kernels in sorted(found.items())
        if name in CALLERS
        and _called(name, device, (EXPERTS, KDA))
        and not _called(name, device, calls)
        and not kernels.serve(device)
    ]
