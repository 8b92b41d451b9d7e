# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a task of a role answers whose host was compared with it before the run, and has what it wants.

preflight has made the calls of the role's tasks in check mode, in one call for all roles (``host_compare``). Nothing
was changed since: the roles that it names are those before the first one that has something to do on any host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: modules whose calls preflight compares
COMPARED = frozenset(
    (
        *("host_state", "netplan_apply", "nccl_conf", "firewall_apply", "engine_venv", "engine_image", "model_copy"),
        *("vllm_options", "vllm_service"),
    )
)
#: by module, what later tasks of its role read of a result that says that nothing has to be done
_RESULTS: Mapping[str, Mapping[str, Any]] = {
    # an engine is compared where its wheels are on the controller, and are those of the lock
    "engine_prepare": {},
    "netplan_apply": {"needs_change": False, "verified": True},
    "ray_info": {"healthy": True, "missing": []},
    "vllm_service": {"ready": True},
}


def answer(module: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result of the task without asking the host; None where it has to be asked."""
    if module not in COMPARED and module not in _RESULTS:
        return None
    role = str(variables.get("ansible_role_name") or "").rpartition(".")[2]
    found = variables.get("preflight_found")
    if not role or not isinstance(found, Mapping) or role not in (found.get("converged") or ()):
        return None
    return {"changed": False, **_RESULTS.get(module, {})}
