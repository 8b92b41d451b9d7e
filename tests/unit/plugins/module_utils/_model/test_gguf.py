# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Headers of GGUF files: whole, in parts, cut short, and made to harm whoever reads them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.gguf import Length, Tensor, read_gguf
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.gguf_files import (
    model_fields,
    model_tensors,
    small_model,
    smollm2,
    split_model,
    tensor,
    text,
    value,
    write_gguf,
)


def test_the_header_of_a_published_model(tmp_path: Path) -> None:
    model = read_gguf(str(smollm2(tmp_path / "smollm2.gguf")))
    assert (model.architecture, model.layers, len(model.tensors)) == ("llama", 30, 272)
    # llama.cpp says of this file: 92.10 MiB; f32 61, q4_1 210, q8_0 1 tensors
    assert f"{model.size / 2**20:.2f}" == "92.10"
    kinds = [tensor.kind for tensor in model.tensors.values()]
    assert {kind: kinds.count(kind) for kind in kinds} == {"F32": 61, "Q4_1": 210, "Q8_0": 1}
    assert model.of("attention.head_count_kv") == 3
    assert model.of("no.such.field", 7) == 7
    assert model.tensors["token_embd.weight"] == Tensor((576, 49152), "Q8_0", 49152 * 576 // 32 * 34)


def test_a_refusal_commands_no_terminal(tmp_path: Path) -> None:
    fields = {**model_fields(1), "general.architecture": "x\x1b]52;c;ZXZpbA==\x07\x9b?1049h"}
    with pytest.raises(SizingError) as caught:
        read_gguf(str(write_gguf(tmp_path / "m.gguf", fields, model_tensors(1))))
    assert printable(str(caught.value), lines=True) == str(caught.value)


def test_bytes_of_each_layer(tmp_path: Path) -> None:
    model = read_gguf(str(small_model(tmp_path / "m.gguf")))
    layer = (64 * 64 + 64 * 256) // 32 * 20
    assert model.layer_bytes() == [layer] * 4
    assert model.size == 4 * layer + 64 * 512 // 32 * 20 + 64 * 4


def test_parts_are_one_model(tmp_path: Path) -> None:
    parts = split_model(tmp_path)
    model = read_gguf(str(parts[0]))
    assert model.paths == tuple(str(part) for part in parts)
    alone = read_gguf(str(small_model(tmp_path / "alone.gguf")))
    assert (model.tensors, model.layer_bytes()) == (alone.tensors, alone.layer_bytes())


def test_long_lists_are_counted_and_short_ones_kept(tmp_path: Path) -> None:
    fields = {
        **model_fields(1),
        "a.words": ["x", "yz"],
        "a.heads": [4, 0, 4],
        "a.none": [],
        "a.scores": [1.0] * 600,
        "a.share": 0.5,
        "a.yes": True,
        "a.text": "ä",
        # a token may be half a letter
        "a.bytes": [b"\xff"],
    }
    found = read_gguf(str(write_gguf(tmp_path / "m.gguf", fields, model_tensors(1)))).fields
    assert found["a.words"] == Length(2)
    assert found["a.heads"] == [4, 0, 4]
    assert found["a.none"] == []
    assert found["a.scores"] == Length(600)
    assert (found["a.share"], found["a.yes"], found["a.text"]) == (0.5, True, "ä")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("m.gguf", ["m.gguf"]),
        ("m-00002-of-00003.gguf", [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]),
        ("Q4/m-00001-of-00001.gguf", ["Q4/m-00001-of-00001.gguf"]),
        ("m-00001-of-00002.gguf.bak", ["m-00001-of-00002.gguf.bak"]),
    ],
)
def test_names_of_parts(name: str, parts: list[str]) -> None:
    assert gguf.part_names(name) == parts


def test_a_name_that_numbers_nothing() -> None:
    with pytest.raises(SizingError, match=r"m-00004-of-00003.gguf.*numbered 00004 of 3"):
        gguf.part_names("m-00004-of-00003.gguf")
    # each of them would be a name that somebody has to keep
    with pytest.raises(SizingError, match=r"numbered 00001 of 99999; more than 1000 parts are not read"):
        gguf.models_in(["m-00001-of-99999.gguf"])


def test_models_among_names() -> None:
    names = ["a.gguf", "b-00002-of-00002.gguf", "mmproj-F16.gguf", "Q4/m.mmproj-Q8_0.gguf", "config.json", "Q4/c.gguf"]
    assert gguf.models_in(names) == ["Q4/c.gguf", "a.gguf", "b-00001-of-00002.gguf"]


def header(count: int = 1, fields: int = 1, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, count, fields)


ARCHITECTURE = text("general.architecture") + value("llama")
#: what is in a file, and what is said of it
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not a whole GGUF file"),
    "another form": (b"PK\3\4" + b"\0" * 100, "is not a whole GGUF file"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 1, 1), "big-endian"),
    "first version": (header(version=1) + b"\0" * 50, "GGUF of version 1"),
    "many fields": (header(fields=2**63), "9223372036854775808 fields"),
    "many tensors": (header(count=2**40), "1099511627776 tensors"),
    "long name": (header() + struct.pack("<Q", 2**62), "bytes in the name of a field"),
    "long text": (header() + text("a") + struct.pack("<IQ", 8, 2**62), "bytes in the text of a"),
    "text behind the end": (header() + text("a") + struct.pack("<IQ", 8, 1000), "is cut short inside its header"),
    "text in another code": (header() + text("a") + value(b"\xff"), "the text of a that is not UTF-8"),
    "long list": (header() + text("a") + struct.pack("<IIQ", 9, 4, 2**60), "items in a"),
    "list behind the end": (header() + text("a") + struct.pack("<IIQ", 9, 10, 2**20), "is cut short inside"),
    "lists in a list": (header() + text("a") + struct.pack("<IIQ", 9, 9, 2), "a in the type 9"),
    "texts behind the end": (header() + text("a") + struct.pack("<IIQ", 9, 8, 2**20), "is cut short inside"),
    "unknown type": (header() + text("a") + struct.pack("<I", 77), "a in the type 77"),
    "field twice": (header(fields=2) + (text("a") + value(1)) * 2, "the field a twice"),
    "alignment": (header() + text("general.alignment") + value(24), "general.alignment 24"),
    "no alignment": (header() + text("general.alignment") + value(0), "general.alignment 0"),
    "dimensions": (header() + ARCHITECTURE + text("t") + struct.pack("<I", 2**31), "with 2147483648 dimensions"),
    "unknown quantization": (header() + ARCHITECTURE + tensor("t", (32,), 99, 0), "t in the type 99"),
    "half a block": (header() + ARCHITECTURE + tensor("t", (33, 2), 3, 0), r"t with the shape \[33, 2\]"),
    "no numbers": (header() + ARCHITECTURE + tensor("t", (0, 2), 0, 0), r"t with the shape \[0, 2\]"),
    "huge tensor": (header() + ARCHITECTURE + tensor("t", (2**62, 2**62), 0, 0), "should have"),
    "tensor elsewhere": (header() + ARCHITECTURE + tensor("t", (32,), 0, 2**50), "and should have it at 0"),
    "tensor twice": (
        header(count=2) + ARCHITECTURE + tensor("t", (8,), 0, 0) + tensor("t", (8,), 0, 32),
        "the tensor t twice",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused(tmp_path: Path, case: str) -> None:
    data, problem = HOSTILE[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(SizingError, match=problem) as refused:
        read_gguf(str(path))
    assert refused.value.value == str(path)


def test_every_cut_is_refused(tmp_path: Path) -> None:
    path = small_model(tmp_path / "m.gguf", layers=1)
    whole = path.stat().st_size
    for size in (*range(700), whole - 1):
        small_model(path, layers=1)
        os.truncate(path, size)
        with pytest.raises(SizingError):
            read_gguf(str(path))


def test_a_long_header_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "_HEADER_LIMIT", 500)
    path = tmp_path / "m.gguf"
    small_model(path, general__description="x" * 1000)
    with pytest.raises(SizingError, match="a header of more than 500 bytes"):
        read_gguf(str(path))


def test_items_of_all_lists_are_limited_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "_ITEMS_LIMIT", 4)
    path = tmp_path / "m.gguf"
    small_model(path, a=[1] * 4, b=[1] * 4, c=[1])
    with pytest.raises(SizingError, match="more than 8 items"):
        read_gguf(str(path))


def spoil_first(parts: list[Path]) -> Path:
    parts[0].unlink()
    return parts[0]


def spoil_second(parts: list[Path]) -> Path:
    parts[1].unlink()
    return parts[0]


def begin_with_second(parts: list[Path]) -> Path:
    return parts[1]


def swap(parts: list[Path]) -> Path:
    parts[1].write_bytes(parts[0].read_bytes())
    return parts[0]


def same_tensors(parts: list[Path]) -> Path:
    write_gguf(parts[1], {"split.no": 1, "split.count": 2}, model_tensors(1))
    return parts[0]


def fewer_tensors(parts: list[Path]) -> Path:
    write_gguf(parts[1], {"split.no": 1, "split.count": 2}, model_tensors(3, 2))
    return parts[0]


def renamed(parts: list[Path]) -> Path:
    return parts[0].rename(parts[0].with_name("whole.gguf"))


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (spoil_first, "lacks 1 of 2 files, such as m-00001-of-00002.gguf"),
        (spoil_second, "lacks 1 of 2 files, such as m-00002-of-00002.gguf"),
        (begin_with_second, "is not the first of its parts. Name m-00001-of-00002.gguf"),
        (swap, "says that it is part 0 of 2 "),
        (same_tensors, "that another part has as well"),
        (fewer_tensors, "tensors in all parts and should have 10"),
        (renamed, "says that it is part 0 of 2 .*by its name 0 of 1"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path: Path, spoil: Callable[[list[Path]], Path], problem: str) -> None:
    with pytest.raises(SizingError, match=problem):
        read_gguf(str(spoil(split_model(tmp_path))))


@pytest.mark.parametrize(
    ("fields", "layers", "problem"),
    [
        ({}, 1, "has no field general.architecture"),
        ({"general.architecture": "clip"}, 1, "clip.block_count None"),
        (model_fields(0), 0, "llama.block_count 0"),
        (model_fields(513), 1, "llama.block_count 513"),
        (model_fields(3), 2, "has 3 layers and has no tensor of layer 2"),
        (model_fields(1), 2, "has 1 layers and has a tensor of layer 1"),
    ],
)
def test_files_that_are_no_model(tmp_path: Path, fields: dict[str, object], layers: int, problem: str) -> None:
    with pytest.raises(SizingError, match=problem):
        read_gguf(str(write_gguf(tmp_path / "m.gguf", fields, model_tensors(layers))))
