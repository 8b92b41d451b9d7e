# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs inside the engine's Python, which has no Ansible:
# pylint: disable=ansible-bad-function
"""Dump the options of the installed vLLM from its own parser, as JSON.

The module ``vllm_options`` gives it to the engine's Python, once per installed version, because importing vLLM takes
some 15 seconds.

Only the parser is built; no model is read, no GPU is touched and no process is started. The output is the table that
`_vllm_args` checks arguments against. The parser alone is not enough for that: it accepts unambiguous prefixes, and
takes any string for quantization methods, attention backends and parser names, so those lists are read from the
registries that vLLM itself consults later.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, get_args

#: 2 added what only the configuration classes know: `items`, `minimum` and `fields`.
SCHEMA = 2

#: Where the parser is built; the module has moved twice.
_PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33
    "vllm.entrypoints.launchers.cli_args",  # 0.31
    "vllm.entrypoints.openai.cli_args",
)


def _first_attribute(modules: tuple[str, ...], name: str) -> Any:
    problems = []
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            problems.append(f"{module}: {error}")
    raise RuntimeError(f"this vLLM has no {name} where it is expected: {'; '.join(problems)}")


def _allow_no_device() -> None:
    """Let the parser be built where no GPU is visible, such as on a controller or before the driver is loaded.

    Building defaults asks for a device type and nothing else; serving is not possible in this state, and not tried.
    """
    platforms = importlib.import_module("vllm.platforms")
    platform = platforms.current_platform
    if not platform.device_type:
        type(platform).device_type = "cuda"


def build_parser() -> argparse.ArgumentParser:
    _allow_no_device()
    flexible = _first_attribute(("vllm.utils.argparse_utils", "vllm.utils"), "FlexibleArgumentParser")
    make = _first_attribute(_PARSER_MODULES, "make_arg_parser")
    parser: argparse.ArgumentParser = make(flexible(prog="vllm serve"))
    return parser


def _names(module: str, name: str) -> list[str]:
    """Names in one of vLLM's registries; an empty list means that the registry is not there."""
    try:
        registry = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return []
    if hasattr(registry, "list_registered"):
        found = registry.list_registered()
    elif hasattr(registry, "__members__"):
        found = registry.__members__
    else:
        found = registry
    return sorted({str(item) for item in found})


def value_lists() -> dict[str, list[str]]:
    """Valid values of the options for which the parser takes any string."""
    lists = {
        "quantization": _names("vllm.model_executor.layers.quantization", "QUANTIZATION_METHODS"),
        "attention-backend": _names("vllm.v1.attention.backends.registry", "AttentionBackendEnum")
        or _names("vllm.attention.backends.registry", "AttentionBackendEnum"),
        "tool-call-parser": _names("vllm.tool_parsers", "ToolParserManager")
        or _names("vllm.entrypoints.openai.tool_parsers", "ToolParserManager"),
        "reasoning-parser": _names("vllm.reasoning", "ReasoningParserManager"),
    }
    lists["load-format"] = _names("vllm.model_executor.model_loader", "_LOAD_FORMAT_TO_MODEL_LOADER")
    for key, module, name in (
        ("kv-cache-dtype", "vllm.config.cache", "CacheDType"),
        ("distributed-executor-backend", "vllm.config.parallel", "DistributedExecutorBackend"),
    ):
        try:
            lists[key] = [str(item) for item in get_args(getattr(importlib.import_module(module), name))]
        except (ImportError, AttributeError):
            continue
    return {key: values for key, values in lists.items() if values}


def describe(action: argparse.Action) -> dict[str, Any]:
    """One option: its kind (a `bool` is negated by `no-`), its choices, its other spellings."""
    long = [text[2:] for text in action.option_strings if text.startswith("--")]
    # from 0.33 on, enable-x and disable-x are each other's negation, and no-enable-x is accepted but hidden
    opposite = {text[2:] for text in getattr(action, "negative_option_strings", ())}
    opposite |= {text for text in long if text.startswith("no-") and text[3:] in long}
    entry: dict[str, Any] = {}
    if isinstance(action, argparse.BooleanOptionalAction) or opposite:
        entry["kind"] = "bool"
        inverse = sorted(text for text in opposite if text in long and not text.startswith("no-"))
        if inverse:
            entry["inverse"] = inverse
    elif action.nargs == 0:
        entry["kind"] = "flag"
    elif action.nargs in ("+", "*") or isinstance(action.nargs, int):
        entry["kind"] = "list"
        if action.type is int:
            entry["items"] = "int"
    else:
        entry["kind"], words = _kind_of_type(action)
        if words:
            entry["words"] = words
    if action.choices is not None:
        entry["choices"] = [str(choice) for choice in action.choices]
    aliases = [text for text in long if text not in opposite][1:]
    if aliases:
        entry["aliases"] = aliases
    help_text = action.help or ""
    if action.help is argparse.SUPPRESS or "deprecated" in help_text.lower()[:200]:
        entry["deprecated"] = True
    return entry


def _kind_of_type(action: argparse.Action) -> tuple[str, list[str]]:
    """int, float, json or str, and the words an int takes beside numbers.

    Found by trying: most converters are unnamed functions that vLLM makes from type hints.
    """
    convert = action.type
    if convert is None or convert is str or not callable(convert):
        return "str", []

    def takes(text: str) -> Any:
        try:
            return convert(text)
        except Exception:
            # a converter may raise whatever its type's constructor raises
            return None

    if isinstance(takes('{"a": 1}'), dict):
        return "json", []
    if takes("word") is not None:
        return "str", []
    whole = takes("3")
    if isinstance(whole, int) and not isinstance(whole, bool) and takes("0.5") is None:
        return "int", ["auto"] if takes("auto") is not None else []
    if isinstance(takes("0.5"), float):
        return "float", []
    return ("json" if "config" in action.dest else "str"), []


def _config_classes() -> list[Any]:
    """vLLM's configuration classes, whose fields are options or stand inside of one."""
    try:
        module = importlib.import_module("vllm.config")
    except ImportError:
        return []  # the table then lacks ranges and fields, and is of use all the same
    found = [getattr(module, name, None) for name in getattr(module, "__all__", ())]
    return [item for item in found if isinstance(item, type) and dataclasses.is_dataclass(item)]


def minimums(classes: Iterable[Any]) -> dict[str, float]:
    """Lowest values of options, by the fields of the same name; where two classes differ nothing is said."""
    least: dict[str, set[float]] = {}
    for item in classes:
        for name, about in getattr(item, "__pydantic_fields__", {}).items():
            limits = [row.ge for row in about.metadata if getattr(row, "ge", None) is not None]
            # of a whole number more than zero is at least one
            limits += [row.gt + 1 for row in about.metadata if getattr(row, "gt", None) is not None and _is_int(about)]
            least.setdefault(name.replace("_", "-"), set()).update(limits or [-math.inf])
    return {name: lowest.pop() for name, lowest in least.items() if len(lowest) == 1 and -math.inf not in lowest}


def _is_int(about: Any) -> bool:
    return about.annotation is int or int in get_args(about.annotation)


def json_fields(action: argparse.Action, classes: Mapping[str, Any]) -> list[str]:
    """Fields of the class behind an option that takes a dictionary, where that class refuses others."""
    words = "".join(part.capitalize() for part in action.dest.split("_"))
    item = classes.get(words) or classes.get(words.replace("Kv", "KV").replace("Ec", "EC"))
    if item is None or not words.endswith("Config"):
        return []
    settings = getattr(item, "__pydantic_config__", None) or {}
    if settings.get("extra") != "forbid" and action.dest != "speculative_config":
        return []
    return sorted(field.name for field in dataclasses.fields(item) if field.init)


def dump() -> dict[str, Any]:
    parser = build_parser()
    classes = {item.__name__: item for item in _config_classes()}
    lowest = minimums(classes.values())
    version = importlib.import_module("vllm").__version__
    options: dict[str, Any] = {}
    for action in parser._actions:
        long = [text[2:] for text in action.option_strings if text.startswith("--")]
        if not long or action.dest == "help":
            continue
        entry = options[long[0]] = describe(action)
        if entry["kind"] in ("int", "float") and long[0] in lowest:
            entry["minimum"] = lowest[long[0]]
        if entry["kind"] == "json" and (names := json_fields(action, classes)):
            entry["fields"] = names
    return {
        "schema": SCHEMA,
        "vllm": str(version),
        "options": dict(sorted(options.items())),
        "value_lists": value_lists(),
    }


def render(table: dict[str, Any]) -> str:
    """JSON with one option a line, so that tables of two versions can be compared by eye."""
    heads = [key for key in table if key not in ("options", "value_lists")]
    lines = ["{", *(f" {json.dumps(key)}: {json.dumps(table[key])}," for key in heads)]
    for index, part in enumerate(("options", "value_lists")):
        lines.append(f" {json.dumps(part)}: {{")
        rows = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table[part].items()]
        lines.append(",\n".join(rows))
        lines.append(" }" if index else " },")
    lines.append("}")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0]).parse_args(argv)
    try:
        table = dump()
    except Exception as error:
        # whatever an unknown vLLM raises while it builds its parser is one sentence for the caller
        print(f"cannot read the options of the installed vLLM: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print(render(table), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
