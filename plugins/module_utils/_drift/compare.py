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

Difference = Callable[[Mapping[str, Any]], str]


def _host_state() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state import state

    return state.difference


def _netplan_apply() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_change

    return netplan_change.difference


def _nccl_conf() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import nccl

    return nccl.difference


def _firewall_apply() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._network import firewall_host

    return firewall_host.difference


def _engine_venv() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv

    return venv.difference


def _model_copy() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._store import recorded

    return recorded.difference


def _ray_info() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import ray_config, ray_health

    def difference(_arguments: Mapping[str, Any]) -> str:
        found = ray_health.wait_healthy(ray_config.load_config(ray_config.CONFIG_PATH), 0.0, 5.0, "auto")
        return "" if found["healthy"] else str(found["reason"])

    return difference


def _vllm_service() -> Difference:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._serving import ready

    return ready.difference


#: by the name of the module whose arguments are compared, what says in a few words what is not as they want it
DIFFERENCES: Mapping[str, Callable[[], Difference]] = {
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


def _difference(item: Mapping[str, Any]) -> str:
    if not item.get("module"):
        return ""
    try:
        return DIFFERENCES[item["module"]]()(item["arguments"])
    except Exception as error:
        # a comparison that cannot be made is no proof that there is nothing to do
        return str(error) or type(error).__name__
