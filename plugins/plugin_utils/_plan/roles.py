# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's plan by the role's name, from a host's variables: what the lookup ``role_plan`` answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import Places
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    beside,
    engine,
    ray_node,
    serving_values,
    teardown,
    vllm_serve,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.settings import plain, read_settings

ROLES = ("engine", "ray_node", "vllm_serve")
#: what a playbook asks for in the same way
TEARDOWN = "teardown"


def plan(role: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    """What the role's tasks read; files that hold secrets are left out.

    Raises ValueError (of the planners) with the variable, the value and the fix, KeyError where the plan lacks a host.
    """
    _check(role)
    facts = variables.get("ansible_facts") or {}
    if role == "engine":
        return engine.plan_engine(
            read_settings(engine.EngineSettings, variables),
            facts.get("sparkthor_node") or {},
            plain(variables.get("sparkthor_cluster") or {}),
        )
    if role == "ray_node":
        return ray_node.plan_ray(
            read_settings(ray_node.RaySettings, variables),
            plain(variables["sparkthor_cluster"]),
            variables["sparkthor_fabric"],
            str(variables["inventory_hostname"]),
            facts,
        )
    if role == TEARDOWN:
        settings = read_settings(teardown.TeardownSettings, variables)
        there = (facts.get("sparkthor_node") or {}).get("beside") or ()
        return teardown.plan_teardown(settings, bool(variables.get("ansible_check_mode")), there)
    return serving_values.host_plan(_serving(variables), _beside(variables))


def planned(role: str, variables: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The plan, empty where there can be none, and what the role would refuse."""
    try:
        made = plan(role, variables)
    except (ValueError, KeyError) as error:
        return {}, [explained(error)]
    return made, list(made.get("problems") or [])


def explained(error: ValueError | KeyError) -> str:
    """A planner's message; where the plan lacks something, what to do about that."""
    if isinstance(error, KeyError):
        return f"the plan of this run lacks {error.args[0]!r}; run the preflight role first, on all hosts"
    return str(error)


def _check(role: str) -> None:
    if role not in (*ROLES, TEARDOWN):
        raise ValueError(f"{role!r} is not a role with a plan; choose one of {', '.join(ROLES)}")


def _beside(variables: Mapping[str, Any]) -> list[vllm_serve.Serving]:
    """The groups beside the host's own one, if it is the head of that."""
    cluster = variables.get("sparkthor_cluster") or {}
    groups = []
    for name, own in (cluster.get("beside") or {}).items():
        if own["head"] == variables["inventory_hostname"]:
            given = Declared(beside.variables_of(own["given"], variables))
            plan = plain({**own, "revisions": cluster.get("revisions") or {}})
            groups.append(
                vllm_serve.serving_on(
                    read_settings(vllm_serve.ServingSettings, given),
                    plan,
                    variables["sparkthor_fabric"],
                    str(variables["inventory_hostname"]),
                    variables.get("ansible_facts") or {},
                    Places(str(name)),
                )
            )
    return groups


def _serving(variables: Mapping[str, Any]) -> vllm_serve.Serving:
    return vllm_serve.serving_on(
        read_settings(vllm_serve.ServingSettings, variables),
        plain(variables["sparkthor_cluster"]),
        variables["sparkthor_fabric"],
        str(variables["inventory_hostname"]),
        variables.get("ansible_facts") or {},
    )
