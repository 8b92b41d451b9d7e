# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""JSON that somebody else wrote: a peer, a server, a program that talks to one.

Python's reader takes any depth (and ends in ``RecursionError``, which nobody expects), ``NaN``, numbers beyond all
bounds and text that no terminal or file can take. What comes from here has none of that, and all that is wrong with it
is a ``ValueError``.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

#: characters (bytes) that an answer has at most, unless its reader expects more
MOST = 1 << 20
#: lists and objects in one another, at most
DEPTH = 40
#: beyond it others that read JSON do not agree on a whole number
MOST_WHOLE = 2**53
#: no count of anything is larger
MOST_TOLD = 2**63


class ForeignError(ValueError):
    """What is wrong with what somebody else sent."""


def parse(text: str | bytes, most: int = MOST, depth: int = DEPTH, infinite: bool = False) -> Any:
    """The document. Raises ForeignError for one that is none, too long, too deep, or not plain text and numbers.

    ``infinite`` lets ``Infinity`` and its like pass, which Python writes as well.
    """
    if len(text) > most:
        raise ForeignError(f"longer than {most} bytes")
    try:
        value = json.loads(text) if infinite else json.loads(text, parse_constant=_constant, parse_float=_float)
    except RecursionError:
        raise ForeignError("nested too deeply") from None
    except ValueError as error:
        raise error if isinstance(error, ForeignError) else ForeignError(f"no JSON: {error}") from None
    _check(value, depth)
    return value


def parse_object(text: str | bytes, most: int = MOST, depth: int = DEPTH) -> dict[str, Any]:
    """The same where an object is expected."""
    found = parse(text, most, depth)
    if not isinstance(found, dict):
        raise ForeignError("no JSON object")
    return found


def whole(value: Any, most: int = MOST_WHOLE) -> int:
    """A whole number from 0 to ``most``. Raises ForeignError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ForeignError(f"no whole number from 0 to {most}")
    return value


def number(value: Any) -> float:
    """Any number that can be reckoned with. Raises ForeignError."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= MOST_WHOLE:
        raise ForeignError("no number")
    return float(value)


def text_of(value: Any, most: int) -> str:
    """A text of at most so many characters. Raises ForeignError."""
    if not isinstance(value, str) or len(value) > most:
        raise ForeignError(f"no text of at most {most} characters")
    return value


def tellable(value: Any, depth: int = DEPTH - 4) -> Any:
    """Plain data as a controller takes it: what a model, a user or a program gave may not make the rest useless.

    Numbers that nobody reckons with and what lies deeper become None, halves of characters a ``?``.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if abs(value) < MOST_TOLD else None
    if isinstance(value, dict):
        return {str(tellable(key)): tellable(item, depth - 1) for key, item in value.items()} if depth else None
    if isinstance(value, (list, tuple)):
        return [tellable(item, depth - 1) for item in value] if depth else None
    return value


def _constant(word: str) -> NoReturn:
    raise ForeignError(f"{word} is no number")


def _float(word: str) -> float:
    found = float(word)
    if not math.isfinite(found):
        raise ForeignError("a number beyond all bounds")
    return found


def _check(document: Any, depth: int) -> None:
    """Without recursion of its own."""
    level = [document]
    while level:
        if depth < 0:
            raise ForeignError("nested too deeply")
        depth -= 1
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner += [*value, *value.values()]
            elif isinstance(value, list):
                inner += value
            elif isinstance(value, str) and not value.isascii():
                try:
                    value.encode()
                except UnicodeEncodeError:
                    raise ForeignError("text with half a character") from None
        level = inner
