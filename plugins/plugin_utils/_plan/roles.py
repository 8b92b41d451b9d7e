# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's plan by the role's name, from a host's variables: what the lookup ``role_plan`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import engine, ray_files, vllm_files, vllm_serve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import File
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import plain, read_settings

ROLES = ("engine", "ray_node", "vllm_serve")


def plan(role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What the role's tasks read; files that hold secrets are left out.

    Raises ValueError (of the planners) with the variable, the value and the fix, KeyError where the plan lacks a host.
    """
    _check(role)
    facts = variables.get("ansible_facts") or {}
    if role == "engine":
        return engine.plan_engine(read_settings(engine.EngineSettings, variables), facts.get("sparkthor_node") or {})
    if role == "ray_node":
        return ray_files.plan_ray(
            read_settings(ray_files.RaySettings, variables),
            plain(variables["sparkthor_cluster"]),
            variables["sparkthor_fabric"],
            str(variables["inventory_hostname"]),
            facts,
        )
    return vllm_files.plan_serving(_serving(variables))


def secret_files(role: str, variables: Mapping[str, Any], read_secret: vllm_files.ReadSecret) -> list[File]:
    """The files that hold secrets. ``read_secret`` is asked by name, only for those that this host needs."""
    _check(role)
    if role == "engine":
        return []
    if role == "ray_node":
        return ray_files.ray_secret_files(read_settings(ray_files.RaySettings, variables), read_secret)
    return vllm_files.secret_files(_serving(variables), read_secret)


def explained(error: ValueError | KeyError) -> str:
    """A planner's message; where the plan lacks something, what to do about that."""
    if isinstance(error, KeyError):
        return f"the plan of this run lacks {error.args[0]!r}; run the preflight role first, on all hosts"
    return str(error)


def _check(role: str) -> None:
    if role not in ROLES:
        raise ValueError(f"{role!r} is no role with a plan; choose one of {', '.join(ROLES)}")


def _serving(variables: Mapping[str, Any]) -> vllm_serve.Serving:
    return vllm_serve.serving_on(
        read_settings(vllm_serve.ServingSettings, variables),
        plain(variables["sparkthor_cluster"]),
        variables["sparkthor_fabric"],
        str(variables["inventory_hostname"]),
        variables.get("ansible_facts") or {},
    )
