# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Command lines, word by word."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.serve_command import (
    known_option,
    read_command,
    read_words,
)

WORDS: list[tuple[str, dict[str, Any]]] = [
    # a short form is no value of the option before it
    # a level is a number, which vLLM's configuration makes of it
    ("--max-num-seqs 4 -O3", {"max-num-seqs": 4, "optimization-level": 3}),
    ("-O 2 -O=1", {"optimization-level": 1}),
    ("--enable-prefix-caching -ep", {"enable-prefix-caching": True, "enable-expert-parallel": True}),
    ("-cc.mode 0 -cc.cudagraph_mode none", {"compilation-config.mode": 0, "compilation-config.cudagraph_mode": "none"}),
    ("-tp=2 -pp 3 -q fp8", {"tensor-parallel-size": 2, "pipeline-parallel-size": 3, "quantization": "fp8"}),
    # fields are JSON, else text
    ("--default-chat-template-kwargs.thinking false", {"default-chat-template-kwargs.thinking": False}),
    ("--default-chat-template-kwargs.effort=high", {"default-chat-template-kwargs.effort": "high"}),
    ("--kv-transfer-config.size 80k", {"kv-transfer-config.size": 80000}),
    ("--a.b+ x,y", {"a.b": ["x", "y"]}),
    # kinds by the option tables
    ("--seed -1 --revision 7", {"seed": -1, "revision": "7"}),
    ("--served-model-name a", {"served-model-name": "a"}),
    ("--served-model-name a b --port 1", {"served-model-name": ["a", "b"], "port": 1}),
    ("--cudagraph-capture-sizes 1 2 4", {"cudagraph-capture-sizes": [1, 2, 4]}),
    ("--limit_mm_per_prompt {}", {"limit-mm-per-prompt": {}}),
    # what comes last counts
    ("--seed 1 --seed 2", {"seed": 2}),
    ("--enable-prefix-caching --no-enable-prefix-caching", {"no-enable-prefix-caching": True}),
    # of a fork
    ("--mxfp4-layers moe,qkv --b12x", {"mxfp4-layers": "moe,qkv", "b12x": True}),
    ("--fork-list 1 b", {"fork-list": [1, "b"]}),
]


@pytest.mark.parametrize(("words", "want"), WORDS, ids=[row[0] for row in WORDS])
def test_words(words: str, want: dict[str, Any]) -> None:
    assert read_words(words.split(), "f").flags == want


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("m --enable-prefix-caching true", "has 'true', which belongs to no option"),
        ("--max-model-len", "--max-model-len lacks its value"),
        ("-zz 1", "-zz is not a short form of vLLM"),
    ],
)
def test_words_that_vllm_would_refuse(words: str, text: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_words(words.split(), "f")
    assert text in str(caught.value)


def test_the_command_and_what_surrounds_it() -> None:
    served = read_command("cd /x && vllm serve o/m \\  \n  --seed 1 | tee log", "f")
    assert (served.model, served.flags) == ("o/m", {"seed": 1})
    assert served.notes == ["command before vllm serve (cd /x '&&')", "command after vllm serve ('|' tee log)"]


def test_the_program_may_be_named_by_its_path() -> None:
    served = read_command("export A=1; exec /usr/local/bin/vllm serve o/m --seed 1", "f")
    assert (served.model, served.flags) == ("o/m", {"seed": 1})
    assert served.notes == ["command before vllm serve (export 'A=1;' exec)"]
    with pytest.raises(RecipeError, match="holds no `vllm serve`"):
        read_command("my-vllm serve o/m", "f")


def test_the_newest_table_decides() -> None:
    assert known_option("max-num-seqs") is not None
    assert known_option("no-enable-prefix-caching") is not None
    assert known_option("mxfp4-layers") is None


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("vllm serve m --served-model-name m#1 --seed 2", {"served-model-name": "m#1", "seed": 2}),
        ("vllm serve m --served-model-name 'a # b' --seed 2", {"served-model-name": "a # b", "seed": 2}),
        ('vllm serve m --served-model-name "a"#b --seed 2', {"served-model-name": "a#b", "seed": 2}),
        (r"vllm serve m --served-model-name \#b --seed 2", {"served-model-name": "#b", "seed": 2}),
        ("vllm serve m --seed 2 # --seed 3", {"seed": 2}),
        ("# first\nvllm serve m --seed 2 ;# last", {"seed": 2}),
        ("vllm serve m \\\n  # --seed 3 'half a quote \\\n  --seed 2", {"seed": 2}),
        ("""vllm serve m --hf-overrides '{"a": " #"}'""", {"hf-overrides": {"a": " #"}}),
    ],
)
def test_a_comment_begins_where_a_word_could(command: str, flags: dict[str, Any]) -> None:
    served = read_command(command, "f")
    assert (served.model, served.flags) == ("m", flags)
