# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the front proxy of each head sends a request, by the model that it names, if there are several serving groups.

Every head is a door to all models. A door asks the front proxy of a group's head, its own one as well, which alone
reaches that head's engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import Places
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.front import (
    SHARED_LANS,
    FrontPlanError,
    NamedKey,
    label,
    network_of,
)

SOCKET = "/run/sparkthor/front/group.sock"


def socket_of(places: Places) -> str:
    """By which the door on a host asks a group there."""
    return f"/run/sparkthor/front/group-{places.name}.sock" if places.name else SOCKET


@dataclass(frozen=True)
class Turn:
    """A group that takes turns with others of its host, as the front proxy there knows it."""

    #: "" for the host's own one
    group: str


@dataclass(frozen=True)
class OfferedModel:
    """A group's model under all its names."""

    group: str
    head: str
    names: tuple[str, ...]

    @property
    def patterns(self) -> list[str]:
        """Plain strings of nginx's maps are compared without regard to case."""
        return [f"~^{re.escape(name)}$" for name in self.names]

    @property
    def label(self) -> str:
        return label(self.names[0])


@dataclass(frozen=True)
class DoorRoute:
    """Who answers for one model, whichever that is now: a group that goes back to another model stays where it is."""

    number: int
    #: one, or several replicas
    groups: tuple[str, ...]
    #: as nginx names servers: addresses with ports, or this host's own socket
    servers: tuple[str, ...]
    #: the route that answers while this one cannot
    instead: int | None = None


@dataclass(frozen=True)
class Door:
    port: int
    #: TLS between heads, where others are on their network
    tls: bool
    #: addresses of all heads
    heads: tuple[str, ...]
    routes: tuple[DoorRoute, ...]
    offers: tuple[OfferedModel, ...]
    #: by the name of each group the server that says how it is
    groups: dict[str, str]


def checked_port(port: int, api_port: int) -> int:
    """``vllm_serve_door_port``. Raises FrontPlanError."""
    if port == api_port:
        raise FrontPlanError(
            f"vllm_serve_door_port: {port} is vllm_serve_api_port as well; give each a port of its own"
        )
    return port


def body_limit(size: str) -> str:
    """nginx reads the name of the model from a body in memory, so that no limit (0) is one here."""
    return size if size.strip("0kKmMgG") else "64m"


def plan_door(cluster: Mapping[str, Any], fabric: Mapping[str, Mapping[str, Any]], host: str, port: int) -> Door:
    """The door on a head of the serving groups that its plan knows."""
    groups = cluster["groups"]
    addresses = {group["group"]: str(fabric[group["head"]]["control_address"]) for group in groups}
    servers = {
        group["group"]: f"unix:{socket_of(Places(group['group'] if group.get('port') else ''))}"
        if group["head"] == host
        else f"{addresses[group['group']]}:{group.get('port') or port}"
        for group in groups
    }
    together: dict[frozenset[str], list[Mapping[str, Any]]] = {}
    for group in groups:
        together.setdefault(frozenset(group["names"]), []).append(group)
    number_of = {group["group"]: number for number, found in enumerate(together.values()) for group in found}
    routes = []
    for number, found in enumerate(together.values()):
        instead = {number_of[group["fallback"]] for group in found if group["fallback"]} - {number}
        routes.append(
            DoorRoute(
                number,
                tuple(group["group"] for group in found),
                tuple(servers[group["group"]] for group in found),
                min(instead) if instead else None,
            )
        )
    tls = network_of(cluster) in SHARED_LANS
    offers = tuple(OfferedModel(group["group"], group["head"], tuple(group["names"])) for group in groups)
    return Door(port, tls, tuple(dict.fromkeys(addresses.values())), tuple(routes), offers, servers)


def words(names: Iterable[str]) -> str:
    """Names of a model, each as a word between two spaces."""
    return "".join(f" {quote(name, safe='/:@+')} " for name in names)


def limited_keys(keys: Iterable[NamedKey]) -> dict[str, str]:
    """By name of each key that is for some models only, what matches in ``words`` where it may ask for one of them."""
    return {key.name: "|".join(re.escape(words([name])) for name in key.models) for key in keys if key.models}
