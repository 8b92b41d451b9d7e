# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a planner reads of a host's variables, in one object whose fields are named as the variables are.

Fields without repr() hold secrets, which no message shows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

Settings = TypeVar("Settings")


class SettingsError(ValueError):
    """A variable that a planner needs has no value; the message names it and the fix."""


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


def option_name(key: Any) -> str:
    """`--enable_x`, `enable_x` and `enable-x` are one option; only the part before the first dot is a name."""
    text = str(key).strip().lstrip("-")
    head, dot, rest = text.partition(".")
    return head.replace("_", "-") + dot + rest


def read_settings(kind: type[Settings], variables: Mapping[str, Any]) -> Settings:
    """An instance of the dataclass ``kind`` from variables of their declared types (``role_specs.Declared``).

    A variable that is undefined or null leaves the field's default. Raises SettingsError where there is none.
    """
    given: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        value = variables.get(field.name)
        if value is not None:
            # argument specs know whole numbers of seconds, planners count with parts of them
            given[field.name] = float(value) if field.type == "float" else plain(value)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise SettingsError(f"{field.name} is undefined or null; give it a value")
    return kind(**given)
