# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables of an engine's environment are secrets.

An environment is no place for one: every child gets it, Ray copies it to workers and keeps it in its state, and Docker
shows it.
"""

from __future__ import annotations

import re
from typing import Any

_SECRET = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_KEY)$", re.IGNORECASE)
#: a switch or a number, as of HF_HUB_DISABLE_IMPLICIT_TOKEN
_HARMLESS = re.compile(r"|true|false|yes|no|on|off|\d{1,6}", re.IGNORECASE)
_VARIABLES = {
    "HF_TOKEN": "vllm_serve_hf_token, with vllm_serve_from_hub; the controller fetches models with its own token",
    "HUGGING_FACE_HUB_TOKEN": "vllm_serve_hf_token, with vllm_serve_from_hub",
    "VLLM_API_KEY": "vllm_serve_api_key; the front proxy checks it",
    "RAY_AUTH_TOKEN": "ray_node_token",
}


def secret_name(name: object, value: object) -> bool:
    """Whether a variable is a secret, by its name; a switch or a number is none."""
    return bool(_SECRET.search(str(name))) and not _HARMLESS.fullmatch(str(value))


def secret_fix(name: object) -> str:
    """Where a secret belongs instead."""
    variable: Any = _VARIABLES.get(str(name))
    if variable:
        return f"use {variable}"
    return f"put it into a file that only the user sparkthor may read, and name the file, such as in {name}_FILE"
