# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments that the modules of an engine have in common; plugins/doc_fragments/engine.py documents them."""

from __future__ import annotations

from typing import Any

#: what the engine is installed from
SOURCES: dict[str, Any] = {
    "requirements": {"type": "str", "required": True},
    "wheel_dir": {"type": "str"},
    "download": {"type": "bool", "default": True},
    "ray_version": {"type": "str"},
    "engine_version": {"type": "str"},
}
#: an engine that is no lock but a few programs, and which engine it is
PROGRAMS: dict[str, Any] = {
    "engine": {"type": "str", "default": ""},
    "programs": {"type": "str", "default": ""},
}
#: how it comes to a host
INSTALLED: dict[str, Any] = {
    **SOURCES,
    "keep": {"type": "int", "default": 1},
    "calls": {"type": "list", "elements": "str", "default": []},
    "activate": {"type": "bool", "default": True},
    "deliver": {"type": "str", "choices": ["direct", "fabric"], "default": "direct"},
    "timeout": {"type": "int", "default": 3600},
    "target": {"type": "dict", "default": {}},
}
