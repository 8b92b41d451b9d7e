# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One spelling of vLLM's arguments, in which they are merged and planned: an option has aliases, negations, shorthands
of its fields, and fields of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args, vllm_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name


def canonical(args: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """One layer of arguments under their full names; the parts of a dictionary stay apart, for the next layer.

    What the table does not know, or what is given twice, stays as it is written: the check of arguments refuses it.
    """
    names = vllm_args.spellings(table)
    drafts = vllm_args.fields(args, vllm_values.DRAFTS)
    made = [(option_name(key), value, *_one(option_name(key), value, names, drafts)) for key, value in args.items()]
    given = Counter(name for _key, value, name, _made in made if value is not None)
    found: dict[str, Any] = {}
    for key, value, name, same in made:
        if given[name] > 1:
            found[key] = value
        elif value is not None or not given[name]:
            found[name] = same
    return found


def _one(key: str, value: Any, names: Mapping[str, tuple[str, bool]], drafts: Mapping[str, Any]) -> tuple[str, Any]:
    """Full name and value of one argument; a negation whose value has no opposite keeps its name."""
    head, dot, rest = key.partition(".")
    name, negated = names.get(head, (head, False))
    field = vllm_values.SHORTHANDS.get(name)
    if field and head in names and field not in drafts:
        return f"{vllm_values.DRAFTS}.{field}", value
    if negated and value is not None:
        return (name, not value) if isinstance(value, bool) and not dot else (key, value)
    if rest.endswith("+") and value is not None:  # vLLM's sign for a list
        rest, value = rest[:-1], value if isinstance(value, list) else str(value).split(",")
    return name + dot + rest, value


def layered(table: Mapping[str, Any], *layers: Mapping[str, Any]) -> dict[str, Any]:
    """Canonical arguments of several layers, the last one's first; a null takes one away, a dictionary all fields."""
    args: dict[str, Any] = {}
    for layer in layers:
        gone = {*layer, *(name[3:] if name.startswith("no-") else f"no-{name}" for name in layer)}
        args = {name: value for name, value in args.items() if name.partition(".")[0] not in gone}
        args.update(layer)
    return _whole({name: value for name, value in args.items() if value is not None}, table)


def _whole(args: Mapping[str, Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Dictionaries with their fields in one piece, unless the check has to refuse them."""
    found: dict[str, Any] = {}
    for name, value in args.items():
        head = name.partition(".")[0]
        dictionary = table["options"].get(head, {}).get("kind") == "json"
        if dictionary and isinstance(vllm_args.parsed(args.get(head, {})), Mapping):
            found[head] = vllm_args.fields(args, head)
        else:
            found[name] = value
    return found
