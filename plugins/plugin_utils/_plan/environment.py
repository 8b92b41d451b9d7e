# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of an engine's environment: what can be one, which are secrets, and which a recipe may set.

An environment is no place for a secret: every child gets it, Ray copies it to workers and keeps it in its state, and
Docker shows it.

A recipe is somebody else's text, so its names are on a list: numbers and words that choose kernels, sizes and the like.
What leads to a file, a library, a plugin or a host, opens a route or sends data away is the inventory's alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_environment import (
    KERNELS,
    OF_RECIPES,
)

_SECRET = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_KEY)$", re.IGNORECASE)
#: a switch or a number, as of HF_HUB_DISABLE_IMPLICIT_TOKEN
_HARMLESS = re.compile(r"|true|false|yes|no|on|off|\d{1,6}", re.IGNORECASE)
_VARIABLES = {
    "HF_TOKEN": "vllm_serve_hf_token, with vllm_serve_from_hub; the controller fetches models with its own token",
    "HUGGING_FACE_HUB_TOKEN": "vllm_serve_hf_token, with vllm_serve_from_hub",
    # the front proxy checks it, whichever engine is behind it
    **{one.key_variable: "vllm_serve_api_key" for one in registry.ENGINES.values() if one.key_variable},
    "RAY_AUTH_TOKEN": "ray_node_token",
}


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: control characters, and what else some reader takes for the end of a line
_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")
#: no slash, no blank and no address: numbers, switches, the words of a choice, and lists of these
_WORD = re.compile(r"[A-Za-z0-9_.,:+-]{0,64}")
#: what community recipes set besides, and the like in engines, PyTorch and their libraries
_OF_RECIPES = frozenset(
    (
        *OF_RECIPES,
        *("SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK", "SGLANG_PP_LAYER_PARTITION"),
        *("AITER_MXFP4_INTERMEDIATE", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MODULE_LOADING", "CUTE_DSL_ARCH"),
        *("FLASHINFER_CUDA_ARCH_LIST", "FLASHINFER_DISABLE_VERSION_CHECK", "HF_HUB_DISABLE_PROGRESS_BARS"),
        *("HF_HUB_ENABLE_HF_TRANSFER", "HF_XET_HIGH_PERFORMANCE", "LAMPORT_RS_SCONV", "MAX_JOBS", "NVCC_THREADS"),
        *("OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "SAFETENSORS_FAST_GPU"),
        *("TILELANG_CLEANUP_TEMP_FILES", "TOKENIZERS_PARALLELISM", "TORCH_CUDA_ARCH_LIST"),
    )
)


def is_variable_name(name: object) -> bool:
    return _NAME.fullmatch(str(name)) is not None


def problem(name: object, value: object) -> tuple[str, str] | None:
    """What is wrong with a variable, and the fix; no secret is part of it. A null takes a variable away."""
    key = str(name)
    if not is_variable_name(name):
        return f"{key!r} is not the name of an environment variable", (
            "use letters, digits and _, not beginning with a digit"
        )
    if secret_name(key, value):
        return f"{key} is a secret (its value is not shown), which engines show and copy", secret_fix(key)
    if isinstance(value, bool):
        return f"the value of {key} is {str(value).lower()}, which is no text", (
            "write what the program reads, such as '1', '0', 'true' or 'false' in quotes, or null to take it away"
        )
    if isinstance(value, (Mapping, list, tuple)) or _NOT_ONE_LINE.search(str(value)):
        return f"the value of {key} is not one line of text", "give a text without line breaks; put JSON in quotes"
    return None


def not_of_recipe(name: object, value: object) -> tuple[str, str] | None:
    """Why a recipe may not set a variable, and the fix."""
    wrong = problem(name, value)
    if wrong:
        return wrong
    key, text = str(name), str(value)
    if (KERNELS.fullmatch(key) and _NUMBER.fullmatch(text)) or (key in _OF_RECIPES and _WORD.fullmatch(text)):
        return None
    what = "with this value" if key in _OF_RECIPES or KERNELS.fullmatch(key) else "by a recipe"
    return f"{key} is not set {what}: it may lead to a file, a library, a plugin or a host", (
        "take it out; if you mean it, set it in the inventory, in vllm_serve_env"
    )


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One environment of several, the last one's values first; a null takes away what layers before it set."""
    found: dict[str, Any] = {}
    for layer in layers:
        found.update(layer)
    return {name: value for name, value in found.items() if value is not None}


def with_nulls(planned: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What is planned and the user's nulls, which take away variables of the role's as well; the plan's own stay."""
    return {**{name: None for name, value in own.items() if value is None}, **planned}


def secret_name(name: object, value: object) -> bool:
    """Whether a variable is a secret, by its name; a switch or a number is none."""
    return value is not None and bool(_SECRET.search(str(name))) and not _HARMLESS.fullmatch(str(value))


def secret_fix(name: object) -> str:
    """Where a secret belongs instead."""
    variable: Any = _VARIABLES.get(str(name))
    if variable:
        return f"use {variable}"
    return f"put it into a file that only the user sparkthor may read, and name the file, such as in {name}_FILE"
