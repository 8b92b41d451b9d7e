# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the collection's roles a run comes to, told from Ansible's magic variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: by role that is compared, in the order in which site.yml runs them, the tags of each of its imports in the playbooks
#: (tests compare both)
IMPORTS: dict[str, tuple[frozenset[str], ...]] = {
    "os_hardening": (frozenset(("os_hardening",)),),
    "roce_network": (frozenset(("roce_network", "network")),),
    "nccl_conf": (frozenset(("nccl_conf", "network")),),
    "firewall": (frozenset(("firewall", "network")),),
    "engine": (
        frozenset(("engine", "ray", "ray_head", "ray_worker")),
        frozenset(("engine", "vllm_serve")),
    ),
    "model_store": (frozenset(("model_store",)),),
    "ray_node": (
        frozenset(("ray_head", "ray_worker", "ray")),
        frozenset(("ray_head", "ray")),
        frozenset(("ray_worker", "ray")),
    ),
    "vllm_serve": (
        frozenset(("vllm_serve", "engine", "ray")),
        frozenset(("ray_head", "ray_worker", "ray", "vllm_serve")),
    ),
    "monitoring": (frozenset(("monitoring", "console")),),
    "console": (frozenset(("console",)),),
}
KNOWN_TAGS = frozenset().union(*(tags for imports in IMPORTS.values() for tags in imports))


def in_play(variables: Mapping[str, Any]) -> set[str]:
    """The roles of the play, whatever the run's tags, without the collection's name."""
    return {str(name).rpartition(".")[2] for name in variables.get("ansible_play_role_names") or ()}


def selected(role: str, variables: Mapping[str, Any]) -> bool:
    """Whether the run's tags select something of the role.

    In doubt they do: with a tag that the collection does not know, and for a role that has no tags here.
    """
    wanted = set(variables.get("ansible_run_tags") or ("all",))
    skipped = set(variables.get("ansible_skip_tags") or ())
    everything = not wanted <= KNOWN_TAGS
    imports = IMPORTS.get(role)
    if imports is None:
        return True
    return any((everything or wanted & tags) and not skipped & tags for tags in imports)


def in_run(variables: Mapping[str, Any]) -> set[str]:
    """The roles of the play that the run's tags select."""
    return {role for role in in_play(variables) if selected(role, variables)}


def serves(variables: Mapping[str, Any]) -> bool:
    """Whether the run comes to what serves a model, not only to what other roles need of the role ``vllm_serve``."""
    wanted = set(variables.get("ansible_run_tags") or ("all",))
    skipped = set(variables.get("ansible_skip_tags") or ())
    everything = not wanted <= KNOWN_TAGS
    return "vllm_serve" in in_play(variables) and (everything or "vllm_serve" in wanted) and "vllm_serve" not in skipped
