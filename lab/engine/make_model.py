#!/usr/bin/env python3
# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the lab's model: a tiny Qwen3 with random float32 weights and a tokenizer of its own.

Standard library only: the controller makes it in seconds, without torch and without a hub. Every byte follows from
the seed, so two machines make the same files and the greedy answer of any cluster can be compared with that of one
host. Three properties are made on purpose:

* float32 throughout, so that pipeline stages and tensor slices change an answer by rounding only;
* the output matrix is zero except for whole words, so a greedy answer is readable text and never ends early;
* its rows are wide apart, so the best token leads the second by far more than rounding can move.

12 heads, 6 KV heads, 6 layers and 1152 tokens divide by 1, 2 and 3 (and the layers by 6): the usual TP and PP splits.
"""

from __future__ import annotations

import argparse
import array
import hashlib
import json
import os
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator

VOCABULARY_SIZE = 1152
HIDDEN = 192
INTERMEDIATE = 384
LAYERS = 6
HEADS = 12
KV_HEADS = 6
HEAD_DIM = 32
CONTEXT = 4096
SEED = "sparkthor lab model 15"

END_OF_TEXT, MESSAGE_START, MESSAGE_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, MESSAGE_START, MESSAGE_END, "<think>", "</think>", "<tool_call>", "</tool_call>")

WORD_LIST = """
able about above acid across after again air all also amber among anchor angle animal answer any apple april arch area
arm army around arrow art ask atom autumn away axis baby back badge bag bake ball band bank bar barn base basin basket
bath beach beam bean bear beat beauty bed bee before begin bell below belt bench berry best better big bird black blade
blue board boat body bone book boot border both bottle bowl box branch brave bread bridge bright bring broad brook brown
brush build burn bush busy butter button cable cake calm camel camp candle canvas cape card care cargo carry cart castle
cat cave cedar chain chair chalk chart cheese cherry child circle city clay clean clear climb clock cloth cloud coal
coast coat coin cold color comet copper coral corn cotton count country cover craft crane cream creek crop cross crown
cup curve dance dark dawn day deal deep deer delta desert design dish dive door dove dream dress drum dry duck dust
eagle early earth east easy echo edge egg eight ember empty energy engine equal even ever every evening eye fabric face
fair fall family far farm fast feather field fig fire first fish five flag flame flat fleet flint floor flower flute fog
fold forest fork form forward four fox frame free fresh friend frost fruit full garden gate gentle giant gift give glad
glass globe glove gold good grain grape grass gray great green grove guest guide hair hammer hand harbor harvest hat
hawk hazel head heart heat hedge hello help herb hill hold home honey hope horn horse house ice idea inch ink iron
island ivory jacket jade jar join journey judge juice jump kettle key kind king kite knee knot ladder lake lamp land
lantern large last late leaf lemon letter level lily lime line lion list little live loaf long look loop loud love
"""
WORDS = WORD_LIST.split()


def byte_alphabet() -> list[str]:
    """The printable stand-in for each of the 256 byte values, in byte order, as byte-level BPE defines it."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(256, 512))
    return [chr(value) if value in printable else chr(next(stand_ins)) for value in range(256)]


def build_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]], list[int]]:
    """Token ids, merges in order of rank, and the ids of the tokens that are whole words.

    Each word, with its leading space, is reached by merges that add one letter at a time from the left. All merges
    begin at a space, so none can compete with another inside a word.
    """
    vocabulary: dict[str, int] = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
    alphabet = byte_alphabet()
    for character in alphabet:
        vocabulary.setdefault(character, len(vocabulary))
    space = alphabet[ord(" ")]
    merges: list[tuple[str, str]] = []
    word_ids: list[int] = []
    for word in WORDS:
        token = space + word
        missing = [end for end in range(2, len(token) + 1) if token[:end] not in vocabulary]
        if len(vocabulary) + len(missing) > VOCABULARY_SIZE:
            break
        for end in missing:
            vocabulary[token[:end]] = len(vocabulary)
            merges.append((token[: end - 1], token[end - 1]))
        word_ids.append(vocabulary[token])
    for number in range(VOCABULARY_SIZE - len(vocabulary)):
        vocabulary[f"<|reserved_{number}|>"] = len(vocabulary)
    return vocabulary, merges, word_ids


def tokenizer_document() -> dict[str, object]:
    vocabulary, merges, _words = build_vocabulary()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocabulary[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                # the markers of thoughts and tool calls stay visible: vLLM's parsers read them in the text
                "special": token in (END_OF_TEXT, MESSAGE_START, MESSAGE_END),
            }
            for token in SPECIAL_TOKENS
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
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
            "vocab": vocabulary,
            "merges": [list(pair) for pair in merges],
        },
    }


CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def documents() -> dict[str, dict[str, object]]:
    """Every JSON file of the model folder, by name."""
    vocabulary, _merges, _words = build_vocabulary()
    end, pad = vocabulary[MESSAGE_END], vocabulary[END_OF_TEXT]
    return {
        "config.json": {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": None,
            "eos_token_id": end,
            "pad_token_id": pad,
            "head_dim": HEAD_DIM,
            "hidden_act": "silu",
            "hidden_size": HIDDEN,
            "initializer_range": 0.02,
            "intermediate_size": INTERMEDIATE,
            "max_position_embeddings": CONTEXT,
            "max_window_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_hidden_layers": LAYERS,
            "num_key_value_heads": KV_HEADS,
            "rms_norm_eps": 1e-06,
            "rope_theta": 10000.0,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": VOCABULARY_SIZE,
        },
        "generation_config.json": {"eos_token_id": end, "pad_token_id": pad, "do_sample": False},
        "tokenizer.json": tokenizer_document(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": MESSAGE_END,
            "pad_token": END_OF_TEXT,
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }


def tensors() -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and standard deviation of every random tensor; 0 stands for a vector of ones."""
    yield "model.embed_tokens.weight", (VOCABULARY_SIZE, HIDDEN), 1.0
    heads, kv_heads = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (HIDDEN,), 0.0
        # queries and keys twice as wide as usual: attention then picks words out instead of averaging them all
        yield prefix + "self_attn.q_proj.weight", (heads, HIDDEN), 2 * HIDDEN**-0.5
        yield prefix + "self_attn.k_proj.weight", (kv_heads, HIDDEN), 2 * HIDDEN**-0.5
        yield prefix + "self_attn.v_proj.weight", (kv_heads, HIDDEN), HIDDEN**-0.5
        yield prefix + "self_attn.o_proj.weight", (HIDDEN, heads), 2 * heads**-0.5
        yield prefix + "self_attn.q_norm.weight", (HEAD_DIM,), 0.0
        yield prefix + "self_attn.k_norm.weight", (HEAD_DIM,), 0.0
        yield prefix + "post_attention_layernorm.weight", (HIDDEN,), 0.0
        yield prefix + "mlp.gate_proj.weight", (INTERMEDIATE, HIDDEN), HIDDEN**-0.5
        yield prefix + "mlp.up_proj.weight", (INTERMEDIATE, HIDDEN), HIDDEN**-0.5
        yield prefix + "mlp.down_proj.weight", (HIDDEN, INTERMEDIATE), INTERMEDIATE**-0.5
    yield "model.norm.weight", (HIDDEN,), 0.0
    yield "lm_head.weight", (VOCABULARY_SIZE, HIDDEN), 4 * HIDDEN**-0.5


def tensor_values(name: str, shape: tuple[int, ...], deviation: float) -> array.array[float]:
    """The values of one tensor: uniform, exact in float32, and the same on every machine.

    A hash stream instead of a random generator: its bytes do not depend on Python's version, and 16 bits scaled by a
    power of two are exact before the one multiplication that rounds.
    """
    count = 1
    for size in shape:
        count *= size
    if not deviation:
        return array.array("f", [1.0]) * count
    stream = array.array("H", hashlib.shake_256(f"{SEED}/{name}".encode()).digest(2 * count))
    if sys.byteorder == "big":
        stream.byteswap()
    scale = deviation * 12**0.5 / 65536
    values = array.array("f", [(value - 32767.5) * scale for value in stream])
    if name == "lm_head.weight":
        _vocabulary, _merges, word_ids = build_vocabulary()
        zero = array.array("f", [0.0]) * HIDDEN
        for token in set(range(VOCABULARY_SIZE)) - set(word_ids):
            values[token * HIDDEN : (token + 1) * HIDDEN] = zero
    return values


def write_safetensors(path: str) -> int:
    """Write all tensors in the safetensors format (length, JSON header, data) and return their number of values."""
    plan = list(tensors())
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape, _deviation in plan:
        size = 4
        for length in shape:
            size *= length
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape, deviation in plan:
            values = tensor_values(name, shape, deviation)
            if sys.byteorder == "big":
                values.byteswap()
            values.tofile(file)
    return offset // 4


def digest() -> str:
    """Changes whenever this file would write another model: the name of its place in a cache."""
    with open(__file__, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()[:12]


def make_model(target: str) -> int:
    """Write the model folder in one step: it is either absent or whole."""
    parent = os.path.dirname(os.path.abspath(target))
    os.makedirs(parent, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=".model-", dir=parent)
    try:
        for name, document in documents().items():
            with open(os.path.join(scratch, name), "w", encoding="utf-8") as file:
                json.dump(document, file, indent=1, ensure_ascii=False)
                file.write("\n")
        count = write_safetensors(os.path.join(scratch, "model.safetensors"))
        os.chmod(scratch, 0o755)
        if os.path.isdir(target):
            shutil.rmtree(target)
        os.rename(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the lab's tiny model into a folder.")
    parser.add_argument("target", help="folder to write; replaced when it exists")
    target = parser.parse_args().target
    print(f"{target}: {make_model(target):,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
