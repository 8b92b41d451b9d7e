# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's variables as typed settings: whatever way a value was written, planners see the type it is declared with.

The fields of a settings class are named as the variables are; those without repr() hold secrets, which no message
shows. From the command line and from INI inventories every value comes as text.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

from ansible.module_utils.parsing.convert_bool import boolean

Settings = TypeVar("Settings")


class SettingsError(ValueError):
    """A value is not what its variable takes; the message names the variable and the fix."""


def plain(value: Any) -> Any:
    """The same value out of Python's own types: Ansible's carry marks that YAML's writer does not know."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def read_settings(kind: type[Settings], variables: Mapping[str, Any]) -> Settings:
    """An instance of the dataclass ``kind``, its fields filled with the variables of the same names.

    A variable that is undefined or null leaves the field's default. Raises SettingsError for a value of another type
    and for a variable that is undefined and has no default.
    """
    wanted = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = variables.get(field.name)
        if value is not None:
            given[field.name] = _converted(field.name, plain(value), wanted[field.name], shown=field.repr)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SettingsError(f"{field.name} is undefined or null; give it a value")
    return kind(**given)


def _converted(name: str, value: Any, wanted: Any, shown: bool) -> Any:
    if typing.get_origin(wanted) in (Union, types.UnionType):
        # "" stands for nothing as well: an inventory that switches a value off has no other text for it
        if value == "":
            return None
        [wanted] = [kind for kind in typing.get_args(wanted) if kind is not types.NoneType]
    kind = typing.get_origin(wanted) or wanted
    if kind is Any:
        return value
    article, convert = _CONVERSIONS[kind]
    try:
        return convert(value)
    except (TypeError, ValueError):
        words = repr(value) if shown else "its value (not shown)"
        raise SettingsError(f"{name}: {words} is not {article}; give one") from None


def _integer(value: Any) -> int:
    number = int(value)
    if isinstance(value, bool) or (isinstance(value, float) and number != value):
        raise ValueError(value)
    return number


def _text(value: Any) -> str:
    if isinstance(value, (dict, list)):
        raise TypeError(value)
    # YAML 1.1 reads an unquoted off as false
    return "off" if value is False else str(value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(value)
    return value


_CONVERSIONS: Mapping[Any, tuple[str, Callable[[Any], Any]]] = {
    int: ("an integer", _integer),
    float: ("a number", float),
    bool: ("true or false", boolean),
    str: ("a text", _text),
    list: ("a list", _list),
    dict: ("a mapping", _mapping),
}
