# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of the role vllm_serve on one host, and parts of it by their path or name."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles


def plan(variables: dict[str, Any], **given: Any) -> dict[str, Any]:
    return roles.plan("vllm_serve", {**variables, **given})


def files(planned: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in planned["state"]["files"]}


def units(planned: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {unit["name"]: unit for unit in planned["state"]["units"]}


def with_serving(variables: dict[str, Any], **serving: Any) -> dict[str, Any]:
    return {**variables, "sparkthor_cluster": {**variables["sparkthor_cluster"], "serving": serving}}
