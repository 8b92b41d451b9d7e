# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the front proxy's configuration is made of. Runs on the controller only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import MINIMUM_SECRET_LENGTH
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import address_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError

MARKER = "# Ansible managed: sparkthor.cluster"
#: for which a key may have a limit of tokens
PERIODS = ("minute", "month")
#: names of keys that the access log uses for those that are not in vllm_serve_api_keys
MAIN, PREVIOUS = RESERVED = ("default", "previous")
#: what a key may do on the page of a head
CONSOLE_RIGHTS = ("none", "view", "operate")
#: topologies whose hosts talk over a network that others use as well
SHARED_LANS = ("lan", "ring", "line")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
#: what RFC 6750 lets a bearer token consist of
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_HOST_NAME = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?")
_DURATION = re.compile(r"\d+(?:ms|s|m|h)?")
_SIZE = re.compile(r"\d+[kKmMgG]?")


class FrontPlanError(ValueError):
    """A value that the front proxy cannot take; the message never holds a key."""


@dataclass(frozen=True)
class NamedKey:
    name: str
    key: str = field(repr=False)
    #: 0 = as many as come
    requests_per_minute: int = 0
    #: names of the models that it may ask for; empty = all
    models: tuple[str, ...] = ()
    #: tokens of prompts and answers; 0 = as many as come
    tokens_per_minute: int = 0
    tokens_per_month: int = 0
    #: one of ``CONSOLE_RIGHTS``
    console: str = "none"


def peer_addresses(fabric: Mapping[str, Mapping[str, object]]) -> list[str]:
    """From which the hosts of the inventory ask a head; a name is none that nginx can compare."""
    found = (str(own.get(name) or "") for own in fabric.values() for name in ("control_address", "management_address"))
    return sorted({address for address in found if is_address(address)})


def label(name: str) -> str:
    """The name of a model as a word of a line, for nginx and for Prometheus."""
    return re.sub(r"[^A-Za-z0-9._:/@+-]", "_", name)[:256] or "-"


def named_keys(given: Iterable[object]) -> list[NamedKey]:
    """``vllm_serve_api_keys``, checked. Raises FrontPlanError."""
    keys: list[NamedKey] = []
    for number, entry in enumerate(given, 1):
        where = f"vllm_serve_api_keys: entry number {number}"
        if not isinstance(entry, Mapping):
            raise FrontPlanError(f"{where} is not a mapping; give name and key")
        name, rate = str(entry.get("name") or ""), entry.get("requests_per_minute") or 0
        if not _NAME.fullmatch(name) or name in RESERVED:
            raise FrontPlanError(
                f"{where}: the name {name!r} cannot be used; take up to 32 lower-case letters, digits, - and _, and "
                f"none of {', '.join(RESERVED)}"
            )
        if name in [known.name for known in keys]:
            raise FrontPlanError(f"{where}: the name {name!r} is there already; every key has a name of its own")
        if isinstance(rate, bool) or not re.fullmatch(r"[0-9]{1,6}", str(rate)):
            raise FrontPlanError(
                f"{where} ({name}): requests_per_minute {rate!r} is not a whole number up to 999999; give one, or 0 "
                "for no limit"
            )
        minute, month = (_token_limit(entry, period, f"{where} ({name})") for period in PERIODS)
        key = checked_key(entry.get("key"), f"vllm_serve_api_keys: {name}")
        for known in keys:
            if known.key == key:
                raise FrontPlanError(f"{where}: {name} has the key of {known.name}; give each a key of its own")
        models = entry.get("models") or []
        if not isinstance(models, list) or not all(isinstance(model, str) and model for model in models):
            raise FrontPlanError(
                f"{where} ({name}): models {models!r} is not a list of names of models; give one, or leave it out"
            )
        right = entry.get("console") or "none"
        if right not in CONSOLE_RIGHTS:
            raise FrontPlanError(f"{where} ({name}): console {right!r} is none of {', '.join(CONSOLE_RIGHTS)}")
        keys.append(NamedKey(name, key, int(rate), tuple(models), minute, month, str(right)))
    return keys


def _token_limit(entry: Mapping[str, object], period: str, where: str) -> int:
    variable = f"tokens_per_{period}"
    value = entry.get(variable) or 0
    if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,13}", str(value)):
        raise FrontPlanError(
            f"{where}: {variable} {value!r} is not a whole number up to 9999999999999; give one, or 0 for no limit"
        )
    return int(str(value))


def console_rights(keys: Iterable[NamedKey]) -> dict[str, str]:
    """By name of the key what it may do on the page; the cluster's own key may look and chat."""
    return {MAIN: "view", **{key.name: key.console for key in keys if key.console != "none"}}


def token_limits(keys: Iterable[NamedKey]) -> dict[str, dict[str, int]]:
    """By name of the key what it may take in a minute and in a month, of those with such a limit."""
    found: dict[str, dict[str, int]] = {}
    for key in keys:
        limits = {"minute": key.tokens_per_minute, "month": key.tokens_per_month}
        if any(limits.values()):
            found[key.name] = {period: limit for period, limit in limits.items() if limit}
    return found


def checked_key(key: object, where: str) -> str:
    """The key itself. Raises FrontPlanError, in which it is not."""
    if not isinstance(key, str) or len(key) < MINIMUM_SECRET_LENGTH:
        raise FrontPlanError(
            f"{where}: the key is empty or shorter than {MINIMUM_SECRET_LENGTH} characters; give a longer one"
        )
    if not _TOKEN.fullmatch(key):
        raise FrontPlanError(
            f"{where}: the key holds a character that a bearer token cannot carry; use letters, digits and "
            ". _ ~ + / - only"
        )
    return key


def key_map(keys: Iterable[NamedKey]) -> str:
    """The lines of nginx's map from a key to its name.

    Plain strings of a map are compared without regard to case, so every key becomes an anchored, case-sensitive
    expression. The first of two equal keys counts, for nginx and here.
    """
    names: dict[str, str] = {}
    for known in keys:
        names.setdefault(known.key, known.name)
    if not names:
        raise FrontPlanError("vllm_serve_api_key: the front proxy needs at least one key; there is no open server")
    return "\n".join([MARKER, *(f'"~^{re.escape(key)}$" {name};' for key, name in names.items())]) + "\n"


def key_rates(keys: Iterable[NamedKey]) -> dict[int, list[str]]:
    """Names of keys by the requests that each may make in a minute, of those with such a limit."""
    found: dict[int, list[str]] = {}
    for known in keys:
        if known.requests_per_minute:
            found.setdefault(known.requests_per_minute, []).append(known.name)
    return found


def network_of(cluster: Mapping[str, Any]) -> str:
    """The topology of a cluster; `lan` where its hosts reach each other over a LAN though they have a fabric."""
    topology = str(cluster["topology"])
    return "lan" if cluster.get("control") == "management" and topology not in SHARED_LANS else topology


def effective_tls(wanted: str, topology: str) -> str:
    """``off``, ``self_signed`` or ``given``.

    Where hosts reach each other over the LAN, others are on it as well; a cluster with a fabric of its own may have its
    clients on the head.
    """
    if wanted != "auto":
        return wanted
    return "self_signed" if topology in SHARED_LANS else "off"


def clear_text(wanted: object, topology: str) -> list[str]:
    """A warning where everybody on the LAN of the cluster can read what clients send."""
    # an unquoted off is a boolean of YAML
    if topology not in SHARED_LANS or str(wanted).lower() not in ("off", "false"):
        return []
    return [
        f"vllm_serve_tls is off on the topology {topology}: API keys, prompts and answers travel in clear text through "
        "the LAN that the hosts share with others; remove the variable, and the head makes itself a certificate"
    ]


def api_url(host: str, port: object, tls: bool) -> str:
    """The URL of the API by a name or an address, up to and with ``/v1``."""
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}/v1"


def page_url(api: str) -> str:
    """The URL of a head's page by that of its API."""
    return f"{api.removesuffix('/v1')}/console/"


def listen_addresses(addresses: Sequence[object], port: object, management: str = "") -> list[str]:
    """``address:port`` as nginx writes it; all of IPv4 are all of IPv6 as well on a head that is managed by IPv6."""
    if list(addresses) == ["0.0.0.0"] and ":" in management:
        addresses = ["0.0.0.0", "::"]
    if not isinstance(port, int) or isinstance(port, bool) or not 1 <= port <= 65535:
        raise FrontPlanError(f"vllm_serve_api_port: {port!r} is not a port; give a number from 1 to 65535")
    listens: list[str] = []
    for address in addresses:
        try:
            parsed = address_of(str(address))
        except FabricError:  # netaddr is not installed
            raise
        except ValueError:
            raise FrontPlanError(
                f"vllm_serve_listen: {address!r} is not an IP address; give addresses of the head, 0.0.0.0 or '::'"
            ) from None
        text = f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"
        if text not in listens:
            listens.append(text)
    if not listens:
        raise FrontPlanError("vllm_serve_listen: the list is empty; give at least one address of the head")
    return listens


def origins(given: Iterable[object]) -> list[str]:
    """``vllm_serve_cors_origins``, checked. Raises FrontPlanError."""
    allowed: list[str] = []
    for origin in given:
        text = str(origin)
        if not _ORIGIN.fullmatch(text):
            raise FrontPlanError(
                f"vllm_serve_cors_origins: {text!r} is not the origin of a web page; write it as browsers do, such as "
                "https://chat.example.org or http://localhost:3000, without a path, and name each (there is no *)"
            )
        allowed += [text] if text not in allowed else []
    return allowed


def checked_duration(value: object, variable: str) -> str:
    text = str(value)
    if not _DURATION.fullmatch(text):
        raise FrontPlanError(f"{variable}: {value!r} is not a duration; write seconds, or a number with ms, s, m or h")
    return text


def checked_size(value: object, variable: str) -> str:
    text = str(value)
    if not _SIZE.fullmatch(text):
        raise FrontPlanError(f"{variable}: {value!r} is not a size; write bytes, or a number with k, m or g")
    return text


def is_address(text: str) -> bool:
    """Whether it is an IP address, without network or zone."""
    try:
        return str(address_of(text)) == text.lower()
    except FabricError:  # netaddr is not installed
        raise
    except ValueError:
        return False


def is_host_name(text: str) -> bool:
    """Whether a certificate can have it as a host's name."""
    return _HOST_NAME.fullmatch(text) is not None


def subject_names(names: Iterable[object]) -> str:
    """subjectAltName of a self-made certificate."""
    subjects: list[str] = []
    for name in names:
        text = str(name)
        try:
            entry = f"IP:{address_of(text)}"
        except FabricError:  # netaddr is not installed
            raise
        except ValueError:
            if not is_host_name(text):
                raise FrontPlanError(
                    f"vllm_serve_tls_names: {text!r} is neither a host name nor an IP address"
                ) from None
            entry = f"DNS:{text}"
        if entry not in subjects:
            subjects.append(entry)
    return ",".join(subjects)
