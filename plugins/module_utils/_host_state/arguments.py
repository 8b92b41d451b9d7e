# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of the module ``host_state``, which ``host_compare`` takes as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STRINGS: dict[str, Any] = {"type": "list", "elements": "str", "default": []}
_NAME: dict[str, Any] = {"type": "str", "required": True}


def argument_spec() -> dict[str, Any]:
    """Every option; the controller has left out what is switched off, and rendered the templates."""
    return {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "groups": _items({"name": _NAME, "system": {"type": "bool", "default": True}}),
        "users": _items(
            {
                "name": _NAME,
                "system": {"type": "bool", "default": True},
                "groups": _STRINGS,
                "home": {"type": "str"},
                "shell": {"type": "str"},
            }
        ),
        "directories": _items({**_owned("0755"), "own": {"type": "raw"}}),
        "files": _files(),
        "links": _items({"path": {"type": "path", "required": True}, "target": {"type": "str", "required": True}}),
        "absent": {"type": "list", "elements": "path", "default": []},
        "restore": {"type": "list", "elements": "raw", "default": []},
        "sysctls": _items({"name": _NAME, "value": {"type": "str", "required": True}}),
        "units": _units(),
        "timeout": {"type": "int", "default": 300},
        "only": {"type": "list", "elements": "str", "default": []},
    }


def _owned(mode: str | None) -> dict[str, Any]:
    return {
        "path": {"type": "path", "required": True},
        "owner": {"type": "str", "default": "root"},
        "group": {"type": "str"},
        "mode": {"type": "str", "default": mode} if mode else {"type": "str"},
    }


def _items(options: dict[str, Any], **rules: Any) -> dict[str, Any]:
    options = {**options, "when": {"type": "raw"}}
    return {"type": "list", "elements": "dict", "default": [], "options": options, **rules}


def _files() -> dict[str, Any]:
    texts = ("content", "template", "src", "from_secret")
    sources = (*texts, "programs")
    read_by_others = ("kept", "own", "restarts")
    return _items(
        {
            **_owned(None),
            **{name: {"type": "str", "no_log": False} for name in texts},
            **{name: {"type": "bool"} for name in ("programs", *read_by_others)},
            "secret": {"type": "bool", "default": False, "no_log": False},
            "foreign": {"type": "str", "choices": ["replace", "refuse", "adopt"], "default": "replace"},
            "backup": {"type": "bool", "default": True},
        },
        required_one_of=[sources],
        mutually_exclusive=[sources],
    )


def _units() -> dict[str, Any]:
    return _items(
        {
            "name": {"type": "str"},
            "names": {"type": "list", "elements": "str"},
            "enabled": {"type": "bool"},
            "masked": {"type": "bool"},
            "state": {"type": "str", "choices": ["started", "stopped", "restarted", "reloaded"]},
            "restart_on": _STRINGS,
            "reload_on": _STRINGS,
            "environment": {"type": "dict", "default": {}},
            "program_from": {"type": "path"},
            "optional": {"type": "bool", "default": False},
            "spare_desktop": {"type": "bool", "default": False},
            "no_block": {"type": "bool", "default": False},
            "defer": {"type": "bool", "default": False},
        },
        required_one_of=[("name", "names")],
    )


def checked(spec: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A module's arguments as the module itself would see them, for who compares before it is called.

    Raises ValueError.
    """
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

    result = ArgumentSpecValidator(spec).validate(dict(arguments))
    if result.error_messages:
        raise ValueError("; ".join(result.error_messages))
    return dict(result.validated_parameters)
