# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Libraries are made here with the layout that nvcc writes; sizes and offsets were checked against a vendor's wheel."""

from __future__ import annotations

import struct
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import cuda_kernels as kernels
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.cuda_kernels import Kernels

PTX, MACHINE = 1, 2


def entry(kind: int, arch: int, body: bytes = b"\x7fELF" * 10) -> bytes:
    return struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(body), 0, 0, 0, 0, arch) + b"\0" * 32 + body


def container(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(content)) + content


def library(path: Path, fatbin: bytes | None) -> Path:
    """An ELF file with the section, and the two that every library has."""
    names = b"\0.text\0.nv_fatbin\0.shstrtab\0"
    text = b"\x90" * 24
    parts = [text, fatbin or b"", names]
    places = [64]
    for part in parts:
        places.append(places[-1] + len(part))
    rows = [(0, 0, 0)]
    rows.append((names.index(b".text"), places[0], len(text)))
    if fatbin is not None:
        rows.append((names.index(b".nv_fatbin"), places[1], len(fatbin)))
    rows.append((names.index(b".shstrtab"), places[2], len(names)))
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 183, 1, 0, 0, places[-1], 0, 64, 0, 0, 64, len(rows), len(rows) - 1
    )
    table = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 0, 0) for name, at, size in rows)
    path.write_bytes(head + b"".join(parts) + table)
    return path


def test_machine_code_and_ptx_are_told_apart(tmp_path: Path) -> None:
    fatbin = container(entry(MACHINE, 90), entry(MACHINE, 121), entry(PTX, 120)) + b"\0" * 8
    fatbin += container(entry(MACHINE, 110, b""), entry(MACHINE, 90))
    found = kernels.of_file(str(library(tmp_path / "a.so", fatbin)))
    assert found == Kernels((90, 110, 121), (120,))
    assert found.text == "sm_90, sm_110, sm_121, compute_120 (PTX)"


def test_what_holds_none(tmp_path: Path) -> None:
    assert kernels.of_file(str(library(tmp_path / "cpu.so", None))) == Kernels()
    (tmp_path / "text.so").write_text("INPUT(libreal.so)\n")
    assert kernels.of_file(str(tmp_path / "text.so")) == Kernels()
    (tmp_path / "short.so").write_bytes(b"\x7fELF\x02\x01")
    assert kernels.of_file(str(tmp_path / "short.so")) == Kernels()
    torn = library(tmp_path / "torn.so", container(entry(MACHINE, 121)))
    torn.write_bytes(torn.read_bytes()[:150])
    assert kernels.of_file(str(torn)) == Kernels()


def test_a_package_is_read_library_by_library(tmp_path: Path) -> None:
    library(tmp_path / "_C.abi3.so", container(entry(MACHINE, 80), entry(MACHINE, 120)))
    (tmp_path / "sub").mkdir()
    library(tmp_path / "sub" / "_moe_C.abi3.so", container(entry(MACHINE, 90)))
    library(tmp_path / "other.so", None)
    assert kernels.of_package(str(tmp_path)) == {"_C": Kernels((80, 120), ()), "_moe_C": Kernels((90,), ())}
    assert kernels.of_package(str(tmp_path / "absent")) == {}
