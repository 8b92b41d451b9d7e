# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of TensorRT-LLM as others write them, and recipes of sparkrun with one."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.tensorrt_llm_command import (
    read_tensorrt_llm,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sparkrun import translate_sparkrun

PLAYBOOK = """hf download $MODEL && trtllm-serve org/model \\
  --max_batch_size 64 --trust_remote_code --port 8355 --tool_parser=qwen3 \\
  --kv_cache_free_gpu_memory_fraction 0.8 --extra_llm_api_options /tmp/extra.yml
"""
RECIPE = {"recipe_version": 2, "model": "org/model", "runtime": "trtllm", "container": "own/release:1", "max_nodes": 1}


def test_a_command_of_a_playbook_is_read() -> None:
    served = read_tensorrt_llm(PLAYBOOK, "r")
    assert served.model == "org/model"
    assert served.notes == ["command before trtllm-serve (hf download '$MODEL' '&&')"]
    assert served.flags == {
        **{"max-batch-size": 64, "trust-remote-code": True, "port": 8355, "tool-parser": "qwen3"},
        **{"kv-cache-free-gpu-memory-fraction": 0.8, "extra-llm-api-options": "/tmp/extra.yml"},
    }


@pytest.mark.parametrize("begin", ["trtllm-serve", "trtllm-serve serve", "/usr/local/bin/trtllm-serve serve"])
def test_the_word_behind_the_program_may_be_missing(begin: str) -> None:
    served = read_tensorrt_llm(f"{begin} org/model --tp_size 2 --max_seq_len 32768", "r")
    assert (served.model, served.flags) == ("org/model", {"tensor-parallel-size": 2, "max-model-len": 32768})


def test_another_command_is_refused() -> None:
    with pytest.raises(RecipeError, match="holds no `trtllm-serve`"):
        read_tensorrt_llm("vllm serve org/model", "r")


@pytest.mark.parametrize("given", [{}, {"runtime": None}])
def test_a_recipe_of_sparkrun_becomes_one_of_ours(given: dict[str, Any]) -> None:
    command = PLAYBOOK.partition("&& ")[2]
    found = translate_sparkrun({**RECIPE, "command": command, **given}, "r")
    assert (found["engine"], found["model"], found["image"]) == ("tensorrt_llm", "org/model", "own/release:1")
    assert found["args"] == {
        **{"max-batch-size": 64, "trust-remote-code": True, "tool-parser": "qwen3"},
        "kv-cache-free-gpu-memory-fraction": 0.8,
    }
    assert "--port (decided by the roles)" in found["untranslated"]
    assert "--extra-llm-api-options (decided by the roles)" in found["untranslated"]


def test_without_a_command_nobody_here_knows_what_would_run() -> None:
    with pytest.raises(RecipeError, match=r"has no command, .*TensorRT-LLM is not known here"):
        translate_sparkrun({**RECIPE, "defaults": {"port": 1}}, "r")
