# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GGUF files for tests: made here, and the real header of SmolLM2 before a hole of its tensors' size."""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HEADER = Path(__file__).parents[1] / "fixtures" / "gguf" / "smollm2-135m-instruct-q4_1.gguf.gz"
_F32, _Q4_1 = (0, 1, 4), (3, 32, 20)


class Signed(int):
    """A number that is written as one with a sign."""


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(given: Any) -> bytes:
    """A value with its type before it: text, numbers, and lists of them."""
    if isinstance(given, (str, bytes)):
        return struct.pack("<I", 8) + text(given)
    if isinstance(given, bool):
        return struct.pack("<I?", 7, given)
    if isinstance(given, float):
        return struct.pack("<If", 6, given)
    if isinstance(given, list):
        rows = [value(item) for item in given]
        return (
            struct.pack("<I", 9)
            + (rows or [value(0)])[0][:4]
            + struct.pack("<Q", len(rows))
            + b"".join(row[4:] for row in rows)
        )
    return struct.pack("<Ii", 5, given) if isinstance(given, Signed) else struct.pack("<II", 4, given)


def tensor(name: str, shape: Sequence[int], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def model_fields(layers: int, architecture: str = "llama", **more: Any) -> dict[str, Any]:
    """Fields of a small model: 64 wide, 4 heads of 16, 2 of them for keys and values."""
    return {
        "general.architecture": architecture,
        f"{architecture}.block_count": layers,
        f"{architecture}.context_length": 4096,
        f"{architecture}.embedding_length": 64,
        f"{architecture}.feed_forward_length": 256,
        f"{architecture}.attention.head_count": 4,
        f"{architecture}.attention.head_count_kv": 2,
        f"{architecture}.vocab_size": 512,
        **{name.replace("__", "."): one for name, one in more.items()},
    }


def model_tensors(layers: int, first: int = 0) -> dict[str, tuple[int, ...]]:
    """Tensors of such a model by their shapes; rows of 64 are quantized."""
    names = {"token_embd.weight": (64, 512), "output_norm.weight": (64,)} if not first else {}
    for number in range(first, layers):
        names[f"blk.{number}.attn_q.weight"] = (64, 64)
        names[f"blk.{number}.ffn_up.weight"] = (64, 256)
    return names


def write_gguf(path: Path, fields: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> Path:
    """A whole file of version 3; matrices are Q4_1, the rest float32. Its tensors' bytes are a hole."""
    rows, at = [], 0
    for name, shape in tensors.items():
        kind, block, size = _Q4_1 if len(shape) > 1 else _F32
        rows.append(tensor(name, shape, kind, at))
        numbers = 1
        for length in shape:
            numbers *= length
        end = at + numbers // block * size
        at = -(-end // 32) * 32
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    header += b"".join(text(name) + value(given) for name, given in fields.items()) + b"".join(rows)
    path.write_bytes(header)
    os.truncate(path, -(-len(header) // 32) * 32 + at)
    return path


def small_model(path: Path, layers: int = 4, **more: Any) -> Path:
    return write_gguf(path, model_fields(layers, **more), model_tensors(layers))


def speaking_model(path: Path, layers: int = 8, words: int = 4096, wide: int = 256, inner: int = 1024) -> Path:
    """One that llama.cpp itself loads and computes: all parts of each layer and a vocabulary, though of zeros.

    What it says makes no sense, and takes what any model of these sizes takes.
    """
    heads, kv_heads = wide // 32, wide // 64
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256))]
    tokens += ["\u2581", *(f"\u2581word{number}" for number in range(words - len(tokens) - 1))]
    kinds = [Signed(kind) for kind in (2, 3, 3, *[6] * 256, *[1] * (words - 259))]
    sizes = {
        "embedding_length": wide,
        "feed_forward_length": inner,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": wide // heads,
        "vocab_size": words,
    }
    fields = {
        **model_fields(layers),
        **{f"llama.{name}": number for name, number in sizes.items()},
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * words,
        "tokenizer.ggml.token_type": kinds,
        **{f"tokenizer.ggml.{name}_token_id": number for number, name in enumerate(("unknown", "bos", "eos"))},
    }
    kept = wide // heads * kv_heads
    parts = {"attn_norm": (wide,), "attn_q": (wide, wide), "attn_k": (wide, kept), "attn_v": (wide, kept)}
    parts |= {"attn_output": (wide, wide), "ffn_norm": (wide,), "ffn_gate": (wide, inner), "ffn_up": (wide, inner)}
    parts |= {"ffn_down": (inner, wide)}
    tensors = {"token_embd.weight": (wide, words), "output_norm.weight": (wide,)}
    for layer in range(layers):
        tensors |= {f"blk.{layer}.{name}.weight": shape for name, shape in parts.items()}
    return write_gguf(path, fields, tensors)


def split_model(folder: Path, name: str = "m", layers: int = 4) -> list[Path]:
    """The same in two parts."""
    tensors = [model_tensors(layers // 2), model_tensors(layers, layers // 2)]
    count = sum(len(part) for part in tensors)
    paths = []
    for number, part in enumerate(tensors):
        place = {"split.no": number, "split.count": 2, "split.tensors.count": count}
        fields = {**model_fields(layers), **place} if not number else place
        paths.append(write_gguf(folder / f"{name}-{number + 1:05d}-of-00002.gguf", fields, part))
    return paths


def smollm2(path: Path) -> Path:
    """SmolLM2-135M-Instruct Q4_1 by its own header; lists of the vocabulary are cut from it, the tensors are a hole."""
    header = gzip.decompress(_HEADER.read_bytes())
    path.write_bytes(header)
    os.truncate(path, -(-len(header) // 32) * 32 + 96_576_768)
    return path
