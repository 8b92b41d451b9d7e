# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a Qwen3 with the shape of the 0.6B model, random weights and the lab's tokenizer: model.py FOLDER [WHAT...]

It computes as the real one does, token for token, and says nothing: for speed and faults, not for answers. Run by a
Python that has torch and safetensors.

With --sure it has six layers, and each token has one successor that wins by far: random weights have near ties, which
the size of a batch decides. So a token that is lost, twice there or of another request shows in a greedy answer, and
what moves a logit by less than a third does not.

With --wide it has five layers of 5.8 billion parameters each, so that the GPUs set how long a step takes and a step is
of few parts. It holds no weights but their names, because an engine makes them itself (load-format: dummy). With
--three it has three layers, so that three engines fit on one GPU. With --broad these are twice as large and half as
wide where ranks add up, so that three engines fit on two GPUs and little goes over the network.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lab", "engine"))
import make_model  # a program in a folder, not a package

SHAPE = {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 32768, "max_window_layers": 28,
    "max_position_embeddings": 32768, "rope_theta": 1000000.0, "torch_dtype": "bfloat16",
}  # fmt: skip


#: how the shape differs with --sure
SURE = {"num_hidden_layers": 6, "max_window_layers": 6}
#: how the shape differs with --wide
WIDE = {"num_hidden_layers": 5, "max_window_layers": 5, "hidden_size": 8192, "intermediate_size": 229376,
        "num_attention_heads": 64}  # fmt: skip
#: how many layers it has with --three
THREE = {"num_hidden_layers": 3, "max_window_layers": 3}
#: how --wide differs with --broad: no matrix of a rank has more numbers, because kernels count them in 32 bits
BROAD = {"hidden_size": 4096, "intermediate_size": 917504, "num_attention_heads": 32}
#: from one token to its successor, in the half of the vocabulary whose tokens are words
STRIDE = 4099


def tensors(shape: dict[str, object]) -> list[tuple[str, tuple[int, ...]]]:
    """Name and shape of each; a vector is a norm, which is all ones."""
    hidden, inter, layers, heads, kv, size, vocabulary = (
        int(str(shape[key])) for key in
        ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "head_dim", "vocab_size")
    )  # fmt: skip
    shapes: list[tuple[str, tuple[int, ...]]] = [("model.embed_tokens.weight", (vocabulary, hidden))]
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        shapes += [(f"{prefix}{name}.weight", (hidden,)) for name in ("input_layernorm", "post_attention_layernorm")]
        shapes += [(f"{prefix}self_attn.{name}_norm.weight", (size,)) for name in "qk"]
        shapes.append((f"{prefix}self_attn.q_proj.weight", (heads * size, hidden)))
        shapes += [(f"{prefix}self_attn.{name}_proj.weight", (kv * size, hidden)) for name in "kv"]
        shapes.append((f"{prefix}self_attn.o_proj.weight", (hidden, heads * size)))
        shapes += [(f"{prefix}mlp.{name}_proj.weight", (inter, hidden)) for name in ("gate", "up")]
        shapes.append((f"{prefix}mlp.down_proj.weight", (hidden, inter)))
    return [*shapes, ("model.norm.weight", (hidden,)), ("lm_head.weight", (vocabulary, hidden))]


def successor(token: int, vocabulary: int) -> int:
    """Always of the upper half, where no token ends an answer or is half a character."""
    half = vocabulary // 2
    return half + (token + STRIDE) % half


def make(target: str, sure: bool = False, wide: bool = False, three: bool = False, broad: bool = False) -> int:
    import safetensors.torch
    import torch

    chosen = ((SURE, sure), (WIDE, wide), (THREE, three), (BROAD, broad))
    shape = dict(SHAPE)
    for changed in (what for what, asked in chosen if asked):
        shape.update(changed)
    part = f"{target}.part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    documents = make_model.documents()
    config = {**documents["config.json"], **shape}
    documents["tokenizer.json"] = {**documents["tokenizer.json"], "model": padded(documents["tokenizer.json"])}
    for name, document in {**documents, "config.json": config}.items():
        with open(os.path.join(part, name), "w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False)
    dice = torch.Generator().manual_seed(24)
    weights = {
        name: torch.ones(shape, dtype=torch.bfloat16)
        if len(shape) == 1
        else (torch.randn(shape, generator=dice) * 0.02).to(torch.bfloat16)
        for name, shape in ([(name, (1,)) for name, _shape in tensors(shape)] if wide else tensors(shape))
    }
    if sure:
        assure(weights)
    safetensors.torch.save_file(weights, os.path.join(part, "model.safetensors"), metadata={"format": "pt"})
    shutil.rmtree(target, ignore_errors=True)
    os.rename(part, target)
    return sum(one.numel() for one in weights.values())


def assure(weights: dict[str, Any]) -> None:
    """The residual stream is mostly the token itself, and its successor's row of the head looks for that."""
    embedding = weights["model.embed_tokens.weight"]
    embedding *= 50
    head = weights["lm_head.weight"]
    head *= 0
    for token in range(len(embedding)):
        head[successor(token, len(embedding))] += embedding[token] * 0.02


def padded(tokenizer: dict[str, object]) -> dict[str, object]:
    """The lab's vocabulary, filled up: whatever a random model answers has a text."""
    model = dict(tokenizer["model"])  # type: ignore[call-overload]  # JSON, whose shape the lab's model decides
    vocabulary = dict(model["vocab"])
    for number in range(len(vocabulary), int(str(SHAPE["vocab_size"]))):
        vocabulary[f"w{number}"] = number
    return {**model, "vocab": vocabulary}


if __name__ == "__main__":
    count = make(sys.argv[1], *(f"--{what}" in sys.argv for what in ("sure", "wide", "three", "broad")))
    print(f"model: {count:,} parameters in {sys.argv[1]}")
