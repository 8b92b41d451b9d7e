# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is compared first, and who is left out for it, is said in three places that must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import role_tasks

from tests.unit.plays import plays

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
PREFIX = "sparkthor.cluster."


def load(path: str) -> Any:
    return yaml.safe_load((TOP / path).read_text(encoding="utf-8"))


def imports(playbook: str) -> list[dict[str, Any]]:
    """The tasks of a playbook's first play that import roles."""
    return [task for task in plays(playbook)[0]["tasks"] if "ansible.builtin.import_role" in task]


def roles(playbook: str) -> list[str]:
    return [task["ansible.builtin.import_role"]["name"].removeprefix(PREFIX) for task in imports(playbook)]


def converges(path: str) -> list[str]:
    """Roles that the first task of a file, by ending the role, takes as converged."""
    first = load(path)[0]
    if first.get("ansible.builtin.meta") != "end_role":
        return []
    return [first["when"].split("'")[1]]


@pytest.mark.parametrize("playbook", ["site", "host_layer"])
def test_roles_are_compared_in_the_order_in_which_they_run(playbook: str) -> None:
    preflight, *others = roles(playbook)
    assert preflight == "preflight"
    compared = imports(playbook)[0]["vars"]["preflight_compare"]
    # the last import of a role is the one that acts; Ray and vLLM act in the plays after it, in this order
    last = sorted(set(others), key=lambda role: len(others) - others[::-1].index(role))
    assert [role for role in last if role not in ("ray_node", "vllm_serve")] == [
        role for role in compared if role not in ("ray_node", "vllm_serve")
    ]
    assert set(compared) == set(others)
    assert compared[-2:] == ["ray_node", "vllm_serve"] or playbook == "host_layer"


@pytest.mark.parametrize("playbook", ["site", "host_layer"])
def test_a_compared_role_says_what_it_wants_and_ends_when_it_has_it(playbook: str) -> None:
    for task in imports(playbook)[1:]:
        role = task["ansible.builtin.import_role"]["name"].removeprefix(PREFIX)
        file = task["ansible.builtin.import_role"].get("tasks_from", "main.yml")
        if role_tasks.declared(TOP / "roles" / role) is not None:
            # its own task is what is compared
            continue
        assert converges(f"roles/{role}/tasks/{file}") == [role]
        declared = role_tasks.other_tasks(TOP / "roles" / role)
        assert declared or f"__{role}_comparisons" in load(f"roles/{role}/vars/main.yml")


@pytest.mark.parametrize("role", ["ray_node", "vllm_serve"])
def test_the_parts_that_act_later_end_as_well(role: str) -> None:
    assert converges(f"roles/{role}/tasks/main.yml") == [role]


def test_waiting_for_ray_ends_with_it() -> None:
    assert converges("roles/ray_node/tasks/wait.yml") == ["ray_node"]
