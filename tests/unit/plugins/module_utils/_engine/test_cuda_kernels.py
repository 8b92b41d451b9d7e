# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Libraries are made here with the layout that nvcc writes; sizes and offsets were checked against a vendor's wheel."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("kind", "found", "serves"),
    [
        ("spark", Kernels((121,)), True),
        ("spark", Kernels((120,)), True),  # sm_121 runs sm_120 code
        ("spark", Kernels((100, 110)), False),
        ("spark", Kernels((90,), (90,)), True),  # by way of PTX
        ("spark", Kernels((), (130,)), False),
        ("thor", Kernels((110,)), True),
        ("thor", Kernels((90, 100, 120, 121)), False),
        ("thor", Kernels((90,), (120,)), False),
        ("thor", Kernels(), False),
    ],
)
def test_what_serves_where(kind: str, found: Kernels, serves: bool) -> None:
    message = kernels.problem(kind, "0.33.0", {"_C": found})
    assert (message == "") == serves
    if not serves:
        assert f"a {kind} needs sm_{kernels.DEVICES[kind]}" in message
        assert f"library _C of vLLM 0.33.0, which every model calls, carries kernels for {found.text}" in message


def test_other_hosts_and_cpu_builds_are_let_through() -> None:
    assert kernels.problem("generic", "0.33.0", {}) == ""
    assert kernels.problem("spark", "0.32.0+cpu", {}) == ""
    assert kernels.remarks("generic", "0.33.0", {"_C": Kernels()}) == []
    assert kernels.remarks("spark", "0.32.0+cpu", {"_C": Kernels()}) == []


#: a wheel that was built with one library for other GPUs
WHEEL = {
    "_C": Kernels((80, 121)),
    "_moe_C": Kernels((80, 90)),
    "_flashkda_C": Kernels((90, 100)),
    "_vllm_fa3_C": Kernels((90,)),
    "_flashmla_C": Kernels((90, 100)),
}


def test_a_library_counts_where_the_model_calls_it() -> None:
    assert kernels.problem("spark", "0.33.0", WHEEL) == ""
    said = kernels.problem("spark", "0.33.0", WHEEL, ["experts"])
    assert said.startswith("library _moe_C of vLLM 0.33.0, which a model with experts calls, carries kernels for sm_80")
    assert "_flashkda_C" not in said
    both = kernels.problem("spark", "0.33.0", WHEEL, ["experts", "kda"])
    assert "library _moe_C" in both
    assert "library _flashkda_C" in both
    assert not any(name in both for name in ("_vllm_fa3_C", "_flashmla_C")), "no GPU of these hosts calls them"


def test_a_library_that_the_model_does_not_call_is_named() -> None:
    named = kernels.remarks("spark", "0.33.0", WHEEL, ["experts"])
    assert len(named) == 1
    assert "library _flashkda_C of vLLM 0.33.0" in named[0]
    assert "GLM-5.3-Flash) cannot be served with it" in named[0]
    assert [line.split()[1] for line in kernels.remarks("spark", "0.33.0", WHEEL)] == ["_flashkda_C", "_moe_C"]


def test_vllm_takes_triton_for_kimis_attention_on_a_thor() -> None:
    found = {"_C": Kernels((110,)), "_moe_C": Kernels((110,)), "_flashkda_C": Kernels((90, 100))}
    assert kernels.problem("thor", "0.33.0", found, ["experts", "kda"]) == ""
    assert kernels.remarks("thor", "0.33.0", found) == []


def test_of_a_build_with_other_names_the_fullest_library_counts() -> None:
    found = {"_own_ops": Kernels((80, 121)), "_more": Kernels((90,))}
    assert kernels.problem("spark", "0.33.0", found) == ""
    assert "carries kernels for sm_90, and a thor needs sm_110" in kernels.problem("thor", "1", {"_x": Kernels((90,))})
    assert "carries kernels for none" in kernels.problem("thor", "1", {})
