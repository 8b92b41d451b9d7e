# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model folder on disk: its config.json and the sizes of its tensors, read from headers alone."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterable
from typing import Any, BinaryIO

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

#: bytes of a header; those of checkpoints with tens of thousands of tensors have less than 10 MB; 58 MB take seconds
_SAFETENSORS_HEADER_LIMIT = 25_000_000
#: bytes of a file that describes the model, at most
_MAPPING_LIMIT = 64 * 1024 * 1024
#: files that a model is said to be in, at most; the largest known have some 200
_PARTS_LIMIT = 10_000
_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.safetensors")
#: the index of a checkpoint, and that of Mistral's own form
INDEXES = ("model.safetensors.index.json", "consolidated.safetensors.index.json")

#: what else weights come in; the engine or the plan cannot read them
_OTHER_FORMS = frozenset({".gguf", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack", ".tflite"})
SAFETENSORS_FIX = "Choose the original or a quantized checkpoint in safetensors."

#: a model whose shape is said in Mistral's own form alone: what is wrong, and the fix
MISTRAL_ALONE = (
    "has params.json and no config.json: vLLM reads Mistral's own form, the plan does not",
    "Put the model's config.json beside it, as Hugging Face's form of the model has it.",
)


def weight_form(names: Iterable[str]) -> tuple[list[str], str]:
    """Which of a model's files are its weights in safetensors, and the name that their index has.

    Mistral's own form (``consolidated*``) counts where it is the only one: beside another it holds the same once more.
    """
    found = sorted(name for name in names if "/" not in name and name.endswith(".safetensors"))
    usual = [name for name in found if not name.startswith("consolidated")]
    return (usual, INDEXES[0]) if usual or not found else (found, INDEXES[1])


def other_forms(names: Iterable[str]) -> list[str]:
    """Endings of files that hold weights in a form that cannot be planned; empty beside safetensors."""
    names = list(names)
    if weight_form(names)[0]:
        return []
    return sorted({os.path.splitext(name)[1].lower() for name in names} & _OTHER_FORMS)


def _open_plain(path: str) -> BinaryIO:
    """A device acts when it is opened, and nobody may ever write into a pipe."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise SizingError("model_path", path, "is not a plain file", "Fetch the model again.")
    return open(path, "rb")


def read_safetensors_header(path: str) -> dict[str, int]:
    """Tensor name -> bytes of one safetensors file, from its header alone; refuses a file cut short."""
    size = os.path.getsize(path)
    with _open_plain(path) as stream:
        raw = stream.read(8)
        if len(raw) < 8:
            raise SizingError("model_path", path, "is not a whole safetensors file", "Fetch the model again.")
        length = struct.unpack("<Q", raw)[0]
        if length > size - 8:
            raise SizingError("model_path", path, "is cut short inside its header", "Fetch the model again.")
        if length > _SAFETENSORS_HEADER_LIMIT:
            what = f"has a header of {length} bytes; more than {_SAFETENSORS_HEADER_LIMIT} are not read"
            raise SizingError("model_path", path, what, "Fetch the model again, or choose another.")
        try:
            header = foreign.parse(stream.read(length), most=_SAFETENSORS_HEADER_LIMIT)
        except ValueError:
            raise SizingError("model_path", path, "has an unreadable header", "Fetch the model again.") from None
    tensors: dict[str, int] = {}
    end = 0
    try:
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, past = map(foreign.whole, entry["data_offsets"])
            # less than nothing would make the model smaller than it is
            tensors[name] = foreign.whole(past - first)
            end = max(end, past)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise SizingError("model_path", path, "has an unreadable header", "Fetch the model again.") from None
    if 8 + length + end > size:
        raise SizingError(
            "model_path",
            path,
            f"has {size} bytes and should have {8 + length + end}",
            "The file was not copied whole: fetch the model again.",
        )
    return tensors


def _read_mapping(path: str) -> dict[str, Any]:
    """What a JSON file of the model holds; a file that was cut short is an error that says to fetch it again."""
    try:
        with _open_plain(path) as stream:
            text = stream.read(_MAPPING_LIMIT + 1).decode("utf-8")
        data = foreign.parse(text, most=_MAPPING_LIMIT, infinite=True)
    except SizingError:
        raise
    except ValueError as error:
        raise SizingError("model_path", path, f"is not JSON ({error})", "Fetch the model again.") from None
    if not isinstance(data, dict):
        raise SizingError("model_path", path, "does not hold a mapping", "Fetch the model again.")
    return data


def read_config(path: str) -> dict[str, Any]:
    """The config.json of a model folder, with the quantization that ModelOpt wrote beside it in older exports."""
    try:
        config = _read_mapping(os.path.join(path, "config.json"))
    except FileNotFoundError:
        names = os.listdir(path)
        problem, fix = MISTRAL_ALONE if "params.json" in names else ("has no config.json", "Fetch the model again.")
        if forms := other_forms(names):
            problem, fix = f"has no config.json and holds {', '.join(forms)}", SAFETENSORS_FIX
        raise SizingError("model_path", path, problem, fix) from None
    if not config.get("quantization_config"):
        side = os.path.join(path, "hf_quant_config.json")
        if os.path.isfile(side):
            config["quantization_config"] = {"quant_method": "modelopt", **_read_mapping(side)}
    return config


def _weight_map(index_path: str) -> dict[str, str]:
    """The file of each tensor, by the index of a checkpoint."""
    try:
        wanted = dict(_read_mapping(index_path)["weight_map"].items())
        if not all(isinstance(name, str) for name in wanted.values()):
            raise TypeError
    except (SizingError, KeyError, AttributeError, TypeError):
        raise SizingError("model_path", index_path, "is not a safetensors index", "Fetch the model again.") from None
    for name in wanted.values():
        if name.startswith("/") or "\0" in name or ".." in name.split("/"):
            what = f"names {name!r}, which is no file of its folder"
            raise SizingError("model_path", index_path, what, "Fetch the model again, or choose another.")
    return wanted


def weight_map_files(index_path: str) -> set[str]:
    """The files that the index of a checkpoint names."""
    return set(_weight_map(index_path).values())


def read_model_folder(path: str) -> tuple[dict[str, Any], dict[str, int]]:
    """(config, tensors) of a local model folder; half a set of safetensors is an error that names what lacks."""
    if not os.path.isdir(path):
        fix = "Place the model there on every host, or name one of model_store_models."
        raise SizingError("model_path", path, "is not a folder on this host", fix)
    config = read_config(path)
    tensors: dict[str, int] = {}
    for name in _weight_files(path):
        tensors.update(read_safetensors_header(os.path.join(path, name)))
    index_path = _index_of(path)
    lost = sorted(set(_weight_map(index_path)) - set(tensors)) if os.path.isfile(index_path) else []
    if lost:
        raise SizingError(
            "model_path",
            index_path,
            f"names {len(lost)} tensors that no file holds, such as {lost[0]}",
            "Index and files are of different models: fetch the model again.",
        )
    return config, tensors


def index_remark(path: str) -> str:
    """What is worth saying of a model in several files without an index; empty of any other.

    The engine loads every file that is there, so the plan counts them all, but nobody can tell what belongs together.
    """
    index_path = _index_of(path)
    files = [] if os.path.isfile(index_path) else _weight_files(path)
    if len(files) < 2:
        return ""
    return (
        f"{index_path} is missing: the weights are those of {len(files)} files, {files[0]} to {files[-1]}, as the "
        "engine loads them, and nothing says whether a tensor is missing. Fetch the model again, with its index."
    )


def _index_of(path: str) -> str:
    """Where the index of the weights in this folder would be; a usual one that is there names what has to be."""
    usual = os.path.join(path, INDEXES[0])
    return usual if os.path.isfile(usual) else os.path.join(path, weight_form(os.listdir(path))[1])


def _parts(path: str, names: Iterable[str]) -> set[str]:
    """The names of all files of which these say that they are a part."""
    sets = {(match[1], int(match[2])) for name in names if (match := _PART.fullmatch(name))}
    if (said := sum(total for _of, total in sets)) > _PARTS_LIMIT:
        what = f"has names that speak of {said} safetensors files; more than {_PARTS_LIMIT} are not read"
        raise SizingError("model_path", path, what, "Fetch the model again, or choose another.")
    return {f"{of}-{number:05d}-of-{total:05d}.safetensors" for of, total in sets for number in range(1, total + 1)}


def _weight_files(path: str) -> list[str]:
    index_path = _index_of(path)
    numbered, _index = weight_form(os.listdir(path))
    wanted = weight_map_files(index_path) if os.path.isfile(index_path) else {*numbered, *_parts(path, numbered)}
    missing = sorted(name for name in wanted if not os.path.exists(os.path.join(path, name)))
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise SizingError(
            "model_path",
            path,
            f"lacks {len(missing)} of {len(wanted)} safetensors files ({shown})",
            "The model is not complete on this host: let model_store fetch it again.",
        )
    if not wanted:
        forms = other_forms(os.listdir(path))
        what = "has no safetensors files" + (f", and holds {', '.join(forms)}" if forms else "")
        raise SizingError("model_path", path, what, SAFETENSORS_FIX)
    return sorted(wanted)
