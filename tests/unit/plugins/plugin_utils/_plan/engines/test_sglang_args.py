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
        ({"hooks": {"a": 1}}, "hooks holds dict, and this engine's file takes flags, values and lists of them"),
        ({"sizes": [[1]]}, "sizes holds list, and this engine's file takes flags, values and lists of them"),
        ({"sizes": ["1", "--x"]}, "begins with a dash"),
        ({"attention-backend": "--x"}, "begins with a dash"),
        ({"a b": 1}, "'a b' is not the name of an option"),
        ({"kv-cache-dtype": 1, "kv_cache_dtype": 2}, "is given twice, in two spellings"),
        ({"ep-size": 1, "ep": 2}, "is given twice, in two spellings"),
    ],
)
def test_what_the_file_cannot_say_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(RecipeError) as caught:
        sglang_args.checked(given, "vllm_serve_args")
    assert str(caught.value).startswith("vllm_serve_args: ")
    assert words in str(caught.value)


def test_other_names_of_an_option_are_one() -> None:
    assert sglang_args.checked({"ep": 2, "enable-hicache": True}, "x") == {
        **{"ep-size": 2, "enable-hierarchical-cache": True},
    }


def test_a_cache_that_is_not_planned_is_refused() -> None:
    assert sglang_args.cache_dtype("bf16") == "bfloat16"
    with pytest.raises(RecipeError, match="kv-cache-dtype='mxfp8' is not planned here"):
        sglang_args.cache_dtype("mxfp8")


def test_words_of_a_command() -> None:
    assert sglang_args.words({"a": True, "b": False, "c": 1}) == ["--a", "--c", "1"]
    assert sglang_args.words({"sizes": [1, 2], "c": 1}) == ["--sizes", "1", "2", "--c", "1"]


#: as the reader makes it of 0.5.23's source
TABLE = {
    "sglang": "0.5.23",
    "options": {
        "page-size": {"kind": "int"},
        "mem-fraction-static": {"kind": "float"},
        "max-total-tokens": {"kind": "str"},
        "sleep-on-idle": {"kind": "flag"},
        "cuda-graph-bs-decode": {"kind": "list"},
        "kv-cache-dtype": {"kind": "str", "choices": ["auto", "fp8_e5m2", "fp8_e4m3"]},
        "tp-size": {"kind": "int", "aliases": ["tensor-parallel-size"]},
        "disable-cuda-graph": {"kind": "action"},
        "enable-lora": {"kind": "action"},
    },
}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"page-sise": 64}, "SGLang 0.5.23 has no such option; did you mean page-size"),
        # SGLang's own parser takes this beginning for the whole name
        ({"page": 64}, "SGLang 0.5.23 has no such option"),
        ({"zzz": 1}, "see `sglang serve --help` of that version"),
        ({"page-size": "64k"}, "is not a whole number"),
        ({"page-size": True}, "takes a value and is no switch"),
        ({"mem-fraction-static": "much"}, "is not a number"),
        ({"sleep-on-idle": 1}, "is a switch; give true or false"),
        ({"kv-cache-dtype": "fp8_e4m"}, "is none of its values; did you mean fp8_e4m3"),
        ({"kv-cache-dtype": "zz"}, "use one of auto, fp8_e5m2, fp8_e4m3"),
        ({"page-size": [1, 2]}, "takes one value"),
        ({"disable-cuda-graph": True}, "set disable-decode-cuda-graph: true"),
        ({"enable-lora": True}, "is taken on its command line alone, and it is started with a file; leave it out"),
    ],
)
def test_what_the_installed_one_would_refuse_is_named(given: dict[str, Any], words: str) -> None:
    found = sglang_args.problems({"tensor-parallel-size": 2, **given}, TABLE)
    assert [(finding.where, finding.severity) for finding in found] == [(*given, "error")]
    assert words in str(found[0])


def test_what_the_installed_one_takes_is_let_through() -> None:
    given = {"page-size": "64", "mem-fraction-static": 0.8, "max-total-tokens": "32k", "sleep-on-idle": False}
    assert not sglang_args.problems({**given, "cuda-graph-bs-decode": [1, 2], "tp-size": 2}, TABLE)


def test_a_table_of_a_host_that_lies_ends_in_findings() -> None:
    table = {"sglang": "0.5.23", "options": {"a": {}, "b": {"kind": 1, "choices": "x", "aliases": 2}}}
    assert not sglang_args.problems({"a": 1, "b": 2}, table)
