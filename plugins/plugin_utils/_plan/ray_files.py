# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role ``ray_node`` puts on a host: Ray's files, environment and unit, out of the node's plan."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.ray_config import NOT_RAYS, TLS_FILES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ray_tls
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import InstalledEngine, installed_engine
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import (
    ROLES,
    File,
    HostState,
    Unit,
    directory,
    environment_text,
    json_file,
    program,
    rendered,
    secret_file,
    switched_off,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ray_node import RaySettings, node_plan
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import engine_sandbox

UNIT = "sparkthor-ray.service"
_ENVIRONMENT = "/etc/sparkthor/ray.env"
TOKEN = "/etc/sparkthor/secrets/ray_token"
TLS_KEY = TLS_FILES["RAY_TLS_SERVER_KEY"]
TLS_CERTIFICATE = TLS_FILES["RAY_TLS_SERVER_CERT"]
#: What a running Ray was started with: another content of these means a restart. ray.json repeats what other roles
#: write (the engine, the fabric's environment), so that their changes show here.
RESTART_ON = (
    *(_ENVIRONMENT, "/etc/sparkthor/ray.json", TOKEN, TLS_KEY, TLS_CERTIFICATE),
    f"/etc/systemd/system/{UNIT}",
)
_TEMPLATES = ROLES / "ray_node" / "templates"


def ray_environment(settings: RaySettings) -> dict[str, Any]:
    """ray.env; values given in ``ray_node_env`` win, null takes one away."""
    environment = {
        "RAY_AUTH_MODE": "token",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's own 15 lets every other program of the host go before the model
        "RAY_worker_niceness": "0",
        "RAY_memory_monitor_refresh_ms": settings.ray_node_memory_monitor_refresh_ms,
        "RAY_health_check_period_ms": settings.ray_node_health_check_period_ms,
        "RAY_health_check_timeout_ms": settings.ray_node_health_check_timeout_ms,
        "RAY_health_check_failure_threshold": settings.ray_node_health_check_failure_threshold,
        "RAY_health_check_initial_delay_ms": settings.ray_node_health_check_initial_delay_ms,
        "RAY_gcs_rpc_server_reconnect_timeout_s": settings.ray_node_gcs_reconnect_timeout,
        "RAY_grpc_client_keepalive_timeout_ms": settings.ray_node_grpc_client_keepalive_timeout_ms,
        "PYTHONUNBUFFERED": "1",
    }
    return merged(environment, settings.ray_node_env)


def plan_ray(
    settings: RaySettings,
    cluster: Mapping[str, Any],
    fabric: Mapping[str, Mapping[str, Any]],
    host: str,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """``problems`` (texts), ``state`` (for host_state, without the token) and ``wanted`` (whether Ray is to run).

    ``cluster`` and ``fabric`` are the plan that preflight made, ``facts`` the host's. With executor mp there is no Ray,
    and what an earlier run left of it is switched off.
    """
    # a play without the role engine has no default of its
    runtime = settings.engine_runtime or str(cluster.get("runtime") or "venv")
    engine = installed_engine(facts.get("sparkthor_engine"), runtime, settings.engine_venv_path)
    network = dict((fabric.get(host) or {}).get("env") or {})
    node = node_plan(settings, engine, cluster, fabric, host, facts.get("sparkthor_node"))
    wanted = settings.vllm_serve_executor == "ray"
    state = HostState(units=[{**switched_off(UNIT), "defer": True}])
    # without arguments there is nothing to render: the problems end the run before that
    if wanted and not node["problems"]:
        state = HostState(
            directories=[
                directory("/etc/sparkthor"),
                directory("/etc/sparkthor/secrets", mode="0700"),
                directory(settings.ray_node_temp_dir, "sparkthor", "sparkthor", "0750"),
            ],
            files=_files(settings, node, engine, str((cluster.get("serving") or {}).get("model") or "")),
            absent=[] if settings.ray_node_tls else [TLS_KEY, TLS_CERTIFICATE],
            units=[_unit(settings, engine, network)],
        )
    return {"problems": node["problems"], "wanted": wanted, "head": node["head"], "state": state.arguments()}


def ray_secret_files(
    settings: RaySettings, fabric: Mapping[str, Mapping[str, Any]], read_secret: Callable[[str], str]
) -> list[File]:
    """The token and what follows from it, where Ray runs; without Ray the role vllm_serve writes the token.

    Raises TlsError.
    """
    if settings.vllm_serve_executor != "ray":
        return []
    token = read_secret("ray_token")
    found = [secret_file(TOKEN, token + "\n")]
    if settings.ray_node_tls:
        key, certificate = ray_tls.key_and_certificate(token, [own["control_address"] for own in fabric.values()])
        found += [secret_file(TLS_KEY, key), secret_file(TLS_CERTIFICATE, certificate)]
    return found


def _files(settings: RaySettings, node: Mapping[str, Any], engine: InstalledEngine, model: str) -> list[File]:
    unit = rendered(
        _TEMPLATES / f"{UNIT}.j2",
        head=node["head"],
        address=node["address"],
        container=engine.container,
        folder=settings.ray_node_temp_dir,
        tls=settings.ray_node_tls,
        program=program,
        command=engine.as_root
        + " ".join([*engine.launch(_ENVIRONMENT, without=NOT_RAYS), *engine.program("ray", "ray")]),
        arguments=shlex.join(node["arguments"]),
        sandbox=engine_sandbox(asdict(settings), engine.venv, model),
    )
    return [
        json_file("/etc/sparkthor/ray.json", node["config"]),
        {"path": _ENVIRONMENT, "content": environment_text(ray_environment(settings))},
        {"path": f"/etc/systemd/system/{UNIT}", "content": unit},
    ]


def _unit(settings: RaySettings, engine: InstalledEngine, network: Mapping[str, Any]) -> Unit:
    """Decided by prepare.yml, started by main.yml, when all hosts are prepared."""
    # Ray gets no address of clients, and the files after fabric.env outrank it.
    outranked = {*NOT_RAYS, *merged(settings.engine_extra_env), *merged(settings.ray_node_env)}
    return {
        "name": UNIT,
        "enabled": True,
        "state": "started",
        "restart_on": list(RESTART_ON),
        # A Ray that was started while fabric.env had drifted keeps that, though the file is right by now. (The main
        # process of a container's unit is Docker's client, whose environment says nothing about Ray's.)
        "environment": {}
        if engine.container
        else {name: value for name, value in network.items() if name not in outranked},
        # An environment that was installed anew has the digest of the damaged one, so no file of RESTART_ON changes.
        **({} if engine.container else {"program_from": posixpath.normpath(engine.venv)}),
        "defer": True,
    }
