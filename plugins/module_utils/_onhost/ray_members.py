# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The members of a Ray cluster: answers of the dashboard and of the GCS as rows of one shape."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._lib import foreign

#: characters of an answer, at most
MOST = 32 << 20


@dataclass(frozen=True)
class Row:
    node_id: str
    address: str
    alive: bool
    head: bool
    hostname: str = ""
    reason: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    total: Mapping[str, float] = field(default_factory=dict)
    available: Mapping[str, float] | None = None


@dataclass(frozen=True)
class View:
    """What one source says about the cluster."""

    source: str
    rows: tuple[Row, ...]
    demands: tuple[dict[str, Any], ...] = ()
    ray_version: str = ""


def _public_resources(resources: Mapping[str, Any]) -> dict[str, float]:
    """CPU, GPU, memory and the user's own; what placement groups and addresses add is bookkeeping."""
    shown = {}
    for key, value in resources.items():
        if key.startswith(("node:", "bundle_group")) or "_group_" in key:
            continue
        shown[key] = float(value)
    return shown


def _answer(text: str) -> Mapping[str, Any]:
    answer = foreign.parse(text, MOST)
    if not isinstance(answer, Mapping) or answer.get("result") is not True:
        raise ValueError(
            f"the dashboard says: {str((answer or {}).get('msg') if isinstance(answer, Mapping) else answer)[:200]}"
        )
    return answer


def read_dashboard_ranks(text: str) -> dict[str, bool]:
    """``/api/v0/actors``: whether a rank of the engine lives there, by the id of each node that ever had one.

    Nothing where the list is cut short. Raises ValueError for anything else.
    """
    answer = _answer(text)
    try:
        found = answer["data"]["result"]
        if len(found["result"]) < found["total"]:
            return {}
        lives: dict[str, bool] = {}
        for item in found["result"]:
            if "RayWorker" in item["class_name"]:
                lives[item["node_id"]] = lives.get(item["node_id"], False) or item["state"] != "DEAD"
    except (KeyError, TypeError) as error:
        raise ValueError(f"the dashboard's list of actors has an unknown shape: {error!r}") from error
    return lives


def read_dashboard_nodes(text: str) -> list[Row]:
    """``/api/v0/nodes?detail=true``.  Raises ValueError for anything else."""
    answer = _answer(text)
    try:
        items = answer["data"]["result"]["result"]
        rows = [
            Row(
                node_id=str(item["node_id"]),
                address=str(item["node_ip"]),
                alive=item["state"] == "ALIVE",
                head=bool(item.get("is_head_node")),
                reason=str(item.get("state_message") or ""),
                started_ms=int(item.get("start_time_ms") or 0),
                ended_ms=int(item.get("end_time_ms") or 0),
                total=_public_resources(item.get("resources_total") or {}),
            )
            for item in items
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the dashboard's list of nodes has an unknown shape: {error!r}") from error
    return rows


#: the dashboard writes this answer's keys in camel case, resource names included
_CAMEL_RESOURCES = {"objectStoreMemory": "object_store_memory"}


def read_dashboard_status(text: str) -> tuple[dict[str, dict[str, float]], list[dict[str, Any]]]:
    """``/api/cluster_status``: (available by node id, pending demands)."""
    answer = foreign.parse(text, MOST)
    try:
        report = ((answer["data"].get("clusterStatus") or {}).get("loadMetricsReport")) or {}
        available = {}
        for node_id, usage in (report.get("usageByNode") or {}).items():
            free = {}
            for key, (used, total) in usage.items():
                if "roup" in key and key not in _CAMEL_RESOURCES:
                    continue
                free[_CAMEL_RESOURCES.get(key, key)] = float(total) - float(used)
            available[node_id] = _public_resources(free)
        demands = []
        for bundle, count in report.get("resourceDemand") or []:
            demands.append({"kind": "task_or_actor", "resources": dict(bundle), "count": int(count)})
        for group, count in report.get("pgDemand") or []:
            bundles = [{"resources": dict(b), "count": int(n)} for b, n in group.get("bundles") or []]
            demands.append(
                {
                    "kind": "placement_group",
                    "strategy": str(group.get("strategy") or ""),
                    "bundles": bundles,
                    "count": int(count),
                }
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the dashboard's cluster status has an unknown shape: {error!r}") from error
    return available, demands


def read_engine_view(answer: Mapping[str, Any]) -> View:
    """The engine probe's answer."""
    try:
        state = answer.get("state") or {}
        available = {}
        for item in state.get("node_states") or []:
            node_id = binascii.hexlify(base64.b64decode(item["node_id"])).decode()
            available[node_id] = _public_resources(item.get("available_resources") or {})
        rows = []
        for item in answer["nodes"]:
            total = _public_resources(item.get("resources_total") or {})
            alive = item.get("state", "ALIVE") == "ALIVE"
            free = available.get(item["node_id"])
            rows.append(
                Row(
                    node_id=item["node_id"],
                    address=str(item.get("node_manager_address") or ""),
                    alive=alive,
                    head=bool(item.get("is_head_node")),
                    hostname=str(item.get("node_manager_hostname") or ""),
                    reason=_death(item.get("death_info") or {}),
                    started_ms=int(item.get("start_time_ms") or 0),
                    ended_ms=int(item.get("end_time_ms") or 0),
                    total=total,
                    # a resource that is used up is left out of the answer
                    available=None if free is None else {key: free.get(key, 0.0) for key in total},
                )
            )
        demands: list[dict[str, Any]] = []
        for item in state.get("pending_resource_requests") or []:
            bundle = dict((item.get("request") or {}).get("resources_bundle") or {})
            demands.append({"kind": "task_or_actor", "resources": bundle, "count": int(item.get("count") or 1)})
        for item in state.get("pending_gang_resource_requests") or []:
            demands.append(_gang(item))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the GCS's answer has an unknown shape: {error!r}") from error
    return View("engine", tuple(rows), tuple(demands), str(answer.get("ray_version") or ""))


def _gang(item: Mapping[str, Any]) -> dict[str, Any]:
    counted: list[dict[str, Any]] = []
    for request in item.get("requests") or []:
        bundle = dict(request.get("resources_bundle") or {})
        for known in counted:
            if known["resources"] == bundle:
                known["count"] += 1
                break
        else:
            counted.append({"resources": bundle, "count": 1})
    # "<id>:<strategy>|<state>"
    strategy = str(item.get("details") or "").rpartition(":")[2].partition("|")[0]
    return {"kind": "placement_group", "strategy": strategy, "bundles": counted, "count": 1}


_DEATHS = {
    "EXPECTED_TERMINATION": "Expected termination",
    "UNEXPECTED_TERMINATION": "Unexpected termination",
    "AUTOSCALER_DRAIN_PREEMPTED": "Drained, preempted",
    "AUTOSCALER_DRAIN_IDLE": "Drained, idle",
}


def _death(info: Mapping[str, Any]) -> str:
    reason = str(info.get("reason") or "")
    message = str(info.get("reason_message") or "")
    return ": ".join(part for part in (_DEATHS.get(reason, reason), message) if part)
