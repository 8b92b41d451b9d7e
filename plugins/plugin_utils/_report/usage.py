# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last lines of site.yml: where the API is, what it serves, where the key lies, and a command that uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front


class Api(NamedTuple):
    """What a client has to know."""

    url: str  # up to and with /v1
    #: under which it is served, the first in the examples
    names: tuple[str, ...]
    key_file: str  # on the controller; empty where the user gave the key
    tls: str  # off, self_signed or given
    pooling: bool = False
    #: whether the head has a page for browsers
    page: bool = False
    #: of the heads that have the URL's address in turn, each with a certificate of its own
    heads: tuple[str, ...] = ()


def endpoint(address: str, port: int, tls: str, names: list[str], listen: list[str]) -> str:
    """The URL of the API: by a name of the certificate, else by the address that the front proxy listens on."""
    open_to_all = {"0.0.0.0", "::", "*"}
    named = [name for name in names if not name.startswith("*")] if tls != "off" else []
    bound = [item for item in listen if item not in open_to_all] if not open_to_all & set(listen) else []
    return front.api_url((named or bound or [address])[0], port, tls != "off")


def pools(args: Mapping[str, Any]) -> bool:
    """Whether a model is served for its vectors or scores; one that the engine takes for such is not told here."""
    return str(args.get("runner", "")) == "pooling" or str(args.get("convert", "")) in ("embed", "classify", "reward")


def other_models(groups: Sequence[Mapping[str, Any]], own: str) -> list[str]:
    """What else the same API serves, where there are several serving groups."""
    others = [
        f"{group['names'][0]} (by {group['group']} on {group['head']})" for group in groups if group["group"] != own
    ]
    return [f"The same API serves {', '.join(others)}; so does that of every head: docs/groups.md"] if others else []


def lines(api: Api) -> list[str]:
    key = f"$(cat {api.key_file})" if api.key_file else "$KEY"
    trust = "--cacert head.pem " if api.tls == "self_signed" else ""
    body: dict[str, Any] = {"model": api.names[0]}
    if api.pooling:
        path, body["input"] = "embeddings", "hello"
    else:
        path, body["messages"] = "chat/completions", [{"role": "user", "content": "Say hello."}]
    text = [
        f"The API is at {api.url}, and the model is called {' or '.join(api.names)}.",
        f"Its key is in {api.key_file}."
        if api.key_file
        else "Its key is the one that you set as vllm_serve_api_key (KEY below).",
    ]
    if api.page:
        text.append(f"In a browser, with that key: {front.page_url(api.url)} shows the cluster, and has a chat.")
    if api.heads:
        text.append(f"One of the heads has that address, and the next one takes it over: {', '.join(api.heads)}.")
    if trust and api.heads:
        port = api.url.removesuffix("/v1").rpartition(":")[2]
        text.append(
            f"Their certificates, once for each client: for head in {' '.join(api.heads)}; do openssl s_client "
            f"-connect $head:{port} </dev/null 2>/dev/null | openssl x509; done >head.pem"
        )
    elif trust:
        host = api.url.removeprefix("https://").removesuffix("/v1")
        text.append(
            f"Its certificate, once for each client: openssl s_client -connect {host} </dev/null 2>/dev/null | openssl "
            "x509 >head.pem"
        )
    text.append(
        f"Try it: curl {trust}{api.url}/{path} -H \"Authorization: Bearer {key}\" -H 'Content-Type: application/json' "
        f"-d '{json.dumps(body)}'"
    )
    return [*text, "Other clients: docs/clients.md"]
