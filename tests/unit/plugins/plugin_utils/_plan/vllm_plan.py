# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role vllm_serve puts on one host, and parts of it by their path or name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import Wanted
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import role_secrets, roles

from tests.unit import role_state


def plan(variables: dict[str, Any], **given: Any) -> dict[str, Any]:
    """The role's plan, its ``state`` without secrets, and what is ``kept``.  Raises what the planners raise."""
    known = {**variables, **given}
    planned = roles.plan("vllm_serve", Declared(known))
    state = role_state.state("vllm_serve", secrets=False, **known)
    Wanted.parse(state)
    return {**planned, "state": state, "kept": role_state.value("vllm_serve", "__vllm_serve_kept_paths", **known)}


def secret_files(
    variables: dict[str, Any], read: Callable[[str], str], role: str = "vllm_serve"
) -> dict[str, dict[str, Any]]:
    """The files with secrets by their path; ``read`` is asked for a secret by its name."""

    def text(kind: str, name: str) -> str:
        return role_secrets.secret(name, variables, read) if kind == "from_secret" else ""

    with mock.patch.object(declared_state, "text_by", return_value=text):
        found = role_state.uncached(role, secrets=True, **variables)["files"]
    environments = ("/vllm.env",)
    return {file["path"]: file for file in found if file.get("secret") and not file["path"].endswith(environments)}


def files(planned: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in planned["state"]["files"]}


def units(planned: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {unit["name"]: unit for unit in planned["state"]["units"]}


def started_by(variables: dict[str, Any], executor: str) -> dict[str, Any]:
    """The same cluster with another executor in its plan."""
    return {**variables, "sparkthor_cluster": {**variables["sparkthor_cluster"], "executor": executor}}


def with_serving(variables: dict[str, Any], **serving: Any) -> dict[str, Any]:
    return {**variables, "sparkthor_cluster": {**variables["sparkthor_cluster"], "serving": serving}}
