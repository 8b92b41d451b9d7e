# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options as releases of SGLang declare them: fields of classes (0.5.23), and calls of ``add_argument`` (0.5.10)."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import sglang_options

CHOICES = 'LOAD = ["auto", "safetensors"]\nMORE = LOAD + ["gguf"]\n'
FIELDS = '''
class Model:
    """not imported, so what it needs need not be there"""
    model_path: A[str, Arg(help="Path.", aliases=["--model"])]
    tp_size: A[int, Arg(help="Ranks.", cli_name="--tp-size", aliases=["--tensor-parallel-size"])] = 1
    sleep_on_idle: A[bool, "Sleep."] = False
    share: A[Optional[float], "Share."] = None
    load_format: A[str, Arg(help="Form.", choices=MORE)] = "auto"
    tokens: A[Optional[int], Arg(help="Tokens, 32k too.", type_parser=human_readable_int)] = None
    sizes: A[Optional[List[int]], Arg(help="Sizes.")] = None
    modules: A[Optional[set[str]], Arg(help="Modules.", nargs="*", choices=["q", "k"])] = None
    mode: A[Literal["off", "on"], "Mode."] = "off"
    fast: A[bool, Arg(help="Fast.", action=argparse.BooleanOptionalAction)] = False
    hidden: A[bool, Arg(help="No option.", no_cli=True)] = False
    derived: A[int, Derived(doc="no option")] = 0
    plain: int = 0
'''
CALLS = """
def add_cli_args(parser):
    parser.add_argument("--model-path", "--model", type=str, required=True)
    parser.add_argument("--port", type=int, default=1)
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--names", nargs="+", type=str)
    parser.add_argument("--tool-call-parser", type=str, choices=["auto"] + found_by_running())
    parser.add_argument("--old", action=DeprecatedStoreTrueAction, help="gone")
    parser.add_argument("-x", type=int)
"""


def package(top: Path, **files: str) -> str:
    for name, text in files.items():
        path = top / "sglang" / "srt" / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(top / "sglang")


def test_fields_are_options(tmp_path: Path) -> None:
    table = sglang_options.dump(package(tmp_path, arg_groups__choices=CHOICES, arg_groups__fields__m=FIELDS), "0.5.23")
    assert (table["schema"], table["sglang"], table["value_lists"]) == (2, "0.5.23", {})
    assert table["options"] == {
        "fast": {"kind": "action"},
        "load-format": {"kind": "str", "choices": ["auto", "safetensors", "gguf"]},
        "mode": {"kind": "str", "choices": ["off", "on"]},
        "model-path": {"kind": "str", "aliases": ["model"]},
        "modules": {"kind": "list", "choices": ["q", "k"]},
        "share": {"kind": "float"},
        "sizes": {"kind": "list"},
        "sleep-on-idle": {"kind": "flag"},
        "tokens": {"kind": "str"},
        "tp-size": {"kind": "int", "aliases": ["tensor-parallel-size"]},
    }


def test_calls_are_options(tmp_path: Path) -> None:
    names = 'TOOL_CALL_PARSER_NAMES = ["qwen25"]\n'
    found = package(tmp_path, server_args=CALLS, function_call__parser_names=names)
    assert sglang_options.dump(found, "0.5.10")["options"] == {
        "model-path": {"kind": "str", "aliases": ["model"]},
        "names": {"kind": "list"},
        "old": {"kind": "action"},
        "port": {"kind": "int"},
        "quiet": {"kind": "flag"},
        "tool-call-parser": {"kind": "str", "choices": ["auto", "qwen25"]},
    }


def test_an_option_that_an_old_name_writes_is_for_the_command_line_alone(tmp_path: Path) -> None:
    """0.5.17 refused it in its file: its reader knows the old name's action by the value's name."""
    old = """
    parser.add_argument("--old-name", action=DeprecatedStoreConstAction, dest="graph_backend", const_value="off")
"""
    fields = FIELDS + '    graph_backend: A[Optional[str], Arg(help="Graphs.")] = None\n'
    found = package(tmp_path, arg_groups__choices=CHOICES, arg_groups__fields__m=fields, server_args=CALLS + old)
    options = sglang_options.dump(found, "0.5.17")["options"]
    assert options["graph-backend"] == {"kind": "action"}
    assert (options["sleep-on-idle"], options["quiet"]) == ({"kind": "flag"}, {"kind": "flag"})


def test_an_engine_that_declares_nothing_known_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no options are declared"):
        sglang_options.dump(package(tmp_path, server_args="x = 1\n"), "9")
