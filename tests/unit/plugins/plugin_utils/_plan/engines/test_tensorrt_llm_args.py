# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How TensorRT-LLM's options become its file and its command line, and which of them are free."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import tensorrt_llm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError


def test_its_words_and_its_file_hold_the_same() -> None:
    args = {"kv-cache-config.max_tokens": 32, "kv-cache-config.dtype": "fp8", "disable-overlap-scheduler": True}
    assert tensorrt_llm_args.nested(args) == {
        **{"kv_cache_config": {"max_tokens": 32, "dtype": "fp8"}, "disable_overlap_scheduler": True},
    }
    assert tensorrt_llm_args.words({"max-batch-size": 8, "print-iter-log": False, "x": True}) == [
        *("--max_batch_size", "8", "--x"),
    ]
    with pytest.raises(RecipeError, match="moe_config is a value"):
        tensorrt_llm_args.nested({"moe-config": 1, "moe-config.backend": "CUTLASS"})


@pytest.mark.parametrize(
    "given",
    [
        {"kv_cache_config": {"enable_block_reuse": False, "dtype": "fp8"}},
        {"kv-cache-config.enable-block-reuse": False, "kv_cache_config.dtype": "fp8"},
        {"enable-prefix-caching": False, "kv-cache-dtype": "fp8"},
    ],
)
def test_several_spellings_are_one_option(given: dict[str, Any]) -> None:
    assert tensorrt_llm_args.checked(given, "args") == {
        **{"kv-cache-config.enable_block_reuse": False, "kv-cache-config.dtype": "fp8"},
    }


@pytest.mark.parametrize(
    ("name", "value", "free"),
    [
        ("max-batch-size", 8, True),
        ("cuda-graph-config.batch_sizes", [1, 2, 4], True),
        ("moe-config.backend", "CUTLASS", True),
        ("backend", "pytorch", True),
        ("backend", "tensorrt", False),
        ("moe-config.load_balancer", "/etc/passwd", False),
        ("tokenizer", "/srv/other", False),
        ("custom-module-dirs", "/srv/code", False),
        ("speculative-config.speculative_model_dir", "org/draft", False),
        ("otlp-traces-endpoint", "http://a.example", False),
        ("reasoning-parser", "/srv/parser.py", False),
    ],
)
def test_what_only_chooses_kernels_and_sizes_is_free(name: str, value: Any, free: bool) -> None:
    assert tensorrt_llm_args.is_free(name, value) is free
