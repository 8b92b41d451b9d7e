# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of `vllm serve` arguments, against what an option table says of each: kind, range, choices, fields.

vLLM's parser lets many of them through; its configuration classes refuse them minutes later, when the serving group
has been stopped.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError, parse_length

#: (option, value) that people write -> why it is wrong and what is meant
_WRONG_VALUES = {
    ("quantization", "nvfp4"): (
        "nvfp4 is a KV-cache dtype, not a quantization method",
        "leave quantization out: a checkpoint that is packed as NVFP4 says so itself (the method is modelopt_fp4)",
    ),
    ("reasoning-parser", "super_v3"): (
        "super_v3 is a plugin file of the model's authors",
        "use nemotron_v3, which is built in",
    ),
}
_PLUGINS = {"tool-call-parser": "tool-parser-plugin", "reasoning-parser": "reasoning-parser-plugin"}
#: the option that says which model drafts, and options that are fields of it, which vLLM takes once
DRAFTS = "speculative-config"
SHORTHANDS = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
_LENIENT = ("moe-backend", "linear-backend")
_HUMAN = re.compile(r"\d+(?:\.\d+)?[kKmMgGtT]")


def closest(name: str, names: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None


def problems(name: str, value: Any, table: Mapping[str, Any], given: Collection[str]) -> list[Finding]:
    """What is wrong with one option's value; `given` are the names of all options."""
    entry = table["options"][name]
    finding = (
        _type_problem(name, value, entry)
        or _range_problem(name, value, entry)
        or _choice_problem(name, value, table, given)
    )
    return [finding] if finding else _field_problems(name, value, entry, table["vllm"])


def of_drafting(drafts: Any, table: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with fields of the drafter, of which its shorthands know the values."""
    for short, field in SHORTHANDS.items():
        if short not in table["options"] or not isinstance(drafts, Mapping) or field not in drafts:
            continue
        if short in given:
            what = f"is the same as {field} of {DRAFTS}"
            yield Finding("twice", what, "keep one of the two", where=short, value=given[short])
        for finding in problems(short, drafts[field], table, given):
            yield replace(finding, where=f"{DRAFTS}.{field}")


def _wrong(name: str, value: Any, expected: str) -> Finding:
    return Finding("type", f"is {type(value).__name__}", f"give {expected}", where=name, value=value)


def _type_problem(name: str, value: Any, entry: Mapping[str, Any]) -> Finding | None:
    kind = entry["kind"]
    if kind in ("bool", "flag"):
        return None if isinstance(value, bool) else _wrong(name, value, "true or false")
    if isinstance(value, bool):
        return _wrong(name, value, "a value: this option is not a switch")
    if kind == "int":
        return None if _whole(value) or str(value) in entry.get("words", ()) else _wrong(name, value, "a whole number")
    if kind == "float":
        try:
            float(value)
        except (TypeError, ValueError):
            return _wrong(name, value, "a number")
    elif kind == "json":
        return _json_problem(name, value, entry)
    elif kind == "list" and entry.get("items") == "int":
        items = value if isinstance(value, list) else [value]
        if not all(_whole(item) for item in items):
            return _wrong(name, value, "a list of whole numbers, such as [1, 2, 4]")
    elif kind == "str" and isinstance(value, Mapping):
        return _wrong(name, value, "a plain value")
    return None


def _whole(value: Any) -> bool:
    text = str(value)
    return not isinstance(value, bool) and (text.lstrip("-").isdigit() or _HUMAN.fullmatch(text) is not None)


def _json_problem(name: str, value: Any, entry: Mapping[str, Any]) -> Finding | None:
    parsed = value
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            # some take a file's name or a single word
            plain = re.fullmatch(r"[\w./:-]+", value) and "fields" not in entry
            return None if plain else _wrong(name, value, "a dictionary or JSON")
    if "fields" in entry and not isinstance(parsed, Mapping):
        return _wrong(name, value, "a dictionary")
    if isinstance(parsed, (Mapping, list)) or isinstance(value, (str, int, float)):
        return None
    return _wrong(name, value, "a dictionary or JSON")


def _range_problem(name: str, value: Any, entry: Mapping[str, Any]) -> Finding | None:
    lowest = entry.get("minimum")
    if lowest is None or str(value) in entry.get("words", ()):
        return None
    try:
        number = float(value) if entry["kind"] == "float" else int(value) if _signed(value) else parse_length("", value)
    except (TypeError, ValueError, SizingError):
        return None
    if number >= lowest or (number == -1 and "auto" in entry.get("words", ())):
        return None
    return Finding("value", f"is below {lowest}", f"give at least {lowest}", where=name, value=value)


def _signed(value: Any) -> bool:
    return str(value).lstrip("-").isdigit()


def _choice_problem(name: str, value: Any, table: Mapping[str, Any], given: Collection[str]) -> Finding | None:
    entry = table["options"][name]
    choices = table["value_lists"].get(name) or entry.get("choices")
    if choices is None or isinstance(value, (bool, Mapping)):
        return None
    if _PLUGINS.get(name) in given:
        return None  # the plugin brings names that no table can know
    for item in value if isinstance(value, list) else [value]:
        text = str(item)
        if (name, text) in _WRONG_VALUES:
            problem, fix = _WRONG_VALUES[(name, text)]
            return Finding("value", problem, fix, where=name, value=text)
        # vLLM itself writes the names of these in small letters with underscores
        known = text in choices or (name in _LENIENT and text.lower().replace("-", "_") in choices)
        if name == "attention-backend":
            # looked up in capitals; what vLLM takes for "choose yourself" came after 0.17
            known = text.upper() in choices or (text.lower() == "auto" and release(table["vllm"])[:2] >= (0, 20))
        if not known:
            near = closest(text, choices)
            hint = f"did you mean {near}? " if near else ""
            return Finding(
                "value",
                f"vLLM {table['vllm']} does not know it",
                f"{hint}valid: {', '.join(choices)}",
                where=name,
                value=text,
            )
    return None


def _field_problems(name: str, value: Any, entry: Mapping[str, Any], version: str) -> list[Finding]:
    """Fields that the configuration class behind a JSON option does not have."""
    known = entry.get("fields")
    if isinstance(value, str) and known:
        value = json.loads(value)
    if not known or not isinstance(value, Mapping):
        return []
    findings = []
    for key, inner in value.items():
        if str(key).replace("-", "_") in known:
            continue
        near = closest(str(key), known)
        fix = f"did you mean {near}" if near else f"valid: {', '.join(known)}"
        findings.append(
            Finding("unknown", f"vLLM {version} has no such field", fix, where=f"{name}.{key}", value=inner)
        )
    return findings
