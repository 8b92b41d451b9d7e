# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang's options: which the role decides, and how its file takes them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

#: options that the role itself decides, with what to set instead
OWNED: dict[str, str] = {
    **dict.fromkeys(("model-path", "model"), "vllm_serve_model"),
    "served-model-name": "vllm_serve_served_model_name",
    "context-length": "vllm_serve_max_model_len",
    **dict.fromkeys(("tp-size", "tensor-parallel-size", "tp"), "vllm_serve_tensor_parallel_size"),
    **dict.fromkeys(("pp-size", "pipeline-parallel-size", "pp"), "vllm_serve_pipeline_parallel_size"),
    **dict.fromkeys(("nnodes", "node-rank"), "nothing: hosts and ranks follow the inventory"),
    **dict.fromkeys(("dist-init-addr", "nccl-init-addr"), "vllm_serve_master_port"),
    "host": "vllm_serve_listen (the front proxy listens; the engine itself is reached from its host alone)",
    "port": "vllm_serve_engine_port",
    **dict.fromkeys(("api-key", "admin-api-key"), "vllm_serve_api_keys (the front proxy checks keys)"),
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs"), "vllm_serve_tls (the front proxy speaks TLS)"),
    "enable-metrics": "nothing: the watchdog reads them",
    "config": "vllm_serve_args itself: it becomes the configuration file",
}
#: of the role's variables, which are named as another engine's options are: what says the same here
_SAME = {"enable-auto-tool-choice": None, "enable-prefix-caching": "disable-radix-cache"}
#: parsers that are called otherwise
_PARSERS = {"deepseek_r1": "deepseek-r1", "minimax_m2": "minimax-m2", "qwen3_coder": "qwen3_coder", "openai": "gpt-oss"}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_CACHES = {"auto": "auto", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def checked(args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arguments under their plain names, as its file takes them; null stays, to take one away.

    Raises RecipeError for what the role decides, and for what the file cannot say: it takes flags and single values.
    """
    found: dict[str, Any] = {}
    for key, value in args.items():
        name = str(key).strip().lstrip("-").replace("_", "-")
        if not _NAME.fullmatch(name):
            raise RecipeError(f"{where}: {key!r} is not the name of an option; write it without dashes", "arguments")
        owned = next((full for full in OWNED if full == name or (len(name) > 2 and full.startswith(name))), "")
        if owned:
            short = "" if owned == name else f" is short for {owned}, which"
            raise RecipeError(f"{where}: {key}{short} is decided by the role; set {OWNED[owned]} instead", "arguments")
        if name in _SAME:
            other = _SAME[name]
            if other:
                found[other] = None if value is None else not value
            continue
        if isinstance(value, (list, Mapping)):
            raise RecipeError(
                f"{where}: {key} holds {type(value).__name__}, and this engine's file takes flags and single values; "
                "give one text",
                "arguments",
            )
        if isinstance(value, str) and value.lstrip().startswith("-") and not re.fullmatch(r"-[\d.]+", value.strip()):
            raise RecipeError(f"{where}: {key}={value!r} begins with a dash, which reads as an option", "arguments")
        if name in ("reasoning-parser", "tool-call-parser"):
            value = _PARSERS.get(str(value), value)
        if name in found:
            raise RecipeError(f"{where}: {key} is given twice, in two spellings; keep one", "arguments")
        found[name] = value
    return found


def cache_dtype(name: str) -> str:
    """The memory plan's name of a cache's dtype. Raises RecipeError for one that is not planned."""
    if name not in _CACHES:
        raise RecipeError(
            f"vllm_serve_args: kv-cache-dtype={name!r} is not planned here; use one of {', '.join(_CACHES)}",
            "arguments",
        )
    return _CACHES[name]


def words(args: Mapping[str, Any]) -> list[str]:
    """As a person would write them."""
    found: list[str] = []
    for name, value in args.items():
        if value is True:
            found.append(f"--{name}")
        elif value is not False:
            found += [f"--{name}", str(value)]
    return found
