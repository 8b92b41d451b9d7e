# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import llama_cpp_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "/x"}, "is decided by the role; set vllm_serve_model instead"),
        ({"--rpc": "a:1"}, "vllm_serve_rpc_port"),
        ({"c": 4096}, "vllm_serve_max_model_len"),
        ({"tensor_split": "1,1"}, "layers follow the hosts' memory"),
        ({"mmproj": "/m/mmproj.gguf"}, "set another serving_engine for images"),
        ({"--mmproj_url": "http://h"}, "fetches whatever URL a request names"),
        ({"mm": "/m/mmproj.gguf"}, "fetches whatever URL a request names"),
        ({"threads": [1]}, "holds list; give a flag or one value"),
        ({"chat-template": "--tools"}, "begins with a dash"),
        ({"grammar": "a\nb"}, "control character"),
        ({"grammar": "a\u2028tools: true"}, "control character"),
        ({"a b": 1}, "is not the name of an option"),
        ({"np": 2, "parallel": 4}, "is given twice"),
        ({"ctk": "q8_0", "kv-cache-dtype": "f16", "cache-type-k": "f16"}, "is given twice"),
    ],
)
def test_what_cannot_be_given_is_refused_with_what_to_set(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        llama_cpp_args.checked(given, "vllm_serve_args")
    assert str(caught.value).startswith("vllm_serve_args: ")
    assert words in str(caught.value)


def test_other_names_of_an_option_are_one_and_null_takes_away() -> None:
    given = {"np": 4, "-ngl": 20, "threads": None, "top-k": -1, "enable-prefix-caching": False}
    assert llama_cpp_args.checked(given, "x") == {
        **{"parallel": 4, "gpu-layers": 20, "threads": None, "top-k": -1, "no-cache-prompt": True},
    }


def test_sizes_are_the_plan_s() -> None:
    given = llama_cpp_args.checked({"kv-cache-dtype": "q8_0", "np": 4, "ub": "256", "cache-ram": 0}, "x")
    assert llama_cpp_args.sizes(given) == {
        **{"kv_cache_dtype": "q8_0", "max_num_seqs": 4, "max_num_batched_tokens": 256, "prompt_cache_mib": 0},
    }
    given = llama_cpp_args.checked({"swa-checkpoints": 4, "swa-full": True, "kv-cache-dtype": "f16"}, "x")
    assert llama_cpp_args.sizes(given) == {"kv_cache_dtype": "f16", "beside": {"ctx-checkpoints": 4, "swa-full": True}}
    for wrong, words in (({"cache-type-k": "q8_0"}, "differ"), ({"parallel": "4x"}, "is not a whole number")):
        with pytest.raises(RecipeError, match=words):
            llama_cpp_args.sizes(wrong)


def test_flags_and_values_are_words() -> None:
    assert llama_cpp_args.words({"jinja": True, "mlock": False, "threads": 2}) == ["--jinja", "--threads", "2"]
