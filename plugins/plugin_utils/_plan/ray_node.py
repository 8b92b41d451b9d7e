# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The values of one Ray node: the arguments of ``ray start``, ray.json, and what is wrong with the settings."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import (
    FIXED_PORTS,
    NOT_RAYS,
    PORTS,
    TOKEN_PATH,
    mib,
    object_store_problems,
    version_problems,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import (
    CACHE,
    MODELS,
    VENV,
    InstalledEngine,
    bytecode_folder,
    installed_engine,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import engine_home

#: what Ray itself refuses to go below
MINIMUM_OBJECT_STORE = 75 * 1024 * 1024
#: AF_UNIX paths end at 107 bytes; Ray appends session_<25 characters>_<pid>/sockets/plasma_store_<n>
MAXIMUM_TEMP_DIR = 36
#: variables with ports of others, which Ray must leave free
RESERVED_PORTS = ("vllm_serve_api_port", "vllm_serve_master_port", "vllm_serve_group_port")
#: and with several serving groups
DOOR_PORT = ("vllm_serve_door_port",)


@dataclass(frozen=True)
class RaySettings:
    """Variables of the role ``ray_node``, and those of other roles that Ray has to know."""

    ray_node_ports: dict[str, Any]
    ray_node_worker_port_min: int
    ray_node_worker_port_max: int
    ray_node_object_store_memory: int
    ray_node_temp_dir: str
    ray_node_num_cpus: int
    ray_node_resources: dict[str, Any]
    ray_node_labels: dict[str, Any]
    ray_node_health_check_period_ms: int
    ray_node_health_check_timeout_ms: int
    ray_node_health_check_failure_threshold: int
    ray_node_health_check_initial_delay_ms: int
    ray_node_gcs_reconnect_timeout: int
    ray_node_grpc_client_keepalive_timeout_ms: int
    ray_node_memory_monitor_refresh_ms: int
    ray_node_env: dict[str, Any]
    ray_node_tls: bool = False
    engine_runtime: str = ""
    engine_venv_path: str = VENV
    engine_cache_dir: str = CACHE
    engine_extra_env: dict[str, Any] = field(default_factory=dict)
    vllm_serve_api_port: int = 8000
    vllm_serve_master_port: int = 29501
    vllm_serve_group_port: int = 29502
    vllm_serve_door_port: int = 8001
    # Ray's workers read the model
    vllm_serve_model: str = ""
    vllm_serve_args: dict[str, Any] = field(default_factory=dict)
    vllm_serve_env: dict[str, Any] = field(default_factory=dict)
    model_store_root: str = MODELS


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
            problems.append(f"ray_node_ports: {key!r} is not a port of Ray; known: {', '.join(sorted(known))}")
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


def _reserved(settings: RaySettings, cluster: Mapping[str, Any]) -> dict[str, int]:
    """Ports of others by their variable, those of groups beside this one on its head as well."""
    names = (*RESERVED_PORTS, *(DOOR_PORT if "groups" in cluster else ()))
    beside = {
        f"{name} of group {group}": int(own["given"][name])
        for group, own in (cluster.get("beside") or {}).items()
        for name in (*DOOR_PORT, "vllm_serve_group_port")
    }
    return {**{name: getattr(settings, name) for name in names}, **beside}


def plan_ray(
    settings: RaySettings,
    cluster: Mapping[str, Any],
    fabric: Mapping[str, Mapping[str, Any]],
    host: str,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """What the role's tasks and templates read.

    ``problems`` (texts), and of a host without one ``head`` (whether it is), ``address``, ``arguments`` (words of ``ray
    start``), ``config`` (ray.json), ``container`` or else ``venv`` (the engine's folder), ``home`` (what ProtectHome=
    says), and what a running Ray must have been started with: ``started_with`` (variables) and ``program_from`` (the
    folder of its program, null for a container).

    ``cluster`` and ``fabric`` are the plan that preflight made, ``facts`` the host's.
    """
    # a play without the role engine has no default of its
    runtime = settings.engine_runtime or str(cluster.get("runtime") or "venv")
    engine = installed_engine(facts.get("sparkthor_engine"), runtime, settings.engine_venv_path)
    network = (fabric.get(host) or {}).get("env") or {}
    # Ray gets no address of clients, and the files after fabric.env outrank it.
    outranked = {*NOT_RAYS, *merged(settings.engine_extra_env), *merged(settings.ray_node_env)}
    started_with = {name: value for name, value in network.items() if name not in outranked}
    model = (cluster.get("serving") or {}).get("model")
    return {
        **node_plan(settings, engine, cluster, fabric, host, facts.get("sparkthor_node")),
        "container": engine.container,
        "venv": engine.venv,
        "home": engine_home(asdict(settings), engine.venv, model),
        # The main process of a container's unit is Docker's client, whose environment says nothing about Ray's.
        "started_with": {} if engine.container else started_with,
        "program_from": None if engine.container else posixpath.normpath(engine.venv),
    }


def node_plan(
    settings: RaySettings,
    engine: InstalledEngine,
    cluster: Mapping[str, Any],
    fabric: Mapping[str, Mapping[str, Any]],
    host: str,
    facts: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything one host's files are rendered from: the arguments of ``ray start``, ray.json, and what is wrong.

    ``cluster`` and ``fabric`` are the plan that preflight made, ``facts`` the node's.
    """
    facts = facts or {}
    head = str(cluster["head"])
    addresses = {name: str(fabric[name]["control_address"]) for name in cluster["hosts"]}
    worker_ports = (settings.ray_node_worker_port_min, settings.ray_node_worker_port_max)
    gpus = cluster["gpus"].get(host, 0)
    problems = validate_node(
        ports=settings.ray_node_ports,
        worker_ports=worker_ports,
        reserved=_reserved(settings, cluster),
        cpus=settings.ray_node_num_cpus or int(facts.get("cpus") or 1),
        gpus=gpus,
        object_store_bytes=settings.ray_node_object_store_memory,
        # what is free says little while Ray and the engine run; the host's own check knows whether they do
        memory_bytes=int(facts.get("mem_total_bytes") or 0),
        temp_dir=settings.ray_node_temp_dir,
    )
    plan: dict[str, Any] = {"problems": [f"{host}: {problem}" for problem in problems], "arguments": [], "config": {}}
    plan.update(head=host == head, address=addresses[host])
    if problems:
        return plan
    ports = {port.key: int(settings.ray_node_ports.get(port.key, port.default)) for port in PORTS}
    env = fabric[host]["env"]
    # Ray opens its folder to everybody (0777); the one around it, which the role makes, stays ours
    temp_dir = settings.ray_node_temp_dir.rstrip("/") + "/t"
    config = {
        "head_address": cluster["head_address"],
        "node_address": addresses[host],
        "nodes": expected_nodes(cluster["hosts"], addresses, cluster["gpus"], head),
        "ports": ports,
        "temp_dir": temp_dir,
        "worker_ports": list(worker_ports),
        "object_store_memory": settings.ray_node_object_store_memory,
    }
    plan["arguments"] = start_arguments(
        head=plan["head"],
        address=addresses[host],
        gcs_address=env["RAY_ADDRESS"],
        ports=ports,
        worker_ports=worker_ports,
        gpus=int(gpus),
        object_store_bytes=settings.ray_node_object_store_memory,
        temp_dir=temp_dir,
        cpus=settings.ray_node_num_cpus or None,
        resources=settings.ray_node_resources,
        labels=settings.ray_node_labels,
    )
    plan["config"] = {**config, **_how_to_ask(settings, engine, env)}
    return plan


def _how_to_ask(settings: RaySettings, engine: InstalledEngine, network: Mapping[str, Any]) -> dict[str, Any]:
    """Of ray.json: how programs on the host reach Ray, and what else Ray is started anew for."""
    return {
        "auth": True,
        "tls": settings.ray_node_tls,
        "token_path": TOKEN_PATH,
        "engine": engine.python,
        # root's questions run the engine as this user, with the bytecode that this user's Ray has compiled
        "user": "" if engine.container else "sparkthor",
        "environment": {"PYTHONPYCACHEPREFIX": bytecode_folder(settings.engine_cache_dir)},
        # what Ray must be started anew for although it stands in files of others
        "inputs": {"engine": engine.digest, "fabric": dict(network)},
    }
