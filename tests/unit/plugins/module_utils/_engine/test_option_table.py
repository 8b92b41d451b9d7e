# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import argparse
import json
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import option_table

TABLE = {
    "schema": 1,
    "vllm": "0.33.0",
    "options": {"port": {"kind": "int"}, "seed": {"kind": "int"}},
    "value_lists": {"quantization": ["awq", "fp8"]},
}


def number_or_auto(text: str) -> Any:
    return text if text == "auto" else int(text)


@pytest.mark.parametrize(
    ("names", "settings", "entry"),
    [
        (["--host"], {}, {"kind": "str"}),
        (["--port"], {"type": int}, {"kind": "int"}),
        (["--max-model-len"], {"type": number_or_auto}, {"kind": "int", "words": ["auto"]}),
        (["--gpu-memory-utilization"], {"type": float}, {"kind": "float"}),
        (["--hf-overrides"], {"type": json.loads}, {"kind": "json"}),
        (["--middleware"], {"nargs": "+"}, {"kind": "list"}),
        (["--disable-log"], {"action": "store_true"}, {"kind": "flag"}),
        (["--enforce-eager"], {"action": argparse.BooleanOptionalAction}, {"kind": "bool"}),
        (["--dtype"], {"choices": ["auto", "half"]}, {"kind": "str", "choices": ["auto", "half"]}),
        (["--tensor-parallel-size", "-tp", "--tp"], {"type": int}, {"kind": "int", "aliases": ["tp"]}),
        (["--old"], {"help": "[DEPRECATED] use --new"}, {"kind": "str", "deprecated": True}),
        (["--hidden"], {"help": argparse.SUPPRESS}, {"kind": "str", "deprecated": True}),
    ],
)
def test_an_option_is_described(names: list[str], settings: dict[str, Any], entry: dict[str, Any]) -> None:
    assert option_table.describe(argparse.ArgumentParser().add_argument(*names, **settings)) == entry


def test_a_table_has_one_option_a_line() -> None:
    text = option_table.render(TABLE)
    assert json.loads(text) == TABLE
    assert '  "port": {"kind": "int"},\n  "seed": {"kind": "int"}\n' in text


def test_the_options_of_the_installed_vllm_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(option_table, "dump", lambda: TABLE)
    assert option_table.main([]) == 0
    assert json.loads(capsys.readouterr().out) == TABLE


def test_a_vllm_that_has_no_parser_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(option_table, "_PARSER_MODULES", ("vllm_of_no_version",))
    monkeypatch.setattr(option_table, "_allow_no_device", lambda: None)
    assert option_table.main([]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("cannot read the options of the installed vLLM: ")
    assert shown.count("\n") == 1
