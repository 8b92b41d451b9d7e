# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of the module ``host_state``, which ``host_compare`` takes as well."""

from __future__ import annotations

from typing import Any


def argument_spec() -> dict[str, Any]:
    def owned(mode: str | None) -> dict[str, Any]:
        return {
            "path": {"type": "path", "required": True},
            "owner": {"type": "str", "default": "root"},
            "group": {"type": "str"},
            "mode": {"type": "str", "default": mode} if mode else {"type": "str"},
        }

    def items(options: dict[str, Any], **rules: Any) -> dict[str, Any]:
        # the controller has left out what is switched off
        options = {**options, "when": {"type": "raw"}}
        return {"type": "list", "elements": "dict", "default": [], "options": options, **rules}

    strings = {"type": "list", "elements": "str", "default": []}
    return {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "groups": items({"name": {"type": "str", "required": True}, "system": {"type": "bool", "default": True}}),
        "users": items(
            {
                "name": {"type": "str", "required": True},
                "system": {"type": "bool", "default": True},
                "groups": strings,
                "home": {"type": "str"},
                "shell": {"type": "str"},
            }
        ),
        "directories": items({**owned("0755"), "own": {"type": "bool"}}),
        "files": items(
            {
                **owned(None),
                "content": {"type": "str"},
                "template": {"type": "str"},
                "src": {"type": "str"},
                "secret": {"type": "bool", "default": False, "no_log": False},
                "foreign": {"type": "str", "choices": ["replace", "refuse", "adopt"], "default": "replace"},
                "backup": {"type": "bool", "default": True},
            },
            required_one_of=[("content", "template", "src")],
            mutually_exclusive=[("content", "template", "src")],
        ),
        "links": items({"path": {"type": "path", "required": True}, "target": {"type": "str", "required": True}}),
        "absent": {"type": "list", "elements": "path", "default": []},
        "restore": {"type": "list", "elements": "raw", "default": []},
        "sysctls": items({"name": {"type": "str", "required": True}, "value": {"type": "str", "required": True}}),
        "units": items(
            {
                "name": {"type": "str"},
                "names": {"type": "list", "elements": "str"},
                "enabled": {"type": "bool"},
                "masked": {"type": "bool"},
                "state": {"type": "str", "choices": ["started", "stopped", "restarted", "reloaded"]},
                "restart_on": strings,
                "reload_on": strings,
                "environment": {"type": "dict", "default": {}},
                "program_from": {"type": "path"},
                "optional": {"type": "bool", "default": False},
                "spare_desktop": {"type": "bool", "default": False},
                "no_block": {"type": "bool", "default": False},
                "defer": {"type": "bool", "default": False},
            },
            required_one_of=[("name", "names")],
        ),
        "timeout": {"type": "int", "default": 300},
    }
