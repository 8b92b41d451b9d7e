# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serving groups beside a host's own one, as ``serving_beside`` names them.  Pure, on the controller.

Their variables stand in that mapping and not in ``group_vars``: a host has each variable once, and those of its own
group are the ones that count for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.on_demand import hours
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.groups import BESIDE, NAME, STRUCTURE
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import closest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import (
    ValueRefused,
    defaults,
    of_collection,
)

#: what a group beside another says of itself; all else is that of the host
SETTINGS = (
    *("vllm_serve_recipe", "vllm_serve_model", "vllm_serve_served_model_name", "vllm_serve_max_model_len"),
    *("vllm_serve_args", "vllm_serve_env", "vllm_serve_acknowledged", "vllm_serve_fallback"),
    *("vllm_serve_door_port", "vllm_serve_group_port", "serving_engine"),
)
_EXECUTOR = "vllm_serve_executor"
ON_DEMAND = "on_demand"
#: of a group that sleeps until its model is asked for
DEMAND: dict[str, Any] = {"idle_minutes": 30, "every_minutes": 10, "not_between": ""}
_WEEK = 7 * 24 * 60
_PORTS = ("vllm_serve_api_port", "vllm_serve_door_port", "vllm_serve_group_port")
_OTHER_PORTS = {"vllm_serve_master_port": 29501}


class Beside(NamedTuple):
    """One group beside the own one of its host."""

    name: str
    host: str
    #: by their declared types
    settings: dict[str, Any]


def named(hostvars: Mapping[str, Mapping[str, Any]], hosts: Sequence[str]) -> Any:
    """``serving_beside`` as the inventory gives it."""
    return (hostvars[hosts[0]].get(BESIDE) if hosts else None) or {}


def groups_beside(given: Any, variables: Mapping[str, Any]) -> list[Beside]:
    """All of them, each with ports of its own; ``variables`` are those of any host. What is wrong was told before."""
    groups = []
    for number, (name, described) in enumerate(given.items(), 1):
        settings = {key: of_collection().value(key, described[key]) for key in SETTINGS if key in described}
        for port in ("vllm_serve_door_port", "vllm_serve_group_port"):
            settings.setdefault(port, _port(variables, port) + number)
        if ON_DEMAND in described:
            settings[ON_DEMAND] = {**DEMAND, **(described[ON_DEMAND] or {})}
        groups.append(Beside(str(name), str(described["host"]), settings))
    return groups


def _port(variables: Mapping[str, Any], name: str) -> int:
    # what is no number is told by the check of the values
    given = str(variables.get(name) or "")
    return int(given if given.isdecimal() else {**defaults(), **_OTHER_PORTS}[name])


def problems(
    groups: Mapping[str, Sequence[str]], names: Any, given: Any, variables: Mapping[str, Any]
) -> list[Finding]:
    """Groups of ``serving_beside`` that cannot be; ``names`` are those of ``serving_groups``."""
    if not given:
        return []
    if not isinstance(given, Mapping) or not all(isinstance(one, Mapping) for one in given.values()):
        fix = "write it as {embed: {host: HOST, vllm_serve_recipe: RECIPE}}"
        return [Finding("beside", "it is not a mapping of groups by their names", fix, where=BESIDE)]
    if not names:
        fix = "make an inventory group of the hosts that serve the large model, and name it in serving_groups"
        return [Finding("beside", "the group that these are beside has no name", fix, where=BESIDE)]
    found = [finding for name in given for finding in _of_one(groups, names, str(name), given[name])]
    return found or _ports(groups_beside(given, variables), variables)


def _of_one(
    groups: Mapping[str, Sequence[str]], names: Sequence[str], name: str, given: Mapping[str, Any]
) -> Iterator[Finding]:
    def finding(what: str, fix: str, value: Any = None) -> Finding:
        return Finding("beside", f"of group {name}: {what}", fix, where=BESIDE, value=value)

    if not NAME.fullmatch(name):
        yield finding("it cannot be the name of a group", "begin with a letter; use lower-case letters, digits and _")
    elif name in (*STRUCTURE, *names, *groups):
        yield finding("an inventory group has this name", "give it one that nothing else in the inventory has")
    heads = [host for host in groups.get("ray_head", []) if host in groups.get("cluster", [])]
    host = str(given.get("host") or "")
    if host not in heads:
        what = "it names no host" if not host else f"{host} is not the head of a serving group"
        fix = f"set host to one of {', '.join(heads)}: heads have the front proxy{closest(host, heads)}"
        yield finding(what, fix, host or None)
    for key in given:
        if key not in (*SETTINGS, "host", _EXECUTOR, ON_DEMAND):
            fix = f"a group beside another has host, {ON_DEMAND}, {', '.join(SETTINGS)}; all else is its host's"
            yield finding(f"it cannot have {key}{closest(str(key), SETTINGS)}", fix)
    if str(given.get(_EXECUTOR, "mp")) != "mp":
        fix = "remove the line (it is mp), or give the group hosts of its own"
        yield finding("a second group on a host has no Ray, because a host has one Ray", fix, given[_EXECUTOR])
    if not (given.get("vllm_serve_recipe") or given.get("vllm_serve_model")):
        yield finding("it does not say what is served", "add vllm_serve_recipe or vllm_serve_model")
    elif str(given.get("vllm_serve_model") or "").startswith("/"):
        fix = "name a model of the hub, or one of model_store_models"
        yield finding("its model comes from the model store, and this is a path", fix, given["vllm_serve_model"])
    if ON_DEMAND in given:
        for what, fix, value in _of_demand(given[ON_DEMAND]):
            yield finding(what, fix, value)
    for key in SETTINGS:
        try:
            of_collection().value(key, given.get(key))
        except ValueRefused as error:
            if key in given:
                yield finding(str(error), "correct it")


def _of_demand(given: Any) -> Iterator[tuple[str, str, Any]]:
    """What is wrong with ``on_demand``, the fix and the value."""
    if given is not None and not isinstance(given, Mapping):
        yield "its on_demand is not a mapping", "write it as {idle_minutes: 30}", given
        return
    for key, value in (given or {}).items():
        least = {"idle_minutes": 1, "every_minutes": 0}.get(key)
        if key not in DEMAND:
            fix = f"on_demand has {', '.join(DEMAND)}"
            yield f"its on_demand cannot have {key}{closest(str(key), list(DEMAND))}", fix, None
        elif least is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _WEEK
        ):
            yield f"its {key} is no number of minutes from {least} to {_WEEK}", "give a whole number", value
        elif least is None:
            try:
                hours(str(value))
            except ValueError as error:
                yield f"its {key}: {error}", "quote it, as in not_between: '08:00-18:00'", value


def _ports(beside: Sequence[Beside], variables: Mapping[str, Any]) -> list[Finding]:
    """Ports that two would listen on."""
    taken = {_port(variables, name): name for name in (*_PORTS, *_OTHER_PORTS)}
    findings = []
    for group in beside:
        for key in ("vllm_serve_door_port", "vllm_serve_group_port"):
            port = group.settings[key]
            if not 1 <= port <= 65535 or port in taken:
                what = f"of group {group.name}: {key} {port} is {taken.get(port, 'not a port')}"
                findings.append(Finding("beside", what, f"give the group a free {key}", where=BESIDE, value=port))
            taken.setdefault(port, f"{key} of group {group.name}")
    return findings
