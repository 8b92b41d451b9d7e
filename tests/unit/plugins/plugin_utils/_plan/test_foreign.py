# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What recipes of all other tools have in common."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.foreign import Foreign, finished


def recipe(flags: dict[str, Any], environment: dict[str, Any] | None = None) -> dict[str, Any]:
    foreign = Foreign("n", "s", "o/m", flags, environment or {}, "test", [])
    return finished(foreign, "f", hosts=1, splits={})


def test_fields_are_taken_out_of_the_arguments() -> None:
    found = recipe({"served-model-name": "x", "max-model-len": "auto", "seed": 1})
    assert (found["served_model_name"], found["max_model_len"], found["args"]) == ("x", "auto", {"seed": 1})
    foreign = Foreign("n", "s", "o/m", {"tensor-parallel-size": 2, "seed": 1}, {}, "test", [])
    assert foreign.split() == {"tensor_parallel": 2}
    assert foreign.flags == {"seed": 1}


def test_files_of_the_original_image_are_named_and_left_out() -> None:
    found = recipe({"chat-template": "unsloth.jinja", "tool-parser-plugin": "a/b.py"})
    assert found["args"] == {}
    assert found["untranslated"] == [
        "--chat-template unsloth.jinja (a file of the original image)",
        "--tool-parser-plugin a/b.py (a file of the original image)",
    ]
    assert recipe({"chat-template": "/srv/own.jinja"})["args"] == {"chat-template": "/srv/own.jinja"}


def test_a_parser_that_nothing_would_use_is_named_and_left_out() -> None:
    given = {"reasoning-parser-plugin": "nano_v3.py", "reasoning-parser": "nano_v3", "seed": 1}
    plain = Foreign("n", "s", "o/m", dict(given), {}, "test", [], plain_image=True)
    assert finished(plain, "f", hosts=1, splits={})["args"] == {"seed": 1}
    # an image that another tool built may hold the plugin
    assert recipe(given)["args"] == {"reasoning-parser": "nano_v3", "seed": 1}
    assert recipe({"tool-call-parser": "qwen3_xml"})["args"] == {}


def test_the_environment() -> None:
    given = {
        "VLLM_USE_DEEP_GEMM": 0,
        "MAX_JOBS": None,
        "OMP_NUM_THREADS": "",
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": "hf_abcdefgh",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "VLLM_USE_V1": "1",
    }
    found = recipe({}, given)
    assert found["environment"] == {"VLLM_USE_DEEP_GEMM": "0", "OMP_NUM_THREADS": ""}
    notes = "\n".join(found["untranslated"])
    for name in ("NCCL_DEBUG", "HF_TOKEN", "PYTORCH_CUDA_ALLOC_CONF", "VLLM_USE_V1"):
        assert f"env.{name} (" in notes
    assert "hf_abcdefgh" not in str(found)
