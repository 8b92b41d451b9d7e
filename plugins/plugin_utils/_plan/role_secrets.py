# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts with secrets that roles put into files, by name: what the lookup ``role_secret`` answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import SECRETS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import front, ray_tls

#: a secret of the controller by its name; the former API key is empty where there is none
ReadSecret = Callable[[str], str]


def secret(name: str, variables: Mapping[str, Any], read_secret: ReadSecret) -> str:
    """The text of one file, with the end of its last line. Only what it needs is read.

    Raises FrontPlanError and TlsError, ValueError for an unknown name, and KeyError where the plan lacks a host.
    """
    if name == "front_keys":
        return _front_keys(variables, read_secret)
    if name in ("tls_key", "hf_token"):
        return f"{str(variables[f'vllm_serve_{name}']).strip()}\n"
    kind, _sign, part = name.rpartition("_")
    if kind in _PAIRS and part in ("key", "certificate"):
        source, addresses = _PAIRS[kind]
        key, certificate = ray_tls.key_and_certificate(read_secret(source), list(addresses(variables)))
        return key if part == "key" else certificate
    if name not in SECRETS.values():
        raise ValueError(f"{name!r} is not a secret that a role knows")
    return f"{read_secret(name)}\n"


def _front_keys(variables: Mapping[str, Any], read_secret: ReadSecret) -> str:
    main = front.checked_key(read_secret("api_key"), "vllm_serve_api_key")
    former = read_secret("api_key.previous")
    own = [front.NamedKey(front.MAIN, main), *([front.NamedKey(front.PREVIOUS, former)] if former else [])]
    return front.key_map([*own, *front.named_keys(variables.get("vllm_serve_api_keys") or ())])


def _heads(variables: Mapping[str, Any]) -> Iterable[str]:
    """Addresses of all heads: they know each other by a secret that workers, and whoever serves there, do not know."""
    fabric = variables["sparkthor_fabric"]
    groups = variables["sparkthor_cluster"]["groups"]
    return dict.fromkeys(str(fabric[group["head"]]["control_address"]) for group in groups)


def _hosts(variables: Mapping[str, Any]) -> Iterable[str]:
    return [own["control_address"] for own in variables["sparkthor_fabric"].values()]


#: by their beginning, the names of a key and its certificate: the secret that they are made of, and their addresses
_PAIRS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Iterable[str]]]] = {
    "ray_tls": ("ray_token", _hosts),
    "peer": ("peer_secret", _heads),
}
