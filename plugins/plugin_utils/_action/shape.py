# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether what a host answered has the form that its readers rely on, so that none of them has to doubt it.

A form is plain data:

- ``str``, ``bool``, ``int``, ``float`` (any number) and ``object`` (anything) are types;
- ``None`` and other values stand for themselves, a tuple for any of its members;
- a pattern is a text that it matches as a whole, a function a value that it accepts;
- ``[form]`` is a list, ``{str: form}`` a mapping with any names;
- ``{"name": form, "other?": form}`` is a mapping with these names, of which those with a question mark may be absent.
  What else it holds is nobody's business.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

Form = Any

#: of one answer: values, levels, and characters of all texts together
VALUES, LEVELS, CHARACTERS = 1_000_000, 40, 100_000_000
#: no count of anything is larger
LARGEST = 2**63
_NAMES: Mapping[Any, str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}


class Misshapen(Exception):
    """What is wrong with an answer: the place in it, the value there, and what should be there."""

    def __init__(self, place: str, value: str, wanted: str) -> None:
        super().__init__(f"{place} is {value}, not {wanted}")
        self.place = place


def check(value: Any, form: Form, place: str = "the answer") -> None:
    """Raise Misshapen unless the value, which :func:`bounded` has let pass, has this form."""
    if isinstance(form, tuple):
        _any(value, form, place)
    elif isinstance(form, list):
        if not isinstance(value, list):
            raise Misshapen(place, shown(value), "a list")
        for number, item in enumerate(value):
            check(item, form[0], f"{place}[{number}]")
    elif isinstance(form, dict):
        _mapping(value, form, place)
    elif not _accepts(form, value):
        raise Misshapen(place, shown(value), described(form))


def bounded(value: Any, place: str = "the answer") -> None:
    """Raise Misshapen for texts and numbers that JSON has and nothing else, and for more than any host has to say.

    Objects of Ansible's own, such as its warnings, are left alone.
    """
    left, characters = VALUES, CHARACTERS
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        item, level = waiting.pop()
        left -= 1
        if left < 0:
            raise Misshapen(place, f"more than {VALUES} values", "what a host has to say")
        if level > LEVELS:
            raise Misshapen(place, f"more than {LEVELS} levels deep", "what a host has to say")
        if isinstance(item, Mapping):
            texts, below = list(item), list(item.values())
        elif isinstance(item, list):
            texts, below = [], item
        else:
            texts, below = [item], []
        for text in texts:
            _plain(text, place)
            characters -= len(text) if isinstance(text, str) else 0
        if characters < 0:
            raise Misshapen(place, f"more than {CHARACTERS} characters", "what a host has to say")
        waiting += [(one, level + 1) for one in below]


def _plain(value: Any, place: str) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Misshapen(place, "not all Unicode", "text") from None
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise Misshapen(place, f"the number {value}", "a finite one")
    elif isinstance(value, int):
        if abs(value) > LARGEST:
            raise Misshapen(place, "a number of more than 19 digits", "one that counts something")


def _any(value: Any, forms: tuple[Form, ...], place: str) -> None:
    first: Misshapen | None = None
    for form in forms:
        try:
            return check(value, form, place)
        except Misshapen as error:
            # what goes wrong deepest is what was meant
            if first is None or len(error.place) > len(first.place):
                first = error
    if first and first.place != place:
        raise first
    raise Misshapen(place, shown(value), " or ".join(dict.fromkeys(described(form) for form in forms)))


def _mapping(value: Any, form: dict[Any, Form], place: str) -> None:
    if not isinstance(value, Mapping):
        raise Misshapen(place, shown(value), "a mapping")
    if set(form) == {str}:
        for name, item in value.items():
            check(name, str, f"a name in {place}")
            check(item, form[str], f"{place}.{name[:60]}")
        return
    for given, inner in form.items():
        name = given.removesuffix("?")
        if name in value:
            check(value[name], inner, f"{place}.{name}")
        elif name == given:
            raise Misshapen(f"{place}.{name}", "absent", described(inner))


def _accepts(form: Form, value: Any) -> bool:
    if form is object:
        return True
    if isinstance(form, re.Pattern):
        return isinstance(value, str) and bool(form.fullmatch(value))
    if form in (int, float):
        kinds = (int,) if form is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool)
    if isinstance(form, type):
        return isinstance(value, form)
    if callable(form):
        return _holds(form, value)
    return isinstance(value, type(form)) and bool(value == form)


def _holds(test: Callable[[Any], bool], value: Any) -> bool:
    try:
        return test(value)
    except (TypeError, ValueError):
        return False


def described(form: Form) -> str:
    if isinstance(form, tuple):
        return " or ".join(dict.fromkeys(described(one) for one in form))
    if isinstance(form, (list, dict)):
        return "a list" if isinstance(form, list) else "a mapping"
    if isinstance(form, re.Pattern):
        return f"a text like {form.pattern}"
    if isinstance(form, type):
        return _NAMES.get(form, "a value")
    return str(form.__name__).strip("_").replace("_", " ") if callable(form) else json.dumps(form)


def shown(value: Any) -> str:
    """The beginning of a value, as JSON."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
