# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe's source served with: field ``known_good``. The hosts are compared with it and told, never refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

#: what may be named, and where a host's fact has it
_PARTS: Mapping[str, tuple[str, ...]] = {"driver": ("driver",), "kernel": ("kernel",), "os": ("os", "pretty")}
_NAMES = {"driver": "NVIDIA driver", "kernel": "kernel", "os": "operating system"}
_NEEDED = ("date", "source")
_WORD = re.compile(r"[\w .+~:()-]{1,80}")


def problem_of_known_good(given: Any) -> tuple[str, str]:
    """What is wrong with the field, and the fix; two empty strings if nothing is."""
    if not isinstance(given, dict):
        return "known_good is not a dictionary", f"Give some of {', '.join(_PARTS)}, and {' and '.join(_NEEDED)}."
    if not given:
        return "", ""
    if strange := sorted(set(map(str, given)) - {*_PARTS, *_NEEDED, "note"}):
        return f"known_good.{strange[0]} is unknown", f"It has {', '.join((*_PARTS, 'note', *_NEEDED))}."
    if missing := [name for name in _NEEDED if not given.get(name)]:
        return f"known_good lacks {', '.join(missing)}", "Say where it stands, and of when it is."
    if not str(given["source"]).startswith("https://"):
        return f"known_good.source={given['source']!r} is no address", "Give the https:// address where it stands."
    for name in set(given) & set(_PARTS):
        if not isinstance(given[name], str) or not _WORD.fullmatch(given[name]):
            return f"known_good.{name}={given[name]!r} is no version", 'Write it in quotes, such as "580.159.03".'
    return "", ""


def _same(wanted: str, found: str) -> bool:
    """``580`` names each 580.x; a whole version itself."""
    return found == wanted or found.startswith((f"{wanted}.", f"{wanted}-", f"{wanted} "))


def differs(known: Mapping[str, Any], recipe: str, nodes: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One line for each part that is another one on some hosts; what a host does not tell is left out."""
    for name, path in _PARTS.items():
        wanted = str(known.get(name) or "")
        by_value: dict[str, list[str]] = {}
        for host, node in nodes.items():
            value: Any = node
            for key in path:
                value = (value or {}).get(key)
            if wanted and value and not _same(wanted, str(value)):
                by_value.setdefault(str(value), []).append(host)
        for value, hosts in by_value.items():
            note = f"; {known['note']}" if known.get("note") else ""
            yield (
                f"{', '.join(hosts)}: {_NAMES[name]} {value}, and recipe {recipe} was served with {wanted} "
                f"({known['date']}, {known['source']}{note})"
            )
