# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module runs the real dumper, under a real Python, against a small package that has vLLM's shape."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.modules import vllm_options

PARSER = """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
"""
CLI = """
import argparse, json
def number(text):
    return -1 if text == "auto" else int(text)
def make_arg_parser(parser):
    parser.add_argument("--max-model-len", type=number)
    parser.add_argument("--enable-x", action=argparse.BooleanOptionalAction)
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--share", "--part", type=float)
    parser.add_argument("--shape", type=json.loads, default={})
    parser.add_argument("--colour", choices=["red", "blue"], help="[DEPRECATED] unused")
    return parser
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "site"
    files = {
        "vllm/__init__.py": "__version__ = '9.1.0'\n",
        "vllm/platforms.py": "class P:\n    device_type = ''\ncurrent_platform = P()\n",
        "vllm/utils/__init__.py": "",
        "vllm/utils/argparse_utils.py": PARSER,
        "vllm/entrypoints/__init__.py": "",
        "vllm/entrypoints/openai/__init__.py": "",
        "vllm/entrypoints/openai/cli_args.py": CLI,
        "vllm/reasoning.py": "class ReasoningParserManager:\n    list_registered = staticmethod(lambda: ['b', 'a'])\n",
        "vllm-9.1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 9.1.0\n",
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(root))
    return root


def run(capsys: pytest.CaptureFixture[str], check_mode: bool = False, **args: Any) -> tuple[int, dict[str, Any]]:
    args.setdefault("command", [sys.executable])
    with patch_module_args({**args, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit) as stop:
        vllm_options.main()
    return int(stop.value.code or 0), json.loads(capsys.readouterr().out)


def test_the_options_are_those_of_the_parser(capsys: pytest.CaptureFixture[str], engine: Path, tmp_path: Path) -> None:
    code, result = run(capsys, cache_dir=str(tmp_path))
    assert code == 0, result
    assert (result["changed"], result["cached"]) == (False, False)
    assert result["table"]["vllm"] == "9.1.0"
    assert result["table"]["value_lists"] == {"reasoning-parser": ["a", "b"]}
    assert result["table"]["options"] == {
        "max-model-len": {"kind": "int", "words": ["auto"]},
        "enable-x": {"kind": "bool"},
        "headless": {"kind": "flag"},
        "names": {"kind": "list"},
        "share": {"kind": "float", "aliases": ["part"]},
        "shape": {"kind": "json"},
        "colour": {"kind": "str", "choices": ["red", "blue"], "deprecated": True},
    }
    assert oct(os.stat(result["path"]).st_mode & 0o777) == "0o644"


def test_the_second_question_is_answered_from_the_cache(
    capsys: pytest.CaptureFixture[str], engine: Path, tmp_path: Path
) -> None:
    first = run(capsys, cache_dir=str(tmp_path))[1]
    (engine / "vllm" / "entrypoints" / "openai" / "cli_args.py").write_text("raise RuntimeError('asked again')")
    second = run(capsys, cache_dir=str(tmp_path))[1]
    assert second["cached"] is True
    assert second["table"] == first["table"]
    # another version is asked again, and half a file is no cache
    code, result = run(capsys, cache_dir=str(tmp_path), version="9.2.0")
    assert code == 1
    assert "asked again" in result["msg"]
    Path(first["path"]).write_text('{"schema": 1, ')
    assert run(capsys, cache_dir=str(tmp_path))[0] == 1


def test_check_mode_keeps_nothing(capsys: pytest.CaptureFixture[str], engine: Path, tmp_path: Path) -> None:
    code, result = run(capsys, check_mode=True, cache_dir=str(tmp_path))
    assert code == 0
    assert not Path(result["path"]).exists()


def test_an_engine_without_vllm(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    code, result = run(capsys, cache_dir=str(tmp_path))
    assert code == 1
    assert "vllm" in result["msg"]
    code, result = run(capsys, cache_dir="", version="1", command=["/nonexistent/python"])
    assert code == 1


def test_another_engine_s_options_are_read_and_it_is_not_imported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "sglang/__init__.py": "raise RuntimeError('imported')\n",
        "sglang/srt/server_args.py": 'p.add_argument("--model-path")\np.add_argument("--port", type=int)\n',
        "sglang-0.5.23.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n",
    }
    for name, text in files.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    code, result = run(capsys, cache_dir=str(tmp_path), engine_name="sglang")
    assert code == 0, result
    assert result["path"].endswith("/sglang-options-0.5.23.json")
    assert result["table"]["sglang"] == "0.5.23"
    assert result["table"]["options"]["port"] == {"kind": "int"}
    again = run(capsys, cache_dir=str(tmp_path), engine_name="sglang")[1]
    assert (again["cached"], again["table"]) == (True, result["table"])


def test_an_engine_whose_options_nobody_reads(capsys: pytest.CaptureFixture[str]) -> None:
    code, result = run(capsys, cache_dir="", engine_name="abacus")
    assert (code, result["msg"]) == (1, "engine_name='abacus': options are read of vllm and sglang alone")


def test_an_engine_that_hangs(capsys: pytest.CaptureFixture[str], engine: Path) -> None:
    (engine / "vllm" / "platforms.py").write_text("import time\ntime.sleep(60)\n")
    code, result = run(capsys, cache_dir="", version="9.1.0", timeout=1)
    assert code == 1
    assert "no answer within 1 s" in result["msg"]


def test_names_cannot_leave_the_cache() -> None:
    assert vllm_options.cache_path("/c", "../../etc/x") == "/c/vllm-options-.._.._etc_x.json"
    assert vllm_options.cache_path("", "1") == ""
