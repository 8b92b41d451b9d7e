# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""The health of a Ray cluster as data: the one question that gate, watchdog and the module ``ray_info`` ask.

:func:`collect` asks, :func:`assess` is pure and judges: rows and probes in, ``healthy`` and ``problems`` out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from .._lib.deadline import ask_until
from .._lib.finding import Finding
from . import ray_config
from .ray_config import Config, ExpectedNode, read_token
from .ray_members import Row, View, read_dashboard_nodes, read_dashboard_status, read_engine_view
from .ray_probe import (
    ABSENT,
    ERROR,
    REFUSED,
    SILENT,
    SKIPPED,
    SLOW,
    UNAUTHORIZED,
    UNREACHABLE,
    RayProbe,
    probe_engine,
    probe_http,
    probe_tcp,
)


@dataclass(frozen=True)
class Answers:
    """All that was asked: the reachability of the GCS, the sources, and each node's agent by address."""

    gcs: RayProbe
    sources: tuple[RayProbe, ...] = ()
    view: View | None = None
    raylets: Mapping[str, RayProbe] = field(default_factory=dict)


def _iso(milliseconds: int) -> str:
    if not milliseconds:
        return ""
    # datetime.UTC came with Python 3.11; this package runs on 3.10
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017


def public_problem(found: Finding) -> dict[str, str]:
    """A problem as the answer holds it; ``node`` is empty where the whole cluster has it."""
    return {"code": found.id, "node": found.host, "cause": found.what, "fix": found.fix}


_GCS_CAUSES = {
    REFUSED: ("nothing listens there", "see why sparkthor-ray.service on the head is not running: journalctl -u"),
    SILENT: ("no answer", "check the head's power, its cable, and that the firewall there trusts this host"),
    UNREACHABLE: ("no way there", "check this host's fabric address and cable"),
}


def _unreadable(config: Config, answers: Answers) -> Finding:
    """Why there is no list of nodes at all."""
    where = f"{config.head_address}:{config.gcs_port}"
    if not answers.gcs.ok:
        what, fix = _GCS_CAUSES.get(answers.gcs.status, (answers.gcs.detail, "see the head's journal"))
        if fix.endswith("journalctl -u"):
            fix += " sparkthor-ray"
        return Finding("gcs_" + answers.gcs.status, f"the GCS at {where} cannot be reached: {what}", fix)
    for probe in answers.sources:
        if probe.status == UNAUTHORIZED:
            lacking = "cannot be opened or is empty" in probe.detail or "Missing authentication token" in probe.detail
            cause = "this host has no token" if lacking else "the cluster does not know this host's token"
            return Finding(
                "token_missing" if lacking else "token_refused",
                f"the GCS at {where} refuses us: {cause} ({config.token_path})",
                "run the ray roles on all hosts, so that every host has the same token, then restart Ray",
            )
    for probe in answers.sources:
        if probe.status == ABSENT:
            return Finding(
                "engine_absent",
                f"the engine's Python with Ray cannot be run: {probe.detail}",
                "run the engine role on this host",
            )
    for probe in answers.sources:
        if probe.status == SLOW:
            return Finding(
                "gcs_hangs",
                f"the GCS at {where} takes connections but does not answer: {probe.detail}",
                "if it stays so, restart sparkthor-ray.service on the head",
            )
    detail = "; ".join(probe.detail for probe in answers.sources if probe.detail)
    return Finding(
        "no_answer", f"no source could list the nodes: {detail or 'nothing was asked'}", "see the head's journal"
    )


def assess(config: Config, answers: Answers) -> dict[str, Any]:
    """Judge.  A node is there only by an ALIVE row on its expected control address, with its GPUs."""
    problems: list[Finding] = []
    by_address: dict[str, list[Row]] = {}
    view = answers.view
    if view is None:
        problems.append(_unreadable(config, answers))
    else:
        for row in view.rows:
            by_address.setdefault(row.address, []).append(row)
    alive, present = [], 0
    for node in config.nodes:
        rows = sorted(by_address.get(node.address, []), key=lambda row: row.started_ms)
        living = [row for row in rows if row.alive]
        raylet = answers.raylets.get(node.address)
        if view is not None:
            problems.extend(_node_problems(node, rows, living, raylet))
        if living:
            alive.append(_alive_entry(node, living[-1], raylet))
            present += int(living[-1].total.get("GPU", 0))
    members = view.rows if view else ()
    expected = {node.address for node in config.nodes}
    strangers = [row for row in members if row.alive and row.address not in expected]
    problems.extend(_stranger_problem(config, row) for row in strangers)
    names = {node.address: node.name for node in config.nodes}
    dead = [_dead_entry(row, names, by_address[row.address]) for row in members if not row.alive]
    dead.sort(key=lambda entry: (entry["ended"], entry["address"]))
    result = {
        "healthy": not problems,
        "problems": [public_problem(found) for found in problems],
        "reason": "",
        "alive": alive,
        "dead": dead,
        "strangers": [_alive_entry(None, row, None) for row in strangers],
        "expected_nodes": len(config.nodes),
        "present_nodes": len(alive),
        "missing": [node.name for node in config.nodes if node.address not in {a["address"] for a in alive}],
        "expected_gpus": config.expected_gpus,
        "present_gpus": present,
        "pending": list(view.demands) if view else [],
        "head_address": config.head_address,
        "ray_version": view.ray_version if view else "",
        "source": view.source if view else "",
        "probes": {
            "gcs": answers.gcs.public(),
            "sources": [probe.public() for probe in answers.sources],
            "raylets": {address: probe.public() for address, probe in answers.raylets.items()},
        },
    }
    result["reason"] = reason_line(result)
    return result


def _node_problems(
    node: ExpectedNode, rows: Sequence[Row], living: Sequence[Row], raylet: RayProbe | None
) -> list[Finding]:
    where = f"{node.name} ({node.address})"
    problems = []
    if not living:
        ended = rows[-1] if rows else None
        cause = f"{where} is not a member"
        if ended is not None:
            cause += f"; it left at {_iso(ended.ended_ms)}: {ended.reason or 'no reason recorded'}"
        fix = "read its journal: journalctl -u sparkthor-ray"
        if raylet is not None and raylet.status in (SILENT, UNREACHABLE):
            cause += "; its host does not answer on the control address"
            fix = "check its power, its cable and its fabric address; it joins by itself once it is reachable"
        elif raylet is not None and raylet.status == REFUSED:
            cause += "; its host answers, but no raylet runs there"
        elif raylet is not None and raylet.ok:
            cause += "; a raylet runs there, but not in this cluster (yet)"
        problems.append(Finding("absent", cause, fix, node.name))
        return problems
    if len(living) > 1:
        problems.append(
            Finding(
                "ghost",
                f"{where} is listed alive {len(living)} times: the death of its former raylet is not noticed yet",
                "wait for the health check to notice (seconds); the engine must not be started on a ghost",
                node.name,
            )
        )
    found = int(living[-1].total.get("GPU", 0))
    if found < node.gpus:
        problems.append(
            Finding(
                "gpus",
                f"{where} offers {found} of {node.gpus} GPUs",
                "check nvidia-smi there and ray_node_num_gpus, then restart its sparkthor-ray.service",
                node.name,
            )
        )
    if raylet is not None and not raylet.ok and raylet.status not in (SKIPPED, SLOW):
        problems.append(
            Finding(
                "raylet_" + raylet.status,
                f"{where} is listed alive, but its raylet does not answer ({raylet.status}): "
                "it died a moment ago, or its agent is still starting",
                "wait for the health check to notice; if it stays so, read its journal: journalctl -u sparkthor-ray",
                node.name,
            )
        )
    return problems


def _stranger_problem(config: Config, row: Row) -> Finding:
    named = [node for node in config.nodes if row.hostname and node.name == row.hostname]
    who = (
        f"{named[0].name} joined on {row.address}, not on {named[0].address}"
        if named
        else (f"{row.hostname or 'a node'} on {row.address} is a member but not expected")
    )
    return Finding(
        "wrong_address" if named else "stranger",
        who,
        "stop Ray there; a node of this cluster is started by its unit alone, which pins the address",
        named[0].name if named else "",
    )


def _dead_entry(row: Row, names: Mapping[str, str], same_address: Sequence[Row]) -> dict[str, Any]:
    return {
        "name": names.get(row.address, ""),
        "address": row.address,
        "node_id": row.node_id,
        "reason": row.reason,
        "started": _iso(row.started_ms),
        "ended": _iso(row.ended_ms),
        "rejoined": any(other.alive for other in same_address),
    }


def _alive_entry(node: ExpectedNode | None, row: Row, raylet: RayProbe | None) -> dict[str, Any]:
    return {
        "name": node.name if node else row.hostname,
        "address": row.address,
        "node_id": row.node_id,
        "role": "head" if row.head else "worker",
        "resources_total": dict(row.total),
        "resources_available": None if row.available is None else dict(row.available),
        "started": _iso(row.started_ms),
        "raylet_ok": None if raylet is None or raylet.status == SKIPPED else raylet.ok,
        "raylet_latency_ms": None if raylet is None else raylet.latency_ms,
    }


def reason_line(result: Mapping[str, Any]) -> str:
    """One line for a journal or a play's message."""
    count = (
        f"{result['present_nodes']} of {result['expected_nodes']} nodes, "
        f"{result['present_gpus']} of {result['expected_gpus']} GPUs"
    )
    if result["healthy"]:
        return f"{count} on {result['head_address']}"
    problems = result["problems"]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{count}: {problems[0]['cause']}{more}; {problems[0]['fix']}"


def _ask_dashboard(config: Config, token: str, timeout: float) -> tuple[list[RayProbe], View | None]:
    base = f"http://127.0.0.1:{config.dashboard_port}"
    nodes = probe_http("dashboard", f"{base}/api/v0/nodes?detail=true&limit=10000", timeout, token)
    if not nodes.ok:
        return [nodes], None
    try:
        rows = read_dashboard_nodes(nodes.data)
    except ValueError as error:
        return [RayProbe("dashboard", ERROR, nodes.latency_ms, str(error))], None
    status = probe_http("dashboard_status", f"{base}/api/cluster_status", timeout, token)
    demands: list[dict[str, Any]] = []
    if status.ok:
        try:
            available, demands = read_dashboard_status(status.data)
            rows = [
                Row(**{**vars(row), "available": available.get(row.node_id) if row.alive else None}) for row in rows
            ]
        except ValueError as error:
            # Not a reason to call the cluster sick: the list of nodes is what is judged
            status = RayProbe("dashboard_status", ERROR, status.latency_ms, str(error))
    return [nodes, status], View("dashboard", tuple(rows), tuple(demands))


def collect(
    config: Config,
    timeout: float = 5.0,
    source: str = "auto",
    raylets: bool = True,
    environment: Mapping[str, str] | None = None,
) -> Answers:
    """Ask everything at once, within about ``timeout`` seconds (twice that where the dashboard hangs).

    ``source``: ``dashboard`` and ``engine`` use that one alone; ``auto`` the dashboard where it is (the head), else the
    engine.
    """
    short = min(timeout, 3.0)
    with ThreadPoolExecutor(max_workers=min(32, len(config.nodes) + 2)) as pool:
        gcs_future = pool.submit(probe_tcp, "gcs", config.head_address, config.gcs_port, short)
        raylet_futures = {
            node.address: pool.submit(
                probe_http,
                f"raylet {node.name}",
                f"http://{node.address}:{config.agent_port}/api/local_raylet_healthz",
                short,
            )
            for node in config.nodes
            if raylets
        }
        probes: list[RayProbe] = []
        view: View | None = None
        gcs = gcs_future.result()
        if source in ("auto", "dashboard") and (config.on_head or source == "dashboard") and gcs.ok:
            probes, view = _ask_dashboard(config, read_token(config, environment), timeout)
        refused = any(probe.status == UNAUTHORIZED for probe in probes)
        if view is None and gcs.ok and not refused and source in ("auto", "engine"):
            engine = probe_engine(config, timeout, environment)
            probes = [*probes, engine]
            if engine.ok:
                try:
                    view = read_engine_view(engine.data)
                except ValueError as error:
                    probes[-1] = RayProbe("engine", ERROR, engine.latency_ms, str(error))
        answered = {address: future.result() for address, future in raylet_futures.items()}
    return Answers(gcs, tuple(probes), view, answered)


def cluster_health(
    config: Config,
    timeout: float = 5.0,
    source: str = "auto",
    raylets: bool = True,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The health of the cluster as data; the one question that gate, module and watchdog ask."""
    start = time.monotonic()
    result = assess(config, collect(config, timeout, source, raylets, environment))
    result["seconds"] = round(time.monotonic() - start, 3)
    return result


#: waiting cannot fix these
FINAL_CODES = frozenset({"token_missing", "token_refused", "engine_absent"})


def is_final(result: Mapping[str, Any]) -> bool:
    return any(problem["code"] in FINAL_CODES for problem in result["problems"])


def wait_healthy(
    config: Config,
    wait: float,
    timeout: float = 5.0,
    source: str = "auto",
    interval: float = 1.0,
    ask: Any = None,
) -> dict[str, Any]:
    """Ask until healthy, until waiting is of no use, or until ``wait`` seconds have passed."""
    question = ask or (lambda: cluster_health(config, timeout, source))
    start = time.monotonic()
    result: dict[str, Any] = ask_until(question, lambda found: found["healthy"] or is_final(found), wait, interval)
    return {**result, "waited_seconds": round(time.monotonic() - start, 1)}


def difference(arguments: Mapping[str, Any]) -> str:
    """Why the cluster is not healthy now; the module ``ray_info`` wants nothing else."""
    found = wait_healthy(ray_config.load_config(ray_config.CONFIG_PATH), 0.0, 5.0, "auto")
    return "" if found["healthy"] else str(found["reason"])
