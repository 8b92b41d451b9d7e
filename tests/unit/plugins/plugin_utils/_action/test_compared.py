# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A task of a role that was compared and has what it wants answers itself; every other one asks its host."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.action import host_state
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import compared


def answer(module: str = "host_state", **given: Any) -> dict[str, Any] | None:
    found = {"converged": ["os_hardening", "ray_node"]}
    known = {"ansible_role_name": "sparkthor.cluster.os_hardening", "preflight_found": found}
    return compared.answer(module, {**known, **given})


def test_what_was_compared_is_not_asked_again() -> None:
    assert answer() == {"changed": False}
    assert answer("netplan_apply") == {"changed": False, "needs_change": False, "verified": True}
    engine = {"preflight_found": {"converged": ["engine"]}, "ansible_role_name": "sparkthor.cluster.engine"}
    assert answer("engine_prepare", **engine) == answer("engine_venv", **engine) == {"changed": False}
    ray = answer("ray_info", ansible_role_name="sparkthor.cluster.ray_node")
    assert ray == {"changed": False, "healthy": True, "missing": []}


@pytest.mark.parametrize(
    "given",
    [
        {"module": "node_info"},
        {"ansible_role_name": "sparkthor.cluster.firewall"},
        # a task of a playbook, and a run that compared nothing
        {"ansible_role_name": None},
        {"preflight_found": None},
        {"preflight_found": {"converged": []}},
    ],
)
def test_everything_else_is_asked(given: dict[str, Any]) -> None:
    assert answer(**given) is None


class Templar:
    """What Ansible's engine is asked for."""

    def __init__(self, converged: list[str]) -> None:
        name = "sparkthor.cluster.os_hardening"
        self.available_variables = {"ansible_role_name": name, "preflight_found": {"converged": converged}}

    def template(self, value: str) -> str:
        return value.upper()


def test_arguments_of_an_answered_task_are_not_templated() -> None:
    finalized = [
        host_state.ActionModule.finalize_task_arg("files", "text", Templar(converged), None)
        for converged in (["os_hardening"], [])
    ]
    assert finalized == [None, "TEXT"]
