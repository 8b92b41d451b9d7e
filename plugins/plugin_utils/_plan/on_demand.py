# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serving groups of one host of which one sleeps until its model is asked for: what the host is told of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.registry import DEFAULT
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.door import Turn
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.front import label
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving


def groups(beside: Sequence[Serving]) -> dict[str, dict[str, Any]]:
    """What the groups on demand are allowed, by name: of serving.json of the host's own group.

    A start may take as long as a playbook waits for it.
    """
    return {
        one.places.name: {**one.on_demand, "ready_timeout": one.settings.vllm_serve_ready_timeout}
        for one in beside
        if one.on_demand
    }


def turn(serving: Serving, beside: Sequence[Serving]) -> Turn | None:
    """None for a group that serves all the time."""
    if not (serving.on_demand or (not serving.places.name and groups(beside))):
        return None
    return Turn(serving.places.name)


def listed(serving: Serving) -> str:
    """What GET /v1/models says of the group while it sleeps."""
    # a name that nginx would read as more than text is not listed meanwhile
    names = [name for name in serving.names if label(name) == name]
    owner = serving.engine_name or DEFAULT.name
    found = [{"id": name, "object": "model", "created": 0, "owned_by": owner, "root": name} for name in names]
    return json.dumps({"object": "list", "data": found})
