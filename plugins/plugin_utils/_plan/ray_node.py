# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one Ray node: the arguments of ``ray start``, ray.json, and what is wrong with the settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import (
    DEFAULT_ENGINE,
    FIXED_PORTS,
    PORTS,
    TOKEN_PATH,
    mib,
    object_store_problems,
    version_problems,
)

#: what Ray itself refuses to go below
MINIMUM_OBJECT_STORE = 75 * 1024 * 1024
#: AF_UNIX paths end at 107 bytes; Ray appends session_<25 characters>_<pid>/sockets/plasma_store_<n>
MAXIMUM_TEMP_DIR = 36


def workers_needed(cpus: int) -> int:
    """Ports a node's worker range must hold.

    Ray starts one worker per CPU in advance and keeps as many again while tasks change hands; the engine's workers
    and drivers of all ranks come on top.
    """
    return 2 * max(1, cpus) + 32


def _port_problems(ports: Mapping[str, Any], worker_ports: Sequence[Any], reserved: Mapping[str, int]) -> list[str]:
    problems = []
    known = {port.key for port in PORTS}
    for key in ports:
        if key not in known:
            problems.append(f"ray_node_ports: {key!r} is no port of Ray; known: {', '.join(sorted(known))}")
    users: dict[int, list[str]] = {}
    for port in PORTS:
        value = ports.get(port.key, port.default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1024 <= value <= 65535:
            problems.append(f"ray_node_ports.{port.key}: {value!r} is not a port from 1024 to 65535")
            continue
        users.setdefault(value, []).append(f"ray_node_ports.{port.key}")
    for name, value in {**FIXED_PORTS, **reserved}.items():
        users.setdefault(int(value), []).append(f"{name}")
    for value, names in sorted(users.items()):
        if len(names) > 1 and any(name.startswith("ray_node_ports.") for name in names):
            problems.append(f"port {value} is wanted by {' and by '.join(names)}: give each its own")
    if (
        len(worker_ports) != 2
        or any(isinstance(p, bool) or not isinstance(p, int) for p in worker_ports)
        or not 1024 <= worker_ports[0] <= worker_ports[1] <= 65535
    ):
        problems.append(
            f"ray_node_worker_port_min/max: {list(worker_ports)} is not a range within 1024 to 65535, lower end first"
        )
        return problems
    low, high = worker_ports
    for value, names in sorted(users.items()):
        if low <= value <= high:
            problems.append(
                f"port {value} ({', '.join(names)}) lies inside the worker range {low}-{high} "
                "(ray_node_worker_port_min/max): move one of them"
            )
    return problems


def validate_node(
    *,
    ports: Mapping[str, Any],
    worker_ports: Sequence[Any],
    reserved: Mapping[str, int] | None = None,
    cpus: int = 1,
    gpus: Any = 0,
    object_store_bytes: Any = 0,
    memory_bytes: int = 0,
    temp_dir: str = "/var/lib/sparkthor/ray",
    ray_version: str = "",
) -> list[str]:
    """What is wrong with one node's settings; every entry names the variable, the value and the fix."""
    problems = _port_problems(ports, worker_ports, reserved or {})
    need = workers_needed(cpus)
    if not problems:
        have = int(worker_ports[1]) - int(worker_ports[0]) + 1
        if have < need:
            problems.append(
                f"ray_node_worker_port_min/max: the range {worker_ports[0]}-{worker_ports[1]} holds {have} ports, a "
                f"node with {cpus} CPUs needs {need}: widen it to at least "
                f"{worker_ports[0]}-{worker_ports[0] + need - 1}"
            )
    if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
        problems.append(f"ray_node_num_gpus: {gpus!r} is not a whole number from 0")
    if isinstance(object_store_bytes, bool) or not isinstance(object_store_bytes, int):
        problems.append(f"ray_node_object_store_memory: {object_store_bytes!r} is not a number of bytes")
    elif object_store_bytes < MINIMUM_OBJECT_STORE:
        problems.append(
            f"ray_node_object_store_memory: {object_store_bytes} bytes is less than Ray's minimum of "
            f"{MINIMUM_OBJECT_STORE} ({mib(MINIMUM_OBJECT_STORE)})"
        )
    elif memory_bytes:
        problems.extend(object_store_problems(object_store_bytes, memory_bytes, "that this host has"))
    if not temp_dir.startswith("/") or len(temp_dir) > MAXIMUM_TEMP_DIR:
        problems.append(
            f"ray_node_temp_dir: {temp_dir!r} must be an absolute path of at most {MAXIMUM_TEMP_DIR} characters, or "
            "the paths of Ray's sockets below it exceed what Linux allows"
        )
    if ray_version:
        problems.extend(version_problems(ray_version))
    return problems


def start_arguments(
    *,
    head: bool,
    address: str,
    gcs_address: str,
    ports: Mapping[str, int],
    worker_ports: Sequence[int],
    gpus: int,
    object_store_bytes: int,
    temp_dir: str,
    cpus: int | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[str]:
    """The arguments of ``ray start``: in the foreground, every port pinned, bound to the control address."""
    arguments = ["start", "--head"] if head else ["start", f"--address={gcs_address}"]
    arguments += [f"--node-ip-address={address}"]
    for port in PORTS:
        if port.where == "head" and not head:
            continue
        arguments.append(f"{port.flag}={int(ports.get(port.key, port.default))}")
    arguments += [
        f"--min-worker-port={int(worker_ports[0])}",
        f"--max-worker-port={int(worker_ports[1])}",
        f"--num-gpus={int(gpus)}",
        f"--object-store-memory={int(object_store_bytes)}",
        f"--temp-dir={temp_dir}",
    ]
    if cpus is not None:
        arguments.append(f"--num-cpus={int(cpus)}")
    if resources:
        arguments.append(f"--resources={json.dumps(dict(resources), sort_keys=True, separators=(',', ':'))}")
    if labels:
        arguments.append("--labels=" + ",".join(f"{key}={value}" for key, value in sorted(labels.items())))
    if head:
        arguments += ["--include-dashboard=true", "--dashboard-host=127.0.0.1"]
    return [*arguments, "--disable-usage-stats", "--block"]


def expected_nodes(
    hosts: Iterable[str], addresses: Mapping[str, str], gpus: Mapping[str, int], head: str
) -> list[dict[str, Any]]:
    """The ``nodes`` of ray.json from the cluster's plan, in its order."""
    return [
        {
            "name": host,
            "address": addresses[host],
            "gpus": int(gpus[host]),
            "role": "head" if host == head else "worker",
        }
        for host in hosts
    ]


def node_plan(
    cluster: Mapping[str, Any],
    fabric: Mapping[str, Mapping[str, Any]],
    host: str,
    settings: Mapping[str, Any],
    node: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything one host's files are rendered from: the arguments of ``ray start``, ray.json, and what is wrong.

    ``cluster`` and ``fabric`` are the plan that preflight made, ``settings`` the role's variables without their
    prefix, ``node`` the host's facts.
    """
    facts = node or {}
    head = str(cluster["head"])
    addresses = {name: str(fabric[name]["control_address"]) for name in cluster["hosts"]}
    ports = dict(settings.get("ports") or {})
    worker_ports = (settings.get("worker_port_min"), settings.get("worker_port_max"))
    # Ray opens its folder to everybody (0777); the one around it, which the role makes, stays ours
    temp_dir = str(settings.get("temp_dir") or "").rstrip("/") + "/t"
    gpus = cluster["gpus"].get(host, 0)
    store = settings.get("object_store_memory")
    problems = _settings_problems(settings, facts, gpus)
    plan: dict[str, Any] = {
        "problems": [f"{host}: {problem}" for problem in problems],
        "head": host == head,
        "address": addresses[host],
        "arguments": [],
        "config": {},
    }
    if problems:
        return plan
    numbers = {port.key: int(ports.get(port.key, port.default)) for port in PORTS}
    plan["arguments"] = start_arguments(
        head=plan["head"],
        address=addresses[host],
        gcs_address=f"{addresses[head]}:{numbers['gcs']}",
        ports=numbers,
        worker_ports=(int(worker_ports[0]), int(worker_ports[1])),  # type: ignore[arg-type]
        gpus=int(gpus),
        object_store_bytes=int(store),  # type: ignore[arg-type]
        temp_dir=temp_dir,
        cpus=int(settings["num_cpus"]) if settings.get("num_cpus") else None,
        resources=settings.get("resources") or {},
        labels=settings.get("labels") or {},
    )
    plan["config"] = {
        "head_address": addresses[head],
        "node_address": addresses[host],
        "nodes": expected_nodes(cluster["hosts"], addresses, cluster["gpus"], head),
        "ports": numbers,
        "temp_dir": temp_dir,
        "worker_ports": [int(worker_ports[0]), int(worker_ports[1])],  # type: ignore[arg-type]
        "object_store_memory": int(store),  # type: ignore[arg-type]
        **_how_to_ask(settings),
    }
    return plan


def _settings_problems(settings: Mapping[str, Any], facts: Mapping[str, Any], gpus: Any) -> list[str]:
    return validate_node(
        ports=settings.get("ports") or {},
        worker_ports=(settings.get("worker_port_min"), settings.get("worker_port_max")),
        reserved={str(name): int(port) for name, port in (settings.get("reserved_ports") or {}).items()},
        cpus=int(settings.get("num_cpus") or facts.get("cpus") or 1),
        gpus=gpus,
        object_store_bytes=settings.get("object_store_memory"),
        # what is free says little while Ray and the engine run; the host's own check knows whether they do
        memory_bytes=int(facts.get("mem_total_bytes") or 0),
        temp_dir=str(settings.get("temp_dir") or ""),
    )


def _how_to_ask(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of ray.json: how programs on the host reach Ray, and what else Ray is started anew for."""
    return {
        "auth": True,
        "token_path": TOKEN_PATH,
        "engine": list(settings.get("engine") or DEFAULT_ENGINE),
        "user": str(settings.get("user") or ""),
        "environment": {str(key): str(value) for key, value in (settings.get("environment") or {}).items()},
        # what Ray must be started anew for although it stands in files of others
        "inputs": dict(settings.get("inputs") or {}),
    }
