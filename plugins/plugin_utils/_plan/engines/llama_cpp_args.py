# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""llama.cpp's options: which the role decides, and which decide sizes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import beside
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

#: options that the role itself decides, by all their names, with what to set instead
OWNED: dict[str, str] = {
    **dict.fromkeys(
        ("model", "m", "hf-repo", "hf", "hfr", "hf-file", "hff", "model-url", "mu", "docker-repo", "dr"),
        "vllm_serve_model",
    ),
    **dict.fromkeys(("alias", "a"), "vllm_serve_served_model_name"),
    **dict.fromkeys(("ctx-size", "c"), "vllm_serve_max_model_len, the length of one request"),
    "host": "vllm_serve_listen (the front proxy listens; the engine itself is reached by its socket)",
    "port": "vllm_serve_api_port (the front proxy listens)",
    **dict.fromkeys(("api-key", "api-key-file"), "vllm_serve_api_keys (the front proxy checks keys)"),
    **dict.fromkeys(("ssl-key-file", "ssl-cert-file"), "vllm_serve_tls (the front proxy speaks TLS)"),
    "rpc": "vllm_serve_rpc_port: the hosts follow the inventory",
    **dict.fromkeys(("tensor-split", "ts"), "nothing: layers follow the hosts' memory"),
    **dict.fromkeys(("fit", "fit-target", "fitt", "fit-ctx", "fitc"), "nothing: the memory is planned"),
    "metrics": "nothing: the watchdog reads them",
    # from inside the cluster, and no option of its own limits that
    **dict.fromkeys(
        ("mmproj", "mm", "mmproj-url", "mmu", "mmproj-auto"),
        "another serving_engine for images (with them this one fetches whatever URL a request names)",
    ),
    **dict.fromkeys(("offline", "no-ui", "version", "help"), "nothing: it is always so"),
}
#: control characters, and what else some reader takes for the end of a line
_NOT_ONE_LINE = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
#: other names of options that decide sizes, and short ones, which our file does not take
_SAME = {
    **{"fa": "flash-attn", "t": "threads", "tb": "threads-batch", "b": "batch-size", "ot": "override-tensor"},
    **{"cmoe": "cpu-moe", "ncmoe": "n-cpu-moe", "sm": "split-mode", "mg": "main-gpu", "dev": "device"},
    **{"np": "parallel", "ub": "ubatch-size", "ctk": "cache-type-k", "ctv": "cache-type-v", "cram": "cache-ram"},
    **{"ctxcp": "ctx-checkpoints", "swa-checkpoints": "ctx-checkpoints"},
    "ngl": "gpu-layers",
    "n-gpu-layers": "gpu-layers",
}


def checked(args: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arguments under their plain names; null stays, to take one away.

    Raises RecipeError for what the role decides, for what it cannot do, and for what is no flag and no single value.
    """
    found: dict[str, Any] = {}
    for key, value in args.items():
        name = option_name(key)
        if not _NAME.fullmatch(name):
            raise RecipeError(f"{where}: {key!r} is not the name of an option; write it without dashes", "arguments")
        if name in OWNED:
            raise RecipeError(f"{where}: {key} is decided by the role; set {OWNED[name]} instead", "arguments")
        if isinstance(value, (list, Mapping)):
            raise RecipeError(f"{where}: {key} holds {type(value).__name__}; give a flag or one value", "arguments")
        text = str(value)
        if isinstance(value, str) and (re.match(r"\s*-(?![\d.]+\s*\Z)", text) or _NOT_ONE_LINE.search(text)):
            raise RecipeError(
                f"{where}: {key}={value!r} begins with a dash or holds a control character; correct it", "arguments"
            )
        if name == "enable-prefix-caching":
            # of the role's variables, which are named as another engine's options are
            name, value = "no-cache-prompt", None if value is None else not value
        elif name == "kv-cache-dtype":
            found |= {"cache-type-k": value, "cache-type-v": value}
            continue
        name = _SAME.get(name, name)
        if name in found:
            raise RecipeError(f"{where}: {key} is given twice, in two spellings; keep one", "arguments")
        found[name] = value
    return found


def sizes(args: Mapping[str, Any]) -> dict[str, Any]:
    """What of the arguments decides sizes, by the names of the memory plan's options. Raises RecipeError."""
    keys, values = (str(args.get(f"cache-type-{one}", "f16")) for one in "kv")
    if keys != values:
        raise RecipeError(
            f"vllm_serve_args: cache-type-k={keys} and cache-type-v={values} differ, and the plan has one type for "
            "both; set vllm_serve_kv_cache_dtype",
            "arguments",
        )
    found: dict[str, Any] = {"kv_cache_dtype": keys}
    for option, ours in (
        ("parallel", "max_num_seqs"),
        ("ubatch-size", "max_num_batched_tokens"),
        ("cache-ram", "prompt_cache_mib"),
    ):
        if option in args:
            found[ours] = _whole(option, args[option])
    return {**found, **beside.read(args, beside.OF_LLAMA_CPP)}


def _whole(option: str, value: Any) -> int:
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,9}", str(value)):
        raise RecipeError(f"vllm_serve_args: {option}={value!r} is not a whole number; give one", "arguments")
    return int(value)


def words(args: Mapping[str, Any]) -> list[str]:
    """As the program is given them."""
    found: list[str] = []
    for name, value in args.items():
        if value is True:
            found.append(f"--{name}")
        elif value is not False:
            found += [f"--{name}", str(value)]
    return found
