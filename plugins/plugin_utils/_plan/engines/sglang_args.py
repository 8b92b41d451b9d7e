# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang's options: which the role decides, and how its file takes them. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

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
#: other names of an option
_ALIASES = {
    **dict.fromkeys(("ep", "expert-parallel-size"), "ep-size"),
    "data-parallel-size": "dp-size",
    "enable-hicache": "enable-hierarchical-cache",
}
#: parsers that are called otherwise
_PARSERS = {"deepseek_r1": "deepseek-r1", "minimax_m2": "minimax-m2", "qwen3_coder": "qwen3_coder", "openai": "gpt-oss"}
#: what its file takes instead of an option that only its command line does
_INSTEAD = {
    "disable-cuda-graph": "set disable-decode-cuda-graph: true and disable-prefill-cuda-graph: true",
    "cuda-graph-backend-prefill": "set disable-prefill-cuda-graph: true, or leave it out",
    "enable-dp-attention": "set attn-dp-size",
}
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_CACHES = {"auto": "auto", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "bf16": "bfloat16", "bfloat16": "bfloat16"}


def checked(args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arguments under their plain names, as its file takes them; null stays, to take one away.

    Raises RecipeError for what the role decides, and for what the file cannot say: it takes flags and single values.
    """
    found: dict[str, Any] = {}
    for key, value in args.items():
        name = _ALIASES.get(option_name(key), option_name(key))
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
        if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(one, list) for one in value)):
            raise RecipeError(
                f"{where}: {key} holds {type(value).__name__}, and this engine's file takes flags, values and lists of "
                "them; give one text, such as JSON",
                "arguments",
            )
        texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
        if any(one.lstrip().startswith("-") and not re.fullmatch(r"-[\d.]+", one.strip()) for one in texts):
            raise RecipeError(f"{where}: {key}={value!r} begins with a dash, which reads as an option", "arguments")
        if name in ("reasoning-parser", "tool-call-parser"):
            value = _PARSERS.get(str(value), value)
        if name in found:
            raise RecipeError(f"{where}: {key} is given twice, in two spellings; keep one", "arguments")
        found[name] = value
    return found


def problems(args: Mapping[str, Any], table: Mapping[str, Any]) -> list[Finding]:
    """What the installed SGLang would refuse at its start, or read otherwise, by the table of its own options."""
    options = table["options"]
    named = {other: name for name, entry in options.items() for other in (name, *_list(entry.get("aliases")))}
    found = []
    for name, value in args.items():
        if name not in named:
            # its parser takes a beginning of a name for the whole; what is meant must stand in the file
            close = difflib.get_close_matches(name, named, n=1, cutoff=0.6)
            fix = f"did you mean {close[0]}" if close else "see `sglang serve --help` of that version"
            what = f"SGLang {table['sglang']} has no such option"
            found.append(Finding("unknown", what, fix, where=name, value=value))
        elif wrong := _wrong(named[name], value, options[named[name]]):
            found.append(Finding("value", wrong[0], wrong[1], where=name, value=value))
    return found


def _list(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _wrong(name: str, value: Any, entry: Mapping[str, Any]) -> tuple[str, str] | None:
    """(what is wrong with an option's value, what to do); None where nothing is."""
    kind, choices = str(entry.get("kind")), _list(entry.get("choices"))
    if kind == "action":
        return "is taken on its command line alone, and it is started with a file", _INSTEAD.get(name, "leave it out")
    if kind == "flag":
        return None if isinstance(value, bool) else ("is a switch", "give true or false")
    if isinstance(value, bool):
        return "takes a value and is no switch", f"give {'one of ' + ', '.join(choices) if choices else 'its value'}"
    if isinstance(value, list) and kind != "list":
        return "takes one value", "give one text"
    for one in value if isinstance(value, list) else [value]:
        if kind in ("int", "float") and not _number(one, kind):
            return f"is not {'a whole number' if kind == 'int' else 'a number'}", "give one"
        if choices and str(one) not in choices:
            close = difflib.get_close_matches(str(one), choices, n=1, cutoff=0.6)
            return "is none of its values", f"did you mean {close[0]}" if close else f"use one of {', '.join(choices)}"
    return None


def _number(value: Any, kind: str) -> bool:
    try:
        float(value) if kind == "float" else int(str(value))
    except (TypeError, ValueError):
        return False
    return True


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
            found += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return found
