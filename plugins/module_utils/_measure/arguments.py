# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of C(cluster_verify), which its action plugin and its module both validate."""

from __future__ import annotations

from typing import Any

#: stages that run on the hosts; the others run on the controller
MEASURING = ("agent", "links", "collective", "burn", "serving")
PARTS = ("links", "collective", "ray", "serving")
ARGUMENTS: dict[str, Any] = {
    "stage": {"type": "str", "choices": ["plan", *MEASURING, "verdict"], "default": "plan"},
    "nodes": {"type": "str"},
    "plan": {"type": "dict", "default": {}},
    "links": {"type": "str"},
    "collective": {"type": "str"},
    "burn": {"type": "str"},
    "named": {"type": "bool", "default": True},
    "serving": {"type": "str"},
    "parts": {"type": "list", "elements": "str", "choices": [*PARTS, "burn"], "default": list(PARTS)},
    "thresholds": {"type": "dict", "default": {}},
    "folder": {"type": "path"},
    "query": {"type": "str"},
    "seconds": {"type": "float", "default": 1.0},
    "streams": {"type": "int", "default": 4},
    "largest": {"type": "int", "default": 134217728},
    "limit": {"type": "float", "default": 90.0},
    "address": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "default": 29560},
    "group": {"type": "str", "default": ""},
    "tokens": {"type": "int", "default": 128, "no_log": False},
}
