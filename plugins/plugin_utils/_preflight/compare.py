# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller's part of the comparison before a run: the arguments of the roles' modules as a host needs them, and what
the hosts' answers add up to.

What a module's own action plugin adds before it speaks to a host is added here by the same functions.  Where that
takes more than reading - a download, a question to the host or to a hub - the comparison is not made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import pins
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import facts as engine_facts
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import models, option_tables
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import wheels as _wheels
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record

Arguments = dict[str, Any]


class Unknown(Exception):
    """Whether there is something to do cannot be known by reading alone; the message says why."""


def _engine_image(_arguments: Arguments, _variables: Mapping[str, Any]) -> None:
    raise Unknown("Docker has to be asked")


def _engine_venv(arguments: Arguments, variables: Mapping[str, Any]) -> Arguments:
    node = variables["ansible_facts"]["sparkthor_node"]
    if arguments.get("verify") == "full":
        raise Unknown("every file of the engine is to be read")
    if arguments.get("python", _wheels.DEFAULT_PYTHON) != _wheels.DEFAULT_PYTHON:
        raise Unknown("engine_python has to be asked on the host")
    target = _wheels.target_of(node)
    if target is None:
        raise Unknown("the facts do not say what wheels this host needs")
    engine = _wheels.read_engine_of(arguments, target)
    folder = _wheels.wheel_folder(str(arguments.get("wheel_dir") or ""), target)
    if _wheels.missing_wheels(engine, folder, target):
        raise Unknown(f"wheels are missing in {folder}")
    wheels = _wheels.prepare_wheels(engine, folder, target, False)
    described = _wheels.target_argument(engine, target, wheels, node)
    described.pop("manifest")
    own = {name: arguments[name] for name in ("path", "python", "calls")}
    return {**own, "target": described}


def _model_copy(arguments: Arguments, variables: Mapping[str, Any]) -> Arguments:
    if arguments.get("verify") == "full":
        raise Unknown("every file of the models is to be read")
    given = models.with_recorded(arguments["models"], Record(variables.get("inventory_dir")))
    moving = [model for model in given if not models.fixed(model)]
    if moving:
        raise Unknown("a hub's branch may have moved")
    declared = models.declare(given, fetch=False)
    if declared.pending:
        raise Unknown("to be fetched: " + ", ".join(declared.pending))
    return {"root": arguments["root"], "models": declared.models}


def _engine_options(arguments: Arguments, variables: Mapping[str, Any]) -> None:
    _path, table = option_tables.known(arguments, variables)
    if table is None:
        raise Unknown("the engine's options are not known on the controller")
    if option_tables.problems(arguments, table):
        raise Unknown("there is something to say about the engine's arguments")


#: by module; a module that is not here takes its arguments as they are, one that answers None needs no host
PREPARE: dict[str, Callable[[Arguments, Mapping[str, Any]], Arguments | None]] = {
    "engine_image": _engine_image,
    "engine_venv": _engine_venv,
    "model_copy": _model_copy,
    "vllm_options": _engine_options,
}


def prepare(role: str, calls: Iterable[tuple[str, Arguments]], variables: dict[str, Any]) -> list[dict[str, Any]]:
    """What the host is to compare for one role's calls; facts that the role would set are set in ``variables``."""
    prepared: list[dict[str, Any]] = []
    for module, given in calls:
        arguments = PREPARE[module](dict(given), variables) if module in PREPARE else given
        if arguments is None:
            continue
        if module == "engine_venv":
            facts = {"sparkthor_engine": engine_facts(arguments)}
            variables["ansible_facts"] = {**variables["ansible_facts"], **facts}
        prepared.append({"role": role, "module": module, "arguments": arguments})
    # a role that wants nothing of this host is converged all the same
    return prepared or [{"role": role}]


def converged_everywhere(wanted: Sequence[str], results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Roles, in their order, that have nothing to do on any host, up to the first that has.

    A role whose hosts differ may change what the ones after it were compared with, so those run as well.
    """
    roles: list[str] = []
    for role in wanted:
        if not results or not all(role in (result.get("converged") or ()) for result in results.values()):
            break
        engines = {host: (found.get("ansible_facts") or {}).get("sparkthor_engine") for host, found in results.items()}
        if role == "engine" and pins.versions_across(engines)[1]:
            # each host has the one that is wanted there, and yet they do not fit together: the role says how
            break
        roles.append(role)
    return roles
