# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Suggestions are planned before they are given."""

from __future__ import annotations

import re
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

from tests.unit.published_models import model

GIB = 2**30
SPARK = int(121.69 * GIB)
#: owners' start of DeepSeek-V4-Flash on two Sparks: refused by vLLM, which needs 7.19 GiB
PINNED: dict[str, Any] = {
    **{"tensor_parallel": 2, "max_model_len": 262_144, "memory_bytes": SPARK, "weights_bytes": 157 * GIB},
    **{"kv_cache_memory_bytes": 6 * GIB, "max_num_batched_tokens": 8192, "max_num_seqs": 4},
}
QWEN: dict[str, Any] = {"memory_bytes": SPARK, "weights_bytes": 379 * GIB, "language_model_only": True}
CASES: list[tuple[str, dict[str, Any]]] = [
    ("deepseek-v4-flash", PINNED),
    ("deepseek-v4-flash", {**PINNED, "kv_cache_memory_bytes": 2 * GIB}),
    ("qwen3.5-397b-a17b-fp8", {**QWEN, "tensor_parallel": 4, "max_model_len": 131_072, "memory_bytes": 119 * GIB}),
    (
        "qwen3.5-397b-a17b-fp8",
        {**QWEN, "pipeline_parallel": 2, "max_model_len": 32_768, "max_num_batched_tokens": 2048},
    ),
    ("qwen3.5-397b-a17b-fp8", {**QWEN, "tensor_parallel": 4, "max_model_len": 131_072, "max_num_batched_tokens": 4096}),
    ("llama-3.1-70b", {"memory_bytes": SPARK, "max_model_len": 131_072}),
]
WORDS = {
    "max_model_len": r"max_model_len(?:=| by \d+ to )(\d+)",
    "kv_cache_memory_bytes": r"kv_cache_memory_bytes=(\d+)",
    "max_num_batched_tokens": r"max_num_batched_tokens(?:=| to )(\d+)",
    "gpu_memory_utilization": r"gpu_memory_utilization(?:=| to )(0\.\d+)",
    "tensor_parallel": r"tensor_parallel=(\d+)",
    "pipeline_parallel": r"pipeline_parallel=(\d+)",
}


@pytest.mark.parametrize(("fixture", "options"), CASES)
def test_every_suggestion_helps(fixture: str, options: dict[str, Any]) -> None:
    config = model(fixture)
    before = plan(config, **options)
    assert before["verdict"] in ("does_not_fit", "tight")
    assert before["suggestions"]
    for text in before["suggestions"]:
        change = {
            name: float(found[1]) if "." in found[1] else int(found[1])
            for name, pattern in WORDS.items()
            if (found := re.search(pattern, text))
        }
        if "kv_cache_dtype=" in text:
            change["kv_cache_dtype"] = "fp8"
        assert change, text
        if "parallel" in str(list(change)):
            change = {"tensor_parallel": 1, "pipeline_parallel": 1, **change}
        after = plan(config, **{**options, **change})
        assert after["verdict"] != "does_not_fit", text
        assert not any("boots differ" in reason for reason in after["reasons"]) or before["verdict"] == "does_not_fit"


def test_a_pinned_cache_gets_the_pin_or_the_step() -> None:
    found = plan(model("deepseek-v4-flash"), **PINNED)["suggestions"]
    assert any(re.fullmatch(r"kv_cache_memory_bytes=\d+ \(7\.2 GiB\) fits\.", text) for text in found)
    assert any(text.startswith("max_num_batched_tokens=4096 fits: one sequence then takes") for text in found)
    # it changes nothing of a pinned cache
    assert not any("gpu_memory_utilization" in text for text in found)


def test_the_number_of_gpus_is_that_of_the_shipped_recipe() -> None:
    found = plan(
        model("qwen3.5-397b-a17b-fp8"),
        **{**QWEN, "pipeline_parallel": 2, "max_model_len": 32_768, "max_num_batched_tokens": 2048, "max_num_seqs": 8},
    )["suggestions"]
    assert "4 GPUs of 121.7 GiB would hold it (tensor_parallel=4)." in found
