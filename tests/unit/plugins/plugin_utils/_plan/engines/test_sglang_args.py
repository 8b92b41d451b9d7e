# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import sglang_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError


def test_names_and_values_as_the_file_takes_them() -> None:
    given = {"--chunked_prefill_size": 4096, "disable-radix-cache": True, "tool-call-parser": None}
    assert sglang_args.checked(given, "args") == {
        **{"chunked-prefill-size": 4096, "disable-radix-cache": True, "tool-call-parser": None},
    }


def test_the_role_s_variables_say_the_same_here() -> None:
    given = {"enable-prefix-caching": False, "enable-auto-tool-choice": True, "reasoning-parser": "deepseek_r1"}
    found = sglang_args.checked(given, "args")
    assert found == {"disable-radix-cache": True, "reasoning-parser": "deepseek-r1"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model-path": "/a"}, "model-path is decided by the role; set vllm_serve_model instead"),
        ({"tp": 2}, "tp is decided by the role; set vllm_serve_tensor_parallel_size instead"),
        ({"dist-init": "x:1"}, "dist-init is short for dist-init-addr, which is decided by the role"),
        ({"api_key": "s"}, "api_key is decided by the role; set vllm_serve_api_keys"),
        ({"lora-paths": ["a"]}, "lora-paths holds list, and this engine's file takes flags and single values"),
        ({"attention-backend": "--x"}, "begins with a dash"),
        ({"a b": 1}, "'a b' is not the name of an option"),
        ({"kv-cache-dtype": 1, "kv_cache_dtype": 2}, "is given twice, in two spellings"),
    ],
)
def test_what_the_file_cannot_say_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        sglang_args.checked(given, "vllm_serve_args")
    assert str(caught.value).startswith("vllm_serve_args: ")
    assert words in str(caught.value)


def test_a_cache_that_is_not_planned_is_refused() -> None:
    assert sglang_args.cache_dtype("bf16") == "bfloat16"
    with pytest.raises(RecipeError, match="kv-cache-dtype='mxfp8' is not planned here"):
        sglang_args.cache_dtype("mxfp8")


def test_words_of_a_command() -> None:
    assert sglang_args.words({"a": True, "b": False, "c": 1}) == ["--a", "--c", "1"]
