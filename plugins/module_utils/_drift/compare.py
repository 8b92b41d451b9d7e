# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparison before a run: whether a host is already as the roles' own arguments want it, all roles in one call.

A comparison only ever answers "converged" or "not known to be": with the first that differs, fails or cannot be made,
its role and all after it run as if nothing had been compared.  So nothing here writes or reports an error.

Code of a comparison is loaded when it is asked for: most hosts need few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: seconds for the one completion that proves serving; a busy engine is asked again, at leisure, by its role
PATIENCE = 5.0


class Drift(Exception):
    """Not converged, or not known to be; the message says what."""


def _checked(spec: dict[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the module itself would see them."""
    from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

    result = ArgumentSpecValidator(spec).validate(dict(arguments))
    if result.error_messages:
        raise Drift("; ".join(result.error_messages))
    return dict(result.validated_parameters)


def _host_state(arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.arguments import argument_spec
    from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.host import Host
    from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import HostState
    from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
    from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited

    params = _checked(argument_spec(), arguments)
    found = HostState(Wanted.parse(params), Host(run=run_limited, timeout=params["timeout"]), True).run()
    if found.changed or found.deferred_units or found.warnings:
        parts = found.changed_paths + found.changed_units + found.changed_accounts + found.changed_sysctls
        what = ", ".join([*parts, *found.deferred_units, *found.warnings]) or "systemd reads its units again"
        raise Drift(what)


def _netplan_apply(arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change

    difference = netplan_change.difference(_checked(netplan_change.ARGUMENTS, arguments))
    if difference:
        raise Drift(difference)


def _nccl_conf(arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import nccl

    try:
        with open(nccl.SYSTEM_FILE, "rb") as stream:
            before = stream.read()
    except FileNotFoundError:
        before = b""
    present = {str(key): str(value) for key, value in arguments["present"].items()}
    if nccl.edit(before, present, list(arguments["absent"])) != before:
        raise Drift(nccl.SYSTEM_FILE)


def _firewall_apply(arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_host

    firewall = firewall_host.Firewall(_checked(firewall_host.ARGUMENTS, arguments), True)
    if firewall.unconfirmed():
        raise Drift("an unconfirmed change of the firewall is armed")
    found = firewall.start()
    if found["changed"]:
        what = ", ".join(found["changed_paths"] + found["changed_units"]) or "the loaded table"
        raise Drift(what)


def _engine_venv(arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv

    wanted = venv.wanted_of(arguments, {})
    found = venv.inspect(wanted)
    if found.problems:
        raise Drift("; ".join(found.problems))
    venv.kernel_remarks(wanted, found.real)


def _model_copy(arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._store import revisions
    from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import parse_links, parse_manifest
    from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import private_store

    store = private_store(arguments["root"])
    for model in arguments["models"]:
        name, folder = model["name"], model.get("folder") or model["name"]
        entries = parse_manifest(model["manifest"])
        if not store.as_recorded(folder, entries, parse_links(model["links"], entries)):
            raise Drift(name)
        if folder != name and revisions.current(store, name) != folder:
            raise Drift(f"{name} is not {folder}")


def _ray_info(_arguments: Mapping[str, Any]) -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_health

    found = ray_health.wait_healthy(ray_config.load_config(ray_config.CONFIG_PATH), 0.0, 5.0, "auto")
    if not found["healthy"]:
        raise Drift(str(found["reason"]))


def _vllm_service(arguments: Mapping[str, Any]) -> None:
    import dataclasses

    from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import kept, ready

    if arguments["state"] == "kept":
        if not kept.newest_is_present(arguments["paths"]):
            raise Drift("what serves is not kept for a rollback yet")
        return
    group = str(arguments.get("group") or "")
    found = ready.ensure(**ready.paths_of(group), start=True, check=True, patience=PATIENCE)
    problem = ready.deadline_problem(dataclasses.asdict(found))
    if found.changed or not found.ready or problem:
        raise Drift(problem or found.line)


#: by the name of the module whose arguments are compared
COMPARISONS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "host_state": _host_state,
    "netplan_apply": _netplan_apply,
    "nccl_conf": _nccl_conf,
    "firewall_apply": _firewall_apply,
    "engine_venv": _engine_venv,
    "model_copy": _model_copy,
    "ray_info": _ray_info,
    "vllm_service": _vllm_service,
}


def compare(comparisons: Sequence[Mapping[str, Any]]) -> tuple[list[str], str]:
    """Roles of which all comparisons (``role``, ``module``, ``arguments``) found nothing to do, and why no more.

    They are made in their order; the first that finds drift ends it.
    """
    converged: list[str] = []
    for item in comparisons:
        role = str(item["role"])
        found = _difference(item)
        if found:
            # whatever it is, the role meets it again and has words for it
            return [name for name in converged if name != role], f"{role}: {found}"
        if role not in converged:
            converged.append(role)
    return converged, ""


def _difference(item: Mapping[str, Any]) -> Drift | None:
    if not item.get("module"):
        return None
    try:
        COMPARISONS[item["module"]](item["arguments"])
    except Drift as drift:
        return drift
    except Exception as error:
        # a comparison that cannot be made is no proof that there is nothing to do
        return Drift(str(error) or type(error).__name__)
    return None
