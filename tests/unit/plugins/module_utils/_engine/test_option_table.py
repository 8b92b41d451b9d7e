# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import argparse
import dataclasses
import json
from types import SimpleNamespace
from typing import Any, ClassVar

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


@dataclasses.dataclass
class SchedulerConfig:
    """As vLLM's own are: a dataclass of pydantic, which refuses fields that it does not know."""

    max_num_seqs: int = 128
    share: float = 0.5
    budget: int = 0
    made: int = dataclasses.field(default=0, init=False)

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}
    __pydantic_fields__: ClassVar[dict[str, Any]] = {
        "max_num_seqs": SimpleNamespace(metadata=[SimpleNamespace(ge=1)], annotation=int),
        "share": SimpleNamespace(metadata=[SimpleNamespace(gt=0)], annotation=float),
        "budget": SimpleNamespace(metadata=[SimpleNamespace(gt=0)], annotation=int),
    }


class OtherConfig:
    __pydantic_fields__: ClassVar[dict[str, Any]] = {
        "budget": SimpleNamespace(metadata=[], annotation=int),
    }


def test_lowest_values_are_those_of_the_configuration_classes() -> None:
    # more than zero is no lowest share, but one of a whole number
    assert option_table.minimums([SchedulerConfig]) == {"max-num-seqs": 1, "budget": 1}
    # two classes that differ say nothing
    assert option_table.minimums([SchedulerConfig, OtherConfig]) == {"max-num-seqs": 1}


def test_fields_are_those_of_a_class_that_refuses_others() -> None:
    parser = argparse.ArgumentParser()
    action = parser.add_argument("--scheduler-config", type=json.loads)
    classes = {"SchedulerConfig": SchedulerConfig}
    assert option_table.json_fields(action, classes) == ["budget", "max_num_seqs", "share"]
    assert option_table.json_fields(action, {}) == []
    assert option_table.json_fields(parser.add_argument("--hf-overrides", type=json.loads), classes) == []
    open_class = type("SchedulerConfig", (SchedulerConfig,), {"__pydantic_config__": {}})
    assert option_table.json_fields(action, {"SchedulerConfig": open_class}) == []
