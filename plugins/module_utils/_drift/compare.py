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


def difference_of(module: str) -> Difference:
    """What says in a few words what is not as the arguments of this module want it. KeyError for a module without."""
    if module == "host_state":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.state import difference
    elif module == "netplan_apply":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._network.netplan_change import difference
    elif module == "nccl_conf":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._network.nccl import difference
    elif module == "firewall_apply":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._network.firewall_host import difference
    elif module == "engine_venv":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.venv import difference
    elif module == "model_copy":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._store.recorded import difference
    elif module == "ray_info":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_health import difference
    elif module == "vllm_service":
        from ansible_collections.sparkthor.cluster.plugins.module_utils._serving.ready import difference
    else:
        raise KeyError(module)
    return difference


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
        return difference_of(item["module"])(item["arguments"])
    except Exception as error:
        # a comparison that cannot be made is no proof that there is nothing to do
        return str(error) or type(error).__name__
