# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the front proxy's configuration is made of. Runs on the controller only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import address_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

MARKER = "# Ansible managed: sparkthor.cluster"
MINIMUM = 16
#: what RFC 6750 lets a bearer token consist of
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_DURATION = re.compile(r"\d+(?:ms|s|m|h)?")
_SIZE = re.compile(r"\d+[kKmMgG]?")


class FrontError(ValueError):
    """A value that the front proxy cannot take; the message never holds a key."""


def key_map(keys: Iterable[object]) -> str:
    """The lines of nginx's map from the Authorization header to a yes.

    Plain strings of a map are compared without regard to case, so every key becomes an anchored, case-sensitive
    expression.
    """
    lines = [MARKER]
    seen: set[str] = set()
    for number, key in enumerate(keys, 1):
        if not isinstance(key, str) or len(key) < MINIMUM:
            raise FrontError(
                f"vllm_serve_api_key: key number {number} is empty or shorter than {MINIMUM} characters; "
                "give a longer one, or leave the variable undefined and one is generated"
            )
        if not _TOKEN.fullmatch(key):
            raise FrontError(
                f"vllm_serve_api_key: key number {number} holds a character that a bearer token cannot carry; "
                "use letters, digits and . _ ~ + / - only"
            )
        if key not in seen:
            seen.add(key)
            lines.append(f'"~^[Bb]earer {re.escape(key)}$" 1;')
    if not seen:
        raise FrontError("vllm_serve_api_key: the front proxy needs at least one key; there is no open server")
    return "\n".join(lines) + "\n"


def listen_addresses(addresses: Sequence[object], port: object) -> list[str]:
    """``address:port`` as nginx writes it."""
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise FrontError(f"vllm_serve_api_port: {port!r} is no port; give a number from 1 to 65535")
    found: list[str] = []
    for address in addresses:
        try:
            parsed = address_of(str(address))
        except FabricError:  # netaddr is not installed
            raise
        except ValueError:
            raise FrontError(
                f"vllm_serve_listen: {address!r} is no IP address; give addresses of the head, 0.0.0.0 or '::'"
            ) from None
        text = f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"
        if text not in found:
            found.append(text)
    if not found:
        raise FrontError("vllm_serve_listen: the list is empty; give at least one address of the head")
    return found


def checked_duration(value: object, variable: str) -> str:
    text = str(value)
    if not _DURATION.fullmatch(text):
        raise FrontError(f"{variable}: {value!r} is no duration; write seconds, or a number with ms, s, m or h")
    return text


def checked_size(value: object, variable: str) -> str:
    text = str(value)
    if not _SIZE.fullmatch(text):
        raise FrontError(f"{variable}: {value!r} is no size; write bytes, or a number with k, m or g")
    return text


def subject_names(names: Iterable[object]) -> str:
    """subjectAltName of a self-made certificate."""
    found: list[str] = []
    for name in names:
        text = str(name)
        try:
            entry = f"IP:{address_of(text)}"
        except FabricError:  # netaddr is not installed
            raise
        except ValueError:
            if not re.fullmatch(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?", text):
                raise FrontError(f"vllm_serve_tls_names: {text!r} is neither a host name nor an IP address") from None
            entry = f"DNS:{text}"
        if entry not in found:
            found.append(entry)
    return ",".join(found)
