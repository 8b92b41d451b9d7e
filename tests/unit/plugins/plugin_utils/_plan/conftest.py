# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of two hosts with two GPUs each, and the variables that its roles have."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
CLUSTER: dict[str, Any] = {
    **{"head": "a", "hosts": ["a", "b"], "workers": ["b"], "world": 4, "topology": "direct"},
    **{"generation": 3, "id": "one", "executor": "ray"},
    **{"gpus": {"a": 2, "b": 2}, "kinds": {"a": "generic", "b": "generic"}, "head_address": "10.0.0.1"},
}
FABRIC: dict[str, Any] = {
    host: {
        "control_address": f"10.0.0.{number}",
        "management_address": f"192.168.1.{number}",
        "env": {"NCCL_IB_HCA": f"mlx5_{number}", "RAY_ADDRESS": "10.0.0.1:6379", "NEW_HOST_VARIABLE": str(number)},
    }
    for number, host in enumerate("ab", 1)
}
NODE: dict[str, Any] = {"kind": "spark", "cpus": 20, "mem_total_bytes": 121 * 2**30, "binaries": {}}
CONTAINER = {
    "runtime": "container",
    "command": location.command("container", "python"),
    "digest": "sha256:1",
    "versions": {"vllm": "0.33.0"},
}


@cache
def _defaults(role: str) -> dict[str, Any]:
    text = (TOP / "roles" / role / "defaults" / "main.yml").read_text(encoding="utf-8")
    return yaml.safe_load(text) or {}


def role_defaults(*roles: str) -> dict[str, Any]:
    """Variables of roles as their defaults say, those in Jinja left out."""
    values = {name: value for role in roles for name, value in _defaults(role).items()}
    return copy.deepcopy({name: value for name, value in values.items() if "{{" not in str(value)})


@pytest.fixture
def variables() -> dict[str, Any]:
    """Of host a, the head, with all roles' defaults and a model of its own."""
    return {
        **role_defaults("engine", "model_store", "ray_node", "vllm_serve"),
        "inventory_hostname": "a",
        "sparkthor_cluster": CLUSTER,
        "sparkthor_fabric": FABRIC,
        "ansible_facts": {"sparkthor_node": NODE},
        "vllm_serve_model": "/srv/mine",
    }
