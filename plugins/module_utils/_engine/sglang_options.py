# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside the engine's Python, which has no Ansible:
# pylint: disable=ansible-bad-function
"""Read the options of the installed SGLang from its source, as JSON.

The module ``vllm_options`` gives it to the engine's Python. SGLang is not imported: that takes some 15 seconds and a
GPU's driver. Two ways to declare an option are read, because releases differ: a field ``name: A[type, Arg(...)]`` of a
class (from 0.5.18 on), and a call of ``add_argument``. Its file takes no option whose value an option with an action of
its own writes, an old name most often: its reader knows actions by the value's name alone.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

SCHEMA = 2
#: below the package: where options and the values they take are declared
_PLACES = ("srt/server_args.py", "srt/arg_groups", "srt/parser/reasoning_parser_names.py")
_NAMES = "srt/function_call/parser_names.py"
_KINDS = {"bool": "flag", "int": "int", "float": "float", "str": "str"}
_PARSERS = {"reasoning-parser": "REASONING_PARSER_NAMES", "tool-call-parser": "TOOL_CALL_PARSER_NAMES"}


def _trees(package: str) -> list[ast.Module]:
    found = []
    for place in (*_PLACES, _NAMES):
        top = os.path.join(package, place)
        paths = [os.path.join(here, name) for here, _folders, files in os.walk(top) for name in sorted(files)]
        for path in sorted(paths) if os.path.isdir(top) else [top]:
            if path.endswith(".py") and os.path.isfile(path):
                with open(path, encoding="utf-8") as stream:
                    found.append(ast.parse(stream.read()))
    return found


def _constants(trees: list[ast.Module]) -> dict[str, list[Any]]:
    """Lists of values by the name of their constant."""
    found: dict[str, list[Any]] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                values = _values(node.value, found)
                if values is not None:
                    found[node.targets[0].id] = values
    return found


def _values(node: ast.expr | None, constants: dict[str, list[Any]]) -> list[Any] | None:
    """A list of values that is written out, named, or the sum of two; None for what only running it would tell."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _values(node.left, constants), _values(node.right, constants)
        return None if left is None or right is None else left + right
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    return list(value) if isinstance(value, (list, tuple, set)) else None


def _word(node: ast.expr | None) -> Any:
    try:
        return ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None


def _inner(node: ast.expr) -> ast.expr:
    """The type without ``Optional[...]`` or ``| None``."""
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Optional":
        return _inner(node.slice)
    if isinstance(node, ast.BinOp):
        return _inner(node.left)
    return node


def _of_type(node: ast.expr, parsed: bool) -> tuple[str, list[Any] | None]:
    """(kind, the values of a Literal); ``parsed``: a function of its own reads the whole text."""
    inner = _inner(node)
    if isinstance(inner, ast.Subscript):
        outer = getattr(inner.value, "id", "")
        if outer == "Literal":
            parts = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
            return "str", [_word(part) for part in parts]
        return ("list" if outer in ("List", "list") and not parsed else "str"), None
    kind = _KINDS.get(getattr(inner, "id", ""), "str")
    return ("str" if parsed and kind != "flag" else kind), None


def _described(kind: str, choices: list[Any] | None, action: str, aliases: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": kind}
    if action == "store_true":
        entry["kind"] = "flag"
    elif action and action != "store":
        # its file holds flags and values alone: anything else it takes on the command line
        entry = {"kind": "action"}
    if choices and entry["kind"] != "action":
        entry["choices"] = [str(choice) for choice in choices if choice is not None]
    if aliases:
        entry["aliases"] = aliases
    return entry


def _of_field(node: ast.AnnAssign, constants: dict[str, list[Any]]) -> tuple[str, dict[str, Any]] | None:
    note = node.annotation
    if not (isinstance(note, ast.Subscript) and getattr(note.value, "id", "") == "A"):
        return None
    if not (isinstance(note.slice, ast.Tuple) and isinstance(node.target, ast.Name)):
        return None
    kind_of, *marks = note.slice.elts
    told = next((mark for mark in marks if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "Arg"), None)
    if told is None and not any(isinstance(mark, (ast.Constant, ast.JoinedStr)) for mark in marks):
        return None
    given = {part.arg: part.value for part in told.keywords} if told else {}
    if _word(given.get("no_cli")):
        return None
    kind, literal = _of_type(kind_of, "type_parser" in given)
    if _word(given.get("nargs")) in ("+", "*"):
        kind = "list"
    action = given.get("action")
    name = str(_word(given.get("cli_name")) or node.target.id.replace("_", "-")).lstrip("-")
    aliases = [str(alias).lstrip("-") for alias in _word(given.get("aliases")) or []]
    choices = _values(given.get("choices"), constants) or literal
    return name, _described(kind, choices, ast.unparse(action).rpartition(".")[2] if action else "", aliases)


def _of_call(node: ast.Call, constants: dict[str, list[Any]]) -> tuple[str, dict[str, Any]] | None:
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"):
        return None
    spelled = [str(_word(part) or "") for part in node.args if not isinstance(part, ast.Starred)]
    long = [text[2:] for text in spelled if text.startswith("--")]
    if not long:
        return None
    given = {part.arg: part.value for part in node.keywords}
    action = given.get("action")
    named = str(_word(action) or "") if isinstance(action, ast.Constant) else ast.unparse(action) if action else ""
    kind = _KINDS.get(getattr(given.get("type"), "id", ""), "str")
    if _word(given.get("nargs")) in ("+", "*"):
        kind = "list"
    return long[0], _described(kind, _values(given.get("choices"), constants), named.rpartition(".")[2], long[1:])


def _declared(trees: list[ast.Module], constants: dict[str, list[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for tree in trees:
        for node in ast.walk(tree):
            found = None
            if isinstance(node, ast.AnnAssign):
                found = _of_field(node, constants)
            elif isinstance(node, ast.Call):
                found = _of_call(node, constants)
            if found:
                yield found


def _of_the_command_line(trees: list[ast.Module], options: dict[str, Any]) -> None:
    """Say so of each option whose value an option with an action of its own writes."""
    written = {name.replace("-", "_") for name, entry in options.items() if entry["kind"] == "action"}
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    for node in calls:
        found = _of_call(node, {})
        if found and found[1]["kind"] == "action":
            written.update(str(_word(part.value)) for part in node.keywords if part.arg == "dest")
    for name in options:
        if name.replace("-", "_") in written:
            options[name] = {"kind": "action"}


def dump(package: str, version: str) -> dict[str, Any]:
    """The table of the SGLang in this folder. Raises ValueError where it declares nothing that can be read."""
    trees = _trees(package)
    constants = _constants(trees)
    options: dict[str, Any] = {}
    for name, entry in _declared(trees, constants):
        options.setdefault(name, entry)
    if "model-path" not in options:
        raise ValueError(f"no options are declared in {package} as any known release declares them")
    _of_the_command_line(trees, options)
    for name, constant in _PARSERS.items():
        if name in options and constants.get(constant):
            options[name]["choices"] = ["auto", *constants[constant]]
    return {"schema": SCHEMA, "sglang": version, "options": dict(sorted(options.items())), "value_lists": {}}


def main() -> int:
    try:
        spec = importlib.util.find_spec("sglang")
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("this Python has no sglang")
        table = dump(next(iter(spec.submodule_search_locations)), importlib.metadata.version("sglang"))
    except (OSError, ValueError, SyntaxError, ImportError) as error:
        print(f"cannot read the options of the installed SGLang: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(table, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
