# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Model folders: whole, cut short, and none at all."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.checkpoint import (
    index_remark,
    read_model_folder,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.config import quantization_name
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import MODELS


def write_safetensors(path: Path, tensors: dict[str, int]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, size in tensors.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [offset, offset + size]}
        offset += size
    raw = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + b"\0" * offset)


def tiny_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text((MODELS / "tiny-qwen3.json").read_text())
    first: dict[str, int] = {"model.embed_tokens.weight": 1_000}
    second: dict[str, int] = {"lm_head.weight": 1_000, "model.norm.weight": 10}
    for layer in range(6):
        part = first if layer < 3 else second
        part[f"model.layers.{layer}.self_attn.q_proj.weight"] = 600
        part[f"model.layers.{layer}.self_attn.k_proj.weight"] = 120
        part[f"model.layers.{layer}.input_layernorm.weight"] = 6
    second["mtp.layers.0.mlp.weight"] = 5_000
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    write_safetensors(folder / names[0], first)
    write_safetensors(folder / names[1], second)
    index = dict.fromkeys(first, names[0]) | dict.fromkeys(second, names[1])
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return folder


def test_a_header_that_no_model_needs_is_not_read(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    shard = folder / "model-00002-of-00002.safetensors"
    raw = b'{"__metadata__":{}' + b" " * 25_000_000 + b"}"
    shard.write_bytes(struct.pack("<Q", len(raw)) + raw)
    with pytest.raises(SizingError, match=r"has a header of 25000019 bytes; more than 25000000 are not read"):
        read_model_folder(str(folder))


def test_a_folder_gives_exact_weights(tmp_path: Path) -> None:
    config, tensors = read_model_folder(str(tiny_folder(tmp_path)))
    split = plan(config, tensors=tensors, pipeline_parallel=2, dtype="float32")
    # three layers each; the draft layers are not loaded
    assert split["ranks"]["weights_bytes_per_rank"] == [1_000 + 3 * 726, 1_010 + 3 * 726]
    assert split["weights_bytes"] == 2_010 + 6 * 726
    both = plan(config, tensors=tensors, tensor_parallel=2, dtype="float32")
    assert both["weights_bytes_per_rank"] == (2_000 + 6 * 720) // 2 + 10 + 6 * 6
    many = plan(config, tensors=tensors, tensor_parallel=12, dtype="float32")
    # six KV heads on twelve ranks: k_proj is held twice
    assert many["weights_bytes_per_rank"] == (2_000 + 6 * 600) // 12 + 6 * 120 // 6 + 10 + 6 * 6


def test_half_a_set_names_what_lacks(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(SizingError, match=r"lacks 1 of 2 safetensors files \(model-00002-of-00002"):
        read_model_folder(str(folder))
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(SizingError, match="lacks 1 of 2"):
        read_model_folder(str(folder))


def test_a_missing_index_is_named_with_its_fix(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    whole = read_model_folder(str(folder))
    assert index_remark(str(folder)) == ""
    (folder / "model.safetensors.index.json").unlink()
    # vLLM loads whatever files are there
    assert read_model_folder(str(folder)) == whole
    remark = index_remark(str(folder))
    assert f"{folder}/model.safetensors.index.json is missing" in remark
    assert "2 files, model-00001-of-00002.safetensors to model-00002-of-00002.safetensors" in remark
    assert remark.endswith("Fetch the model again, with its index.")
    # one file needs none, and Mistral's second form is no second file
    (folder / "model-00001-of-00002.safetensors").rename(folder / "model.safetensors")
    (folder / "model-00002-of-00002.safetensors").rename(folder / "consolidated.safetensors")
    assert index_remark(str(folder)) == ""
    assert "lm_head.weight" not in read_model_folder(str(folder))[1]
    (folder / "model.safetensors").unlink()
    assert "lm_head.weight" in read_model_folder(str(folder))[1]


def test_mistrals_own_form_has_an_index_of_its_own(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    whole = read_model_folder(str(folder))
    index = (folder / "model.safetensors.index.json").read_text()
    for path in sorted(folder.glob("model*")):
        path.rename(folder / path.name.replace("model", "consolidated"))
    (folder / "consolidated.safetensors.index.json").write_text(index.replace('"model-', '"consolidated-'))
    assert read_model_folder(str(folder)) == whole
    assert index_remark(str(folder)) == ""
    (folder / "consolidated-00002-of-00002.safetensors").unlink()
    with pytest.raises(SizingError, match=r"lacks 1 of 2 safetensors files \(consolidated-00002"):
        read_model_folder(str(folder))
    (folder / "config.json").rename(folder / "params.json")
    with pytest.raises(SizingError, match=r"params\.json and no config\.json: vLLM reads Mistral's own form"):
        read_model_folder(str(folder))


def test_an_index_of_another_model_is_noticed(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.layers.9.mlp.weight"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))
    with pytest.raises(SizingError, match=r"names 1 tensors that no file holds, such as model\.layers\.9\.mlp\.weight"):
        read_model_folder(str(folder))


def test_a_config_of_another_model_is_noticed(tmp_path: Path) -> None:
    config, tensors = read_model_folder(str(tiny_folder(tmp_path)))
    with pytest.raises(SizingError, match="disagrees with the checkpoint, whose tensors end with layer 5") as caught:
        plan({**config, "num_hidden_layers": 12}, tensors=tensors)
    assert (caught.value.variable, caught.value.value) == ("config.num_hidden_layers", 12)


def test_a_file_cut_short_is_noticed(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    path = folder / "model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SizingError, match="not copied whole"):
        read_model_folder(str(folder))
    path.write_bytes(b"\xff" * 12)
    with pytest.raises(SizingError, match="cut short inside its header"):
        read_model_folder(str(folder))
    path.write_bytes(b"ab")
    with pytest.raises(SizingError, match="not a whole safetensors file"):
        read_model_folder(str(folder))


def header_of(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("hf_quant_config.json", b'{"producer": ', "is not JSON"),
        ("hf_quant_config.json", b"[]", "does not hold a mapping"),
        ("hf_quant_config.json", b"\xff\xfe", "is not JSON"),
        ("model.safetensors.index.json", b"[]", "is not a safetensors index"),
        ("model.safetensors.index.json", b'{"weight_map": []}', "is not a safetensors index"),
        ("model.safetensors.index.json", b'{"weight_map": {"a": 1}}', "is not a safetensors index"),
        ("model-00001-of-00002.safetensors", header_of('{"a": {"dtype": "BF16"}}'), "has an unreadable header"),
        (
            "model-00001-of-00002.safetensors",
            header_of('{"a": {"data_offsets": ["0", 1]}}'),
            "has an unreadable header",
        ),
        ("model-00001-of-00002.safetensors", header_of("[]"), "has an unreadable header"),
    ],
)
def test_a_torn_file_is_to_be_fetched_again(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    folder = tiny_folder(tmp_path)
    (folder / name).write_bytes(content)
    with pytest.raises(SizingError, match=words) as caught:
        read_model_folder(str(folder))
    assert name in str(caught.value)
    assert caught.value.fix == "Fetch the model again."


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SizingError, match="not a folder on this host"):
        read_model_folder(str(tmp_path / "nowhere"))
    with pytest.raises(SizingError, match=r"no config\.json"):
        read_model_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(SizingError, match="does not hold a mapping"):
        read_model_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(SizingError, match="is not JSON"):
        read_model_folder(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(SizingError, match="no safetensors files"):
        read_model_folder(str(tmp_path))


def test_quantization_beside_the_config_is_read(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    side = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(side))
    config, tensors = read_model_folder(str(folder))
    assert quantization_name(config) == "nvfp4"
    assert plan(config, tensors=tensors)["kv_cache_dtype"] == "fp8"


@pytest.mark.parametrize("name", ["../../../../dev/watchdog", "/dev/watchdog", "a/../../b.safetensors", "a\0"])
def test_an_index_names_no_file_elsewhere(tmp_path: Path, name: str) -> None:
    """Root reads there, and a watchdog that was opened once resets the machine."""
    folder = tiny_folder(tmp_path)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = name
    path.write_text(json.dumps(index))
    with pytest.raises(SizingError, match="which is no file of its folder"):
        read_model_folder(str(folder))


@pytest.mark.parametrize("name", ["config.json", "model-00001-of-00002.safetensors"])
def test_a_pipe_is_no_file_of_a_model(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(SizingError, match="is not a plain file"):
        read_model_folder(str(folder))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_json_of_any_depth_is_none(tmp_path: Path, name: str) -> None:
    folder = tiny_folder(tmp_path)
    (folder / name).write_text('{"a":' * 100_000 + "1" + "}" * 100_000)
    with pytest.raises(SizingError):
        read_model_folder(str(folder))
    raw = b"[" * 100_000
    (folder / name).unlink()
    (folder / "model-00001-of-00002.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw)
    with pytest.raises(SizingError):
        read_model_folder(str(folder))


def test_an_infinite_number_of_a_config_is_read(tmp_path: Path) -> None:
    """As in ``time_step_limit`` of models with Mamba."""
    folder = tiny_folder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "time_step_limit": [0.0, float("inf")]}))
    assert read_model_folder(str(folder))[0]["time_step_limit"] == [0.0, float("inf")]


def test_names_that_speak_of_very_many_files_are_refused_before_these_are_listed(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    (folder / "model.safetensors.index.json").unlink()
    for number in range(3):
        write_safetensors(folder / f"p{number}-00001-of-99999.safetensors", {"a": 1})
    with pytest.raises(SizingError, match="speak of 299999 safetensors files; more than 10000 are not read"):
        read_model_folder(str(folder))


@pytest.mark.parametrize("offsets", ["[1000000000, 0]", "[-8, 0]", "[0.5, 1.0]", "[false, true]", f"[0, {'9' * 30}]"])
def test_no_tensor_makes_a_model_smaller_than_it_is(tmp_path: Path, offsets: str) -> None:
    folder = tiny_folder(tmp_path)
    (folder / "model-00001-of-00002.safetensors").write_bytes(header_of(f'{{"a": {{"data_offsets": {offsets}}}}}'))
    with pytest.raises(SizingError, match="has an unreadable header"):
        read_model_folder(str(folder))
