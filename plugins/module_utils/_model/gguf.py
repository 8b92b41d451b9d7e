# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model in GGUF, llama.cpp's form, read from the headers of its files alone.

A header is: magic, version, counts, fields (name, type, value), tensors (name, shape, type, offset). The tensors' bytes
follow. A large model comes as parts ``NAME-00001-of-00003.gguf``; the first one has the fields.

A file may come from anywhere, so nothing is made by a number that it says before that many bytes are there.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import fnmatch
import os
import re
import struct
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

#: the pattern that means the one model in GGUF of a repository or folder, whatever else is there
ANY = "*.gguf"
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
#: GGUF's types of a value as struct reads them
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
#: GGUF's types of a tensor: name, numbers in a block, bytes of a block
TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

#: parts of one model; the largest known have some 50
_PARTS_LIMIT = 1000
#: what a header may hold; the largest vocabularies take some 20 MB
_HEADER_LIMIT = 128 * 2**20
_TEXT_LIMIT = 2**20
_NAME_LIMIT = 2**16 - 1
_TENSORS_LIMIT, _FIELDS_LIMIT, _ITEMS_LIMIT = 2**17, 2**14, 2**22
#: layers that llama.cpp takes
_LAYERS_LIMIT = 512
#: a list longer than this is a vocabulary or its like: its length is kept alone
_KEPT_ITEMS = _LAYERS_LIMIT

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf\Z")
_AGAIN = "Fetch the model again."


class Length(NamedTuple):
    """In place of a long list: how many items it has."""

    items: int


class Tensor(NamedTuple):
    """A tensor: numbers along each dimension (the row's first), GGUF's name of its type, and its bytes."""

    shape: tuple[int, ...]
    kind: str
    size: int


class Gguf(NamedTuple):
    """Fields and tensors of a model, of all its parts together."""

    fields: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    paths: tuple[str, ...]

    @property
    def architecture(self) -> str:
        return str(self.fields["general.architecture"])

    def of(self, name: str, default: Any = None) -> Any:
        """A field that the architecture's name stands before, such as ``block_count``."""
        return self.fields.get(f"{self.architecture}.{name}", default)

    @property
    def layers(self) -> int:
        return int(self.of("block_count"))

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size for tensor in self.tensors.values())

    def layer_bytes(self) -> list[int]:
        """Bytes of each layer."""
        sizes = [0] * self.layers
        for name, tensor in self.tensors.items():
            number = tensor_layer(name)
            if number is not None:
                sizes[number] += tensor.size
        return sizes


def tensor_layer(name: str) -> int | None:
    """The layer of a tensor, ``blk.N.…``; nothing for what stands outside of the layers."""
    found = re.match(r"blk\.(\d{1,9})\.", name)
    return int(found.group(1)) if found else None


def part_names(name: str) -> list[str]:
    """The names of all parts of the model that a file is part of; the name itself where it has no number."""
    match = _PART.search(name)
    if not match:
        return [name]
    count = int(match.group(2))
    if not 1 <= int(match.group(1)) <= count <= _PARTS_LIMIT:
        limit = f"; more than {_PARTS_LIMIT} parts are not read" if count > _PARTS_LIMIT else ""
        raise SizingError("model_path", name, f"is numbered {match.group(1)} of {count}{limit}", "Correct the name.")
    return [f"{name[: match.start()]}-{number:05d}-of-{count:05d}.gguf" for number in range(1, count + 1)]


def models_in(names: Iterable[str]) -> list[str]:
    """Of file names the ones that stand for a model: a file without a number, or the first name of its parts.

    The first name is given also where that part itself lacks. A projector of images (``mmproj``) is no model.
    """
    found = set()
    for name in names:
        if name.endswith(".gguf") and "mmproj" not in name.rpartition("/")[2]:
            found.add(part_names(name)[0])
    return sorted(found)


def fits(name: str, pattern: str) -> bool:
    """Whether a shell pattern means the model of this name, by any of its parts."""
    return any(fnmatch.fnmatchcase(part, pattern) for part in part_names(name))


def model_file(path: str) -> str:
    """The file that llama.cpp is given: the path itself, or the one model in a folder. Empty where none is there."""
    if not os.path.isdir(path):
        return path if path.endswith(".gguf") else ""
    found = models_in(os.listdir(path))
    if len(found) > 1:
        raise SizingError(
            "model_path", path, f"holds {len(found)} models: {', '.join(found)}", "Name one of these files."
        )
    return os.path.join(path, found[0]) if found else ""


class _Header(NamedTuple):
    fields: dict[str, Any]
    tensors: dict[str, Tensor]


class _Reader:
    """Values out of a header, one after the other, little-endian; never past the file or the limits."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self.stream, self.path = stream, path
        self.size = os.fstat(stream.fileno()).st_size
        self.at = self.items = 0

    def wrong(self, problem: str, fix: str = _AGAIN) -> SizingError:
        return SizingError("model_path", self.path, problem, fix)

    def _room(self, length: int) -> None:
        if self.at + length > self.size:
            raise self.wrong("is cut short inside its header")
        if self.at + length > _HEADER_LIMIT:
            raise self.wrong(f"has a header of more than {_HEADER_LIMIT} bytes", "Choose another file of the model.")

    def take(self, length: int) -> bytes:
        self._room(length)
        self.at += length
        return self.stream.read(length)

    def skip(self, length: int) -> None:
        if length < 2**16:
            self.take(length)  # cheaper than to move in the file
            return
        self._room(length)
        self.at += length
        self.stream.seek(self.at)

    def scalar(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0]

    def count(self, what: str, limit: int) -> int:
        number = self.scalar("Q")
        if number > limit:
            raise self.wrong(f"says that it has {number} {what}; more than {limit} are not read")
        return int(number)

    def text(self, what: str, limit: int = _NAME_LIMIT) -> str:
        length = self.count(f"bytes in {what}", limit)
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise self.wrong(f"has {what} that is not UTF-8") from None

    def value(self, name: str) -> Any:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.text(f"the text of {name}", _TEXT_LIMIT)
        if kind == _ARRAY:
            return self._array(name)
        return self.scalar(self._letter(kind, name))

    def _letter(self, kind: int, name: str) -> str:
        if kind not in _SCALARS:
            raise self.wrong(f"has {name} in the type {kind}, which GGUF does not know")
        return _SCALARS[kind]

    def _array(self, name: str) -> list[Any] | Length:
        kind, items = self.scalar("I"), self.count(f"items in {name}", _ITEMS_LIMIT)
        self.items += items
        if self.items > 2 * _ITEMS_LIMIT:
            raise self.wrong(f"has more than {2 * _ITEMS_LIMIT} items in its lists")
        if kind == _STRING:
            # a token may be any bytes, and its text is not needed
            for _number in range(items):
                self.skip(self.count(f"bytes in an item of {name}", _TEXT_LIMIT))
            return Length(items)
        letter = self._letter(kind, name)
        if items > _KEPT_ITEMS:
            self.skip(items * struct.calcsize(f"<{letter}"))
            return Length(items)
        return [self.scalar(letter) for _number in range(items)]

    def tensor(self, name: str) -> tuple[Tensor, int]:
        """A tensor and where its bytes begin behind the header."""
        dimensions = self.scalar("I")
        if dimensions > 4:
            raise self.wrong(f"has tensor {name} with {dimensions} dimensions; GGUF has 4 at most")
        shape = tuple(self.scalar("Q") for _dimension in range(dimensions))
        number, offset = self.scalar("I"), self.scalar("Q")
        if number not in TENSOR_TYPES:
            raise self.wrong(
                f"has tensor {name} in the type {number}, which is not known here",
                "Choose a file of the model in another quantization.",
            )
        kind, block, size = TENSOR_TYPES[number]
        numbers = 1
        for length in shape:
            numbers *= length
        if numbers <= 0 or (shape and shape[0] % block):
            raise self.wrong(f"has tensor {name} with the shape {list(shape)}, which {kind} cannot have")
        return Tensor(shape, kind, numbers // block * size), offset


def _read_header(path: str) -> _Header:
    """One file. Raises SizingError where it is cut short or no GGUF."""
    with open(path, "rb", buffering=2**18) as stream:
        reader = _Reader(stream, path)
        if reader.size < 24 or reader.take(4) != _MAGIC:
            raise reader.wrong("is not a whole GGUF file")
        version = reader.scalar("I")
        if version not in _VERSIONS:
            big = version and not version & 0xFFFF
            problem = "is GGUF for big-endian machines" if big else f"is GGUF of version {version}"
            raise reader.wrong(problem, "Choose a file in GGUF 3, little-endian.")
        count, fields = reader.count("tensors", _TENSORS_LIMIT), reader.count("fields", _FIELDS_LIMIT)
        values: dict[str, Any] = {}
        for _number in range(fields):
            name = reader.text("the name of a field")
            if name in values:
                raise reader.wrong(f"has the field {name} twice")
            values[name] = reader.value(name)
        tensors: dict[str, Tensor] = {}
        ends = last = 0
        step = values.get("general.alignment", 32)
        if not isinstance(step, int) or step < 1 or step & (step - 1) or step > 2**20:
            raise reader.wrong(f"has general.alignment {step}, which is no power of two")
        for _number in range(count):
            name = reader.text("the name of a tensor")
            if name in tensors:
                raise reader.wrong(f"has the tensor {name} twice")
            tensors[name], offset = reader.tensor(name)
            # llama.cpp takes them without gaps alone
            if offset != ends:
                raise reader.wrong(f"has tensor {name} at {offset} and should have it at {ends}")
            ends = -(-(offset + tensors[name].size) // step) * step
            last = offset + tensors[name].size
        needed = -(-reader.at // step) * step + last if tensors else reader.at
        if needed > reader.size:
            raise reader.wrong(
                f"has {reader.size} bytes and should have {needed}",
                "The file was not copied whole: fetch the model again.",
            )
        return _Header(values, tensors)


def read_gguf(path: str) -> Gguf:
    """The model that a file holds or, as the first of several, begins. Raises SizingError naming file, field, fix."""
    folder, name = os.path.split(path)
    names = part_names(name)
    if names[0] != name:
        raise SizingError("model_path", path, "is not the first of its parts", f"Name {names[0]}.")
    lost = [part for part in names if not os.path.isfile(os.path.join(folder, part))]
    if lost:
        raise SizingError("model_path", path, f"lacks {len(lost)} of {len(names)} files, such as {lost[0]}", _AGAIN)
    paths = tuple(os.path.join(folder, part) for part in names)
    fields: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    for number, part in enumerate(paths):
        header = _read_header(part)
        fields = fields or header.fields
        _check_part(part, header, number, len(paths))
        twice = sorted(tensors.keys() & header.tensors.keys())
        if twice:
            raise SizingError("model_path", part, f"has {twice[0]} that another part has as well", _AGAIN)
        tensors.update(header.tensors)
    told = fields.get("split.tensors.count", len(tensors))
    if told != len(tensors):
        raise SizingError("model_path", path, f"has {len(tensors)} tensors in all parts and should have {told}", _AGAIN)
    model = Gguf(fields, tensors, paths)
    _check_layers(model)
    return model


def _check_part(path: str, header: _Header, number: int, count: int) -> None:
    """A part says which one it is; a name that says otherwise is another file's."""
    told = (header.fields.get("split.no", 0), header.fields.get("split.count", 0) or 1)
    if told != (number, count):
        said = f"{told[0]} of {told[1]}"
        raise SizingError(
            "model_path", path, f"says that it is part {said} (from 0), by its name {number} of {count}", _AGAIN
        )


def _check_layers(model: Gguf) -> None:
    path = model.paths[0]
    if not isinstance(model.fields.get("general.architecture"), str):
        raise SizingError("model_path", path, "has no field general.architecture", "Choose a file that is a model.")
    layers = model.of("block_count")
    if not isinstance(layers, int) or not 1 <= layers <= _LAYERS_LIMIT:
        name = f"{model.architecture}.block_count"
        raise SizingError(
            "model_path", path, f"has {name} {layers!r} and not 1 to {_LAYERS_LIMIT}", "Choose a file that is a model."
        )
    held = {number for number in map(tensor_layer, model.tensors) if number is not None}
    wrong = sorted(held ^ set(range(layers)))
    if wrong:
        problem = "has no tensor of" if wrong[0] < layers else "has a tensor of"
        raise SizingError("model_path", path, f"has {layers} layers and {problem} layer {wrong[0]}", _AGAIN)
