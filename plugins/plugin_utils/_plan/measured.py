# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What somebody measured with a recipe's model: rows of its field ``measured``, and how they are shown.

Nothing planned is called measured. A row names hosts, streams, prompt, engine, date and source, because the same
machines give two to four times as many tokens per second with another text, engine or number of streams.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_NEEDED = ("hosts", "tokens_per_second", "streams", "prompt", "engine", "date", "source")
#: other weights than the recipe's, and what else is to be known
_FURTHER = ("weights", "note")
_DATE = re.compile(r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?")


def problem(rows: Any) -> tuple[str, str]:
    """What is wrong with the field, and the fix; two empty strings if nothing is."""
    if not isinstance(rows, list):
        return "measured is not a list of rows", "Write each row with a dash."
    for number, row in enumerate(rows, 1):
        if found := _problem_of(row):
            return f"measured, row {number}: {found[0]}", found[1]
    return "", ""


def _problem_of(row: Any) -> tuple[str, str] | None:
    if not isinstance(row, dict):
        return f"{row!r} is not a dictionary", f"Give {', '.join(_NEEDED)}."
    if missing := [name for name in _NEEDED if row.get(name) in (None, "")]:
        return f"{', '.join(missing)} is missing", "Give what the source says; what it does not say was not measured."
    if strange := sorted(set(row) - {*_NEEDED, *_FURTHER}):
        return f"{', '.join(strange)} is unknown", f"A row has {', '.join((*_NEEDED, *_FURTHER))}."
    for name in ("hosts", "streams", "tokens_per_second"):
        value = row[name]
        whole = int if name != "tokens_per_second" else (int, float)
        if isinstance(value, bool) or not isinstance(value, whole) or value <= 0:
            return f"{name}={value!r} is not a number above 0", "Correct it."
    if not _DATE.fullmatch(str(row["date"])):
        return f"date={row['date']!r} is no date", 'Write it as "2026-03-22", or "2026-03" where the day is not known.'
    if not str(row["source"]).startswith("https://"):
        return f"source={row['source']!r} is no address", "Give the https:// address where the number stands."
    return None


def on(rows: Sequence[Mapping[str, Any]], hosts: int) -> list[Mapping[str, Any]]:
    """Rows of so many hosts: fewer streams first, of equal ones those of the recipe's own weights, then the fastest."""

    def place(row: Mapping[str, Any]) -> tuple[int, bool, float]:
        return row["streams"], bool(row.get("weights")), -row["tokens_per_second"]

    return sorted((row for row in rows if row["hosts"] == hosts), key=place)


def speed(row: Mapping[str, Any]) -> str:
    """``57.5`` of one stream, ``153.5 of 8 streams`` together."""
    number = f"{row['tokens_per_second']:g}"
    return number if row["streams"] == 1 else f"{number} of {row['streams']} streams"


def line(row: Mapping[str, Any]) -> str:
    """One row as a line of text."""
    further = [f"weights {row['weights']}"] if row.get("weights") else []
    further += [str(row["note"])] if row.get("note") else []
    return "; ".join([speed(row), row["prompt"], row["engine"], *further, str(row["date"]), row["source"]])
