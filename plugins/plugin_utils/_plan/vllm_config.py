# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the role's variables to the one file of ``vllm serve --config``. Runs on the controller only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

#: options that the role itself decides, with what to set instead
OWNED: dict[str, str] = {
    "model": "vllm_serve_model",
    "served-model-name": "vllm_serve_served_model_name",
    "max-model-len": "vllm_serve_max_model_len",
    "tensor-parallel-size": "vllm_serve_tensor_parallel_size",
    "pipeline-parallel-size": "vllm_serve_pipeline_parallel_size",
    "distributed-executor-backend": "vllm_serve_executor",
    "host": "vllm_serve_listen (the front proxy listens; vLLM itself is reached through a UNIX socket only)",
    "port": "vllm_serve_api_port (the front proxy listens; vLLM itself is reached through a UNIX socket only)",
    "uds": "nothing: the front proxy and the watchdog know the socket by its place",
    "api-key": "vllm_serve_api_key (the front proxy checks the key; vLLM never holds it)",
    "ssl-keyfile": "vllm_serve_tls (the front proxy speaks TLS)",
    "ssl-certfile": "vllm_serve_tls (the front proxy speaks TLS)",
    "ssl-ca-certs": "vllm_serve_tls (the front proxy speaks TLS)",
    "config": "vllm_serve_args itself: it becomes the configuration file",
    "headless": "vllm_serve_executor: mp (the role knows which hosts serve no API)",
    "nnodes": "vllm_serve_executor: mp (the number of hosts is known)",
    "node-rank": "vllm_serve_executor: mp (ranks follow the inventory)",
    "master-addr": "vllm_serve_executor: mp (the head's control address is known)",
    "master-port": "vllm_serve_master_port",
}
#: short forms that vLLM knows beside the long ones
_ALIASES = {
    "tp": "tensor-parallel-size",
    "pp": "pipeline-parallel-size",
    "tensor-parallel": "tensor-parallel-size",
    "n": "nnodes",
    "r": "node-rank",
}

#: vLLM's own log of requests, which repeats the front proxy's with query strings and the watchdog's questions
_ACCESS_LOG = "disable-uvicorn-access-log"
#: without it a stream says its tokens only if its client asks
_USAGE = "enable-force-include-usage"

#: lists that vLLM takes as one JSON text, not as several words
_JSON_LISTS = ("allowed-origins", "allowed-methods", "allowed-headers")


class ServeConfigError(ValueError):
    """One sentence with the variable, the value and the fix."""


def option_name(key: object) -> str:
    """``--enable_x`` and ``enable-x`` are one option; vLLM's file wants the second."""
    return str(key).strip().lstrip("-").replace("_", "-") if not isinstance(key, str) or "." not in key else str(key)


def render_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """The user's arguments as the file takes them.

    vLLM's file reader turns true into a flag and silently drops false, so false becomes the negated flag; structured
    values are passed on as JSON, which every version takes.
    """
    rendered: dict[str, Any] = {}
    for key, value in args.items():
        name = option_name(key)
        plain = _ALIASES.get(name, name)
        if plain in OWNED:
            raise ServeConfigError(f"vllm_serve_args: {key} is decided by the role; set {OWNED[plain]} instead")
        if value is None:
            continue
        if value is False:
            name, value = (name[3:], True) if name.startswith("no-") else (f"no-{name}", True)
        elif isinstance(value, Mapping) or (
            isinstance(value, list)
            and (name in _JSON_LISTS or any(isinstance(item, (Mapping, list)) for item in value))
        ):
            value = json.dumps(value, sort_keys=True)
        if name in rendered:
            raise ServeConfigError(f"vllm_serve_args: {key} is given twice, in two spellings; keep one")
        rendered[name] = value
    positive = [name for name in rendered if f"no-{name}" in rendered]
    if positive:
        raise ServeConfigError(f"vllm_serve_args: {positive[0]} is both switched on and off; keep one")
    return rendered


def serve_config(
    args: Mapping[str, Any],
    *,
    model: str,
    served_model_name: str | Iterable[str] = "",
    max_model_len: int | str | None = None,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    executor: str = "ray",
    socket: str = "",
    hosts: int = 1,
    rank: int = 0,
    master_address: str = "",
    master_port: int = 29501,
    says_usage: bool = False,
) -> dict[str, Any]:
    """The whole file, in an order that reads well."""
    if executor not in ("ray", "mp"):
        raise ServeConfigError(f"vllm_serve_executor: {executor!r} is unknown; choose ray or mp")
    if not model:
        raise ServeConfigError("vllm_serve_model is empty; give a folder on the hosts or a name in the model store")
    names = [served_model_name] if isinstance(served_model_name, str) else [str(name) for name in served_model_name]
    config: dict[str, Any] = {"model": model}
    if names and names[0]:
        config["served-model-name"] = names[0] if len(names) == 1 else names
    if max_model_len:
        config["max-model-len"] = "auto" if max_model_len == "auto" else int(max_model_len)
    config["tensor-parallel-size"] = int(tensor_parallel_size)
    config["pipeline-parallel-size"] = int(pipeline_parallel_size)
    config["distributed-executor-backend"] = executor
    if executor == "mp" and hosts > 1:
        if not master_address:
            raise ServeConfigError("the head has no control address; mp over several hosts needs one")
        config["nnodes"] = hosts
        config["node-rank"] = rank
        config["master-addr"] = master_address
        config["master-port"] = int(master_port)
    if rank > 0:
        config["headless"] = True
    else:
        config["uds"] = socket
        if not {_ACCESS_LOG, f"no-{_ACCESS_LOG}", "enable-uvicorn-access-log"} & {option_name(key) for key in args}:
            config[_ACCESS_LOG] = True
    rendered = render_args(args)
    if says_usage:
        if rendered.get(_USAGE, True) is not True or {f"no-{_USAGE}", "disable-force-include-usage"} & set(rendered):
            raise ServeConfigError(
                f"vllm_serve_args: {_USAGE} is off, and a key of vllm_serve_api_keys has a limit of tokens, which "
                "streams then would not count in; remove the argument, or the limits"
            )
        if not rank:
            config[_USAGE] = True
    config.update(sorted(rendered.items()))
    return config
