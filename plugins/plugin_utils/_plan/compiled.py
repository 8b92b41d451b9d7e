# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which host gives what it compiled to hosts that have nothing compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes

#: machines of one kind have one processor; of others code for another one's instructions could come
KINDS = ("spark", "thor")


class CompilingHost(NamedTuple):
    """A host as far as it matters here: its facts, its engine's, and whether anything was compiled there."""

    node: Mapping[str, Any]
    engine: Mapping[str, Any]
    compiled: bool | None


class Sharing(NamedTuple):
    giver: str = ""
    takers: tuple[str, ...] = ()

    def has(self, host: str) -> bool:
        return host == self.giver or host in self.takers


def likeness(host: CompilingHost) -> tuple[Any, ...]:
    """Equal for hosts on which the same is compiled; empty where that is not known."""
    node, engine = host.node, host.engine
    system = node.get("os") or {}
    runtime, names = engine.get("runtime", "venv"), node.get("gpu_names") or ()
    release = engine.get("image_id") if runtime == "container" else engine.get("digest")
    if node.get("kind") not in KINDS or not release:
        return ()
    return (node["kind"], node.get("arch"), system.get("id"), system.get("version"), tuple(names), runtime, release)


def sharing(hosts: Mapping[str, CompilingHost], fabric: Mapping[str, Any]) -> Sharing:
    """The first host that has something compiled, and those like it that have nothing and that it reaches.

    Where the fabric leads to them from nobody at once, one of them gets it; a later run serves the next.
    """
    alike = {host: likeness(machine) for host, machine in hosts.items()}
    lacking = [host for host, machine in hosts.items() if machine.compiled is False and alike[host]]
    for giver in (host for host, machine in hosts.items() if machine.compiled):
        takers = [host for host in lacking if alike[host] == alike[giver]]
        if takers and _reached(fabric, [giver, *takers]):
            return Sharing(giver, tuple(takers))
    for taker in lacking:
        for giver, machine in hosts.items():
            if machine.compiled and alike[giver] == alike[taker] and _reached(fabric, [giver, taker]):
                return Sharing(giver, (taker,))
    return Sharing()


def _reached(fabric: Mapping[str, Any], order: Sequence[str]) -> bool:
    try:
        fanout_routes.routes(fabric, order)
    except fanout_routes.RouteError:
        return False
    return True
