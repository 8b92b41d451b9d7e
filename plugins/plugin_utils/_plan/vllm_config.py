# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the role's variables to the one file of ``vllm serve --config``. Runs on the controller only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import vllm_args
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import option_name

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
    "hf-token": "vllm_serve_hf_token, with vllm_serve_from_hub (the file of arguments is open to all users of a host)",
    "allowed-media-domains": "vllm_serve_media_domains",
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
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*\+?")
_NEGATIVE = re.compile(r"-\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
#: vLLM takes an empty list of domains for all of them. This is none: a URL's host is in small letters, without blanks
NO_DOMAIN = "NO DOMAIN"
_DOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*")


class ServeConfigError(ValueError):
    """One sentence with the variable, the value and the fix."""


def render_args(args: Mapping[str, Any], where: str = "vllm_serve_args") -> dict[str, Any]:
    """The arguments of ``where`` as the file takes them; null takes one away.

    vLLM's file reader turns true into a flag and silently drops false, so false becomes the negated flag; structured
    values are passed on as JSON, which every version takes, and fields (``x.y``) as parts of one. What would become
    another option, or nothing, is refused.
    """
    rendered: dict[str, Any] = {}
    for key, value in _whole(args, where).items():
        name = option_name(key)
        if value is False:
            name, value = (name[3:], True) if name.startswith("no-") else (f"no-{name}", True)
        elif isinstance(value, Mapping) or (
            isinstance(value, list)
            and (name in _JSON_LISTS or any(isinstance(item, (Mapping, list)) for item in value))
        ):
            value = json.dumps(value, sort_keys=True)
        if name in rendered:
            raise ServeConfigError(f"{where}: {key} is given twice, in two spellings; keep one")
        _check_words(f"{where}: {key}", value)
        rendered[name] = value
    positive = [name for name in rendered if f"no-{name}" in rendered]
    if positive:
        raise ServeConfigError(f"{where}: {positive[0]} is both switched on and off; keep one")
    return rendered


def _whole(args: Mapping[str, Any], where: str) -> dict[Any, Any]:
    """The arguments without nulls, and dictionaries of which fields are given as one under the option's name."""
    values: dict[Any, Any] = {}
    fields: dict[str, Any] = {}
    for key, value in args.items():
        if not _NAME.fullmatch(str(key).strip().lstrip("-")):
            raise ServeConfigError(
                f"{where}: {key!r} is not the name of an option; write it as in --help, without dashes"
            )
        name = option_name(key)
        head, dot, _rest = name.partition(".")
        if value is None:
            continue
        _check_owner(key, head, where)
        if dot:
            if name.endswith("+"):
                name, value = name[:-1], value if isinstance(value, list) else str(value).split(",")
            fields[name] = value
        else:
            values[key] = value
    for head in dict.fromkeys(name.partition(".")[0] for name in fields):
        same = [key for key in values if option_name(key) == head]
        parts = vllm_args.fields({**{key: values[key] for key in same}, **fields}, head)
        if any(not isinstance(vllm_args.parsed(values.pop(key)), Mapping) for key in same):
            raise ServeConfigError(
                f"{where}: {head} is given fields ({head}.x) and a value that is no dictionary; keep one of the two"
            )
        values[head] = parts
    return values


def _check_owner(key: object, head: str, where: str) -> None:
    """Refuse what the role decides, also by the beginning of such an option's name, which argparse takes for it."""
    plain = head[3:] if head.startswith("no-") else head
    for name in vllm_args.meant(_ALIASES.get(plain, plain)):
        if name in OWNED:
            short = "" if name == plain or plain in _ALIASES else f" is short for {name}, which"
            raise ServeConfigError(f"{where}: {key}{short} is decided by the role; set {OWNED[name]} instead")


def _check_words(where: str, value: Any) -> None:
    """Each word of a list becomes a word of the command, and one with a dash before it another option."""
    items = value if isinstance(value, list) else [value]
    if value == []:
        raise ServeConfigError(f"{where} is an empty list, which vLLM's file cannot say; remove it, or give null")
    for item in items:
        if isinstance(value, list) and (item is None or isinstance(item, bool)):
            raise ServeConfigError(f"{where} holds {json.dumps(item)} in a list of words; give texts or numbers")
        if isinstance(item, str) and item.lstrip().startswith("-") and not _NEGATIVE.fullmatch(item.strip()):
            raise ServeConfigError(
                f"{where}={item!r} begins with a dash: vLLM would read another option; write it otherwise"
            )


def media_domains(given: Iterable[Any]) -> list[str]:
    """Domains whose media vLLM fetches for a request, as its option takes them; none unless some are given."""
    domains = [str(domain) for domain in given]
    for domain in domains:
        if not _DOMAIN.fullmatch(domain):
            raise ServeConfigError(
                f"vllm_serve_media_domains: {domain!r} is no domain; write it in small letters and without a scheme, a "
                "port or a wildcard, such as images.example.org"
            )
    return domains or [NO_DOMAIN]


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
    domains: Iterable[Any] = (),
) -> dict[str, Any]:
    """The whole file, in an order that reads well."""
    if executor not in ("ray", "mp"):
        raise ServeConfigError(f"vllm_serve_executor: {executor!r} is unknown; choose ray or mp")
    if not model:
        raise ServeConfigError("vllm_serve_model is empty; give a folder on the hosts or a name in the model store")
    names = [served_model_name] if isinstance(served_model_name, str) else [str(name) for name in served_model_name]
    _check_words("vllm_serve_model", model)
    _check_words("vllm_serve_served_model_name", names)
    config: dict[str, Any] = {"model": model}
    if names and names[0]:
        config["served-model-name"] = names[0] if len(names) == 1 else names
    if max_model_len:
        config["max-model-len"] = "auto" if max_model_len == "auto" else int(max_model_len)
    config["tensor-parallel-size"] = int(tensor_parallel_size)
    config["pipeline-parallel-size"] = int(pipeline_parallel_size)
    config["distributed-executor-backend"] = executor
    config["allowed-media-domains"] = media_domains(domains)
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
