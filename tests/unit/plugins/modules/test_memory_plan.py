# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.modules import memory_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_plan import resolve

from tests.unit.gguf_files import small_model

CONFIG = Path(__file__).parents[3] / "fixtures" / "models" / "tiny-qwen3.json"


def run(capsys: pytest.CaptureFixture[str], **args: Any) -> tuple[int, dict[str, Any]]:
    with patch_module_args({**args, "_ansible_check_mode": True}), pytest.raises(SystemExit) as stop:
        memory_plan.main()
    return int(stop.value.code or 0), json.loads(capsys.readouterr().out)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(CONFIG.read_text())
    header = json.dumps({"lm_head.weight": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    return tmp_path


def test_a_plan_of_a_folder(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, result = run(
        *(capsys,),
        **{"model_path": str(folder), "pipeline_parallel": 2, "memory_bytes": [8 * 2**30]},
        **{"max_model_len": 512, "dtype": "float32"},
    )
    assert code == 0
    assert result["changed"] is False
    assert result["plan"]["weights_bytes"] == 64
    assert result["plan"]["ranks"]["weights_bytes_per_rank"] == [0, 64]
    assert result["plan"]["verdict"] == "fits"


def test_files_without_an_index_are_counted_and_named(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned: list[str] = []
    # where warnings go depends on what else is imported
    monkeypatch.setattr(memory_plan.AnsibleModule, "warn", lambda self, text: warned.append(text))
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "model-00002-of-00002.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    code, result = run(capsys, model_path=str(folder), memory_bytes=[8 * 2**30], max_model_len=512, dtype="float32")
    assert code == 0
    assert result["plan"]["weights_bytes"] == 64
    assert f"{folder}/model.safetensors.index.json is missing" in warned[0]
    assert "Fetch the model again, with its index." in warned[0]


def test_all_that_a_recipe_says_of_sizes_is_taken(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """The role hands these on for a model that lies outside of the store."""
    args = {"kv-cache-memory-bytes": "1G", "hf-overrides": {"max_position_embeddings": 4096}, "max-num-seqs": 4}
    own = {"pipeline_parallel": 2, "args": args, "environment": {"VLLM_PP_LAYER_PARTITION": "5,1"}}
    sizing = resolve("tiny-qwen3", ["a", "b"], overrides=own)["sizing"]
    assert {"hf_overrides", "kv_cache_memory_bytes", "layer_partition", "max_num_seqs"} <= set(sizing)
    code, result = run(
        *(capsys,),
        **{"model_path": str(folder), "pipeline_parallel": 2, "tensor_parallel": 2, "hosts": ["a", "b"]},
        **{"memory_bytes": [8 * 2**30] * 2, "max_model_len": 4096},
        **sizing,
    )
    assert code == 0, result
    ranks = result["plan"]["ranks"]
    assert ranks["layers"] == [5, 5, 1, 1]
    assert ranks["memory_bytes"] == [4 * 2**30] * 4
    assert ranks["kv_cache_bytes"] == [2**30] * 4
    assert result["plan"]["max_model_len"] == 4096


def test_own_memory_is_the_default(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    code, result = run(capsys, model_path=str(folder))
    assert code == 0
    assert result["plan"]["ranks"]["memory_bytes"] == [memory_plan.mem_total_bytes()]


def test_a_bad_folder_fails_with_the_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, result = run(capsys, model_path=str(tmp_path))
    assert code == 1
    assert "no config.json" in result["msg"]
    assert result["variable"] == "model_path"
    assert result["fix"]


def test_a_folder_that_is_not_there_is_told_with_the_fix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, result = run(capsys, model_path=str(tmp_path / "none"))
    assert code == 1
    assert result["msg"] == (
        f"model_path='{tmp_path}/none': is not a folder on this host. "
        "Place the model there on every host, or name one of model_store_models."
    )


def test_meminfo_without_a_total(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemFree: 1 kB\n")
    with pytest.raises(SizingError, match="memory_bytes"):
        memory_plan.mem_total_bytes(str(tmp_path / "meminfo"))
    (tmp_path / "meminfo").write_text("MemTotal:       127600000 kB\n")
    assert memory_plan.mem_total_bytes(str(tmp_path / "meminfo")) == 127_600_000 * 1024


def test_a_plan_of_gguf(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = small_model(tmp_path / "m.gguf")
    for given in (path, tmp_path):
        code, result = run(capsys, model_path=str(given), memory_bytes=[8 * 2**30], prompt_cache_mib=0)
        assert code == 0
        assert result["plan"]["verdict"] == "fits"
        assert result["plan"]["arguments"]["ctx-size"] == 4096
    small_model(tmp_path / "n.gguf")
    code, result = run(capsys, model_path=str(tmp_path), memory_bytes=[8 * 2**30])
    assert code == 1
    assert "holds 2 models: m.gguf, n.gguf. Name one of these files." in result["msg"]
