# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that decide sizes, as YAML, Jinja and JSON give them: integers, shares, lengths and element types."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable


class SizingError(ValueError):
    """An input that cannot be planned: which variable, which value, and what to do about it."""

    def __init__(self, variable: str, value: Any, problem: str, fix: str) -> None:
        self.variable = variable
        self.value = value
        self.problem = problem
        self.fix = fix
        # it may name what somebody else wrote, as in a model's file
        super().__init__(printable(f"{variable}={value!r}: {problem}. {fix}", lines=True))


#: what reading a value ends in that is of another kind than anybody writes
STRANGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@contextlib.contextmanager
def blaming(config: Mapping[str, Any], *errors: type[Exception]) -> Iterator[None]:
    """Take these errors for the config's; any other one is a fault of the plan."""
    try:
        yield
    except SizingError:
        raise
    except errors as error:
        what = f"holds a value that nobody can reckon with ({type(error).__name__}: {error})"
        named = config.get("model_type")
        raise SizingError("config.model_type", named, what, "Fetch the model again, or choose another.") from error


def as_int(variable: str, value: Any, *, minimum: int = 1) -> int:
    """An integer of at least `minimum`; strings of digits count, because templates make them."""
    number = value
    if isinstance(value, str) and re.fullmatch(r"\+?\d{1,30}", value.strip()):
        number = int(value.strip())
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise SizingError(variable, value, "is not an integer", f"Give a whole number of at least {minimum}.")
    if number < minimum:
        raise SizingError(variable, value, f"is below {minimum}", f"Give a whole number of at least {minimum}.")
    return number


def as_fraction(variable: str, value: Any) -> float:
    """A share of memory, above 0 and at most 1."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise SizingError(variable, value, "is not a number", "Give a share between 0 and 1, such as 0.85.") from None
    if not 0.0 < number <= 1.0:
        raise SizingError(variable, value, "is not between 0 and 1", "Give a share of memory such as 0.85.")
    return number


def parse_length(variable: str, value: Any) -> int:
    """A number as an engine reads it: 32768, 32k (thousands) or 32K (1024s)."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d{1,30}(?:\.\d{1,30})?)([kKmMgGtT])", value.strip())
        if match:
            power = "kmgt".index(match.group(2).lower()) + 1
            return int(Fraction(match.group(1)) * (1000 if match.group(2).islower() else 1024) ** power)
    return as_int(variable, value)


_DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float": 4,
    "float16": 2,
    "half": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int8": 1,
    "uint8": 1,
}


def dtype_bytes(variable: str, name: Any) -> int:
    """Bytes of one element of a torch dtype name, with or without the `torch.` prefix."""
    key = str(name).removeprefix("torch.")
    if key not in _DTYPE_BYTES:
        raise SizingError(variable, name, "is not a known dtype", f"Known: {', '.join(sorted(_DTYPE_BYTES))}.")
    return _DTYPE_BYTES[key]
