# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What doctor.yml and drift.yml found last: the head of a serving group keeps it, the page and status.yml show it.

A playbook writes one file for each, root's.  What stands there came from hosts and their logs, so it is bounded, masked
and filtered once more when it is read; what is none of these two documents is nothing.
"""

from __future__ import annotations

import calendar
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from .._lib import files, foreign, mask
from .._lib.printable import printable

FOLDER = "/var/lib/sparkthor-console"
VERSION = 1
#: bytes of a file, findings or lines that are shown, and lines of evidence of one of them
MOST_BYTES, MOST, EVIDENCE = 1_000_000, 20, 3
#: characters of a title or a line, and of a cause or a fix
LINE, TEXT = 400, 2000
_TAKEN = "%Y-%m-%dT%H:%M:%SZ"
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"))


def read(root: str = "/") -> dict[str, Any]:
    """``doctor`` and ``drift``, each with its newest result; null where none is kept."""
    forms: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {"doctor": _doctor, "drift": _drift}
    return {name: _kept(os.path.join(root, f"{FOLDER}/{name}.json".lstrip("/")), form) for name, form in forms.items()}


def _kept(path: str, form: Callable[[Mapping[str, Any]], dict[str, Any]]) -> dict[str, Any] | None:
    try:
        told = foreign.parse_object(files.read_plain(path, MOST_BYTES), most=MOST_BYTES, depth=8)
        if told.get("version") != VERSION:
            return None
        taken = foreign.text_of(told.get("taken"), 20)
        at(taken)
        return {"taken": taken, **form(told)}
    except (OSError, ValueError):
        return None


def _doctor(told: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ForeignError."""
    findings = [_finding(one) for one in _list(told.get("findings"))[:MOST]]
    return {**{name: foreign.whole(told.get(name), 100_000) for name in ("errors", "warnings")}, "findings": findings}


def _finding(told: Any) -> dict[str, Any]:
    given = told if isinstance(told, dict) else {}
    return {
        "severity": "error" if given.get("severity") == "error" else "warning",
        "title": _text(given.get("title"), LINE),
        "hosts": [_text(one, 80) for one in _list(given.get("hosts"))[:64]],
        "evidence": [_text(one, LINE) for one in _list(given.get("evidence"))[:EVIDENCE]],
        "cause": _text(given.get("cause"), TEXT),
        "fix": _text(given.get("fix"), TEXT),
    }


def _drift(told: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ForeignError."""
    lines = _list(told.get("lines"))
    return {"count": len(lines), "lines": [_text(one, LINE) for one in lines[:MOST]]}


def _list(value: Any) -> list[Any]:
    """Raises ForeignError."""
    if not isinstance(value, list):
        raise foreign.ForeignError("no list")
    return value


def _text(value: Any, most: int) -> str:
    return printable(mask.mask(str(value)[: 2 * most]))[:most] if isinstance(value, (str, int, float)) else ""


def at(taken: str) -> float:
    """Seconds since 1970.  Raises ValueError."""
    return float(calendar.timegm(time.strptime(taken, _TAKEN)))


def words(kept: Mapping[str, Any], now: float) -> list[str]:
    """A line for each of what :func:`read` found, for a person."""
    return [text for text, _fine in judged(kept, now)]


def judged(kept: Mapping[str, Any], now: float) -> list[tuple[str, bool]]:
    """The same, with whether nothing was found."""
    found = []
    if doctor := kept.get("doctor"):
        numbers = [_count(doctor[name], name[:-1]) for name in ("errors", "warnings") if doctor[name]]
        said = ", ".join(numbers) or "nothing is wrong"
        found.append((f"doctor.yml {_ago(doctor['taken'], now)}: {said}", not numbers))
    if drift := kept.get("drift"):
        said = f"{_count(drift['count'], 'difference')} from the plan" if drift["count"] else "as the plan wants it"
        found.append((f"drift.yml {_ago(drift['taken'], now)}: {said}", not drift["count"]))
    return found


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _ago(taken: str, now: float) -> str:
    seconds = now - at(taken)
    if seconds < -60:
        # a clock was set
        return f"of {taken}"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    return f"{max(0, int(seconds // size))} {unit} ago"
