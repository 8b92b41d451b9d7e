# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What prevents a start of Ray on this host."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._lib import foreign
from . import ray_config, ray_probe
from .ray_processes import CONTAINERS, Listener, RayProcess, ours, own_groups, read_listeners, read_processes, runs_here


def _pair(values: Sequence[Any]) -> tuple[int, int]:
    low, high = values
    return int(low), int(high)


@dataclass(frozen=True)
class NodeSettings:
    """The part of ray.json that only this host's own start needs."""

    temp_dir: str
    ports: Mapping[str, int]
    worker_ports: tuple[int, int] = ray_config.WORKER_PORTS
    object_store: int = 0

    @classmethod
    def load(cls, path: str) -> NodeSettings:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
        return cls(
            temp_dir=str(data.get("temp_dir") or "/var/lib/sparkthor/ray"),
            ports={key: int(value) for key, value in (data.get("ports") or {}).items()},
            worker_ports=_pair(data.get("worker_ports") or ray_config.WORKER_PORTS),
            object_store=int(data.get("object_store_memory") or 0),
        )

    def own_ports(self, head: bool) -> list[tuple[int, str]]:
        return [
            (int(self.ports.get(port.key, port.default)), port.key)
            for port in ray_config.PORTS
            if head or port.where == "all"
        ]


def is_local(address: str) -> bool:
    with contextlib.closing(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)) as sock:
        try:
            sock.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return False
            raise
    return True


def ray_port_problems(settings: NodeSettings, head: bool, listeners: Iterable[Listener]) -> list[str]:
    """Ports that a program holds which no restart of Ray would end."""
    names = dict(settings.own_ports(head))
    low, high = settings.worker_ports
    problems = []
    for listener in listeners:
        if listener.port in names:
            what, where = f"ray_node_ports.{names[listener.port]}", "give Ray another port"
        elif low <= listener.port <= high:
            what, where = f"the worker range {low}-{high}", "move ray_node_worker_port_min/max"
        else:
            continue
        who = f"{listener.command[:80]} (process {listener.pid})" if listener.pid else "a program that cannot be seen"
        problems.append(f"port {listener.port} ({what}) is taken by {who}: stop it, or {where}")
    return problems


def available_memory(path: str = "/proc/meminfo") -> int:
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii") as stream:
        for line in stream:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


VERSIONS_PROGRAM = """
import importlib.metadata as metadata, json, platform
versions = {"python": platform.python_version()}
for name in ("ray", "vllm", "torch"):
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        versions[name] = "absent"
print("\\n" + json.dumps(versions))
"""


def engine_versions(config: ray_config.Config, timeout: float = 60.0) -> dict[str, str]:
    """Versions in the engine; empty where it cannot be run."""
    try:
        status, out, _err = ray_probe.run_engine(config, [], VERSIONS_PROGRAM, timeout)
    except (OSError, subprocess.SubprocessError):
        return {}
    if status == 0:
        for line in reversed(out.splitlines()):
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    return {str(key): str(value) for key, value in foreign.parse_object(line).items()}
    return {}


def check(
    config: ray_config.Config,
    settings: NodeSettings,
    processes: Sequence[RayProcess] | None = None,
    containers: str = CONTAINERS,
) -> dict[str, Any]:
    """What stands against a start on this host, and the versions that all hosts must share."""
    there = read_processes() if processes is None else processes
    problems = []
    if not is_local(config.node_address):
        problems.append(
            f"the control address {config.node_address} is on no interface of this host: run the roce_network role "
            "or check its fabric port"
        )
    elif not config.on_head:
        probe = ray_probe.probe_tcp("head", config.head_address, config.gcs_port, 3.0)
        if probe.status in (ray_probe.SILENT, ray_probe.UNREACHABLE):
            problems.append(
                f"the head's control address {config.head_address} cannot be reached from {config.node_address}: "
                f"{probe.status}; check cable, addresses and the firewall on the head"
            )
    low, high = settings.worker_ports
    ports = {port for port, _name in settings.own_ports(config.on_head)} | set(range(low, high + 1))
    groups = own_groups(containers)
    own = {process.pid for process in there if ours(process, settings.temp_dir, groups)}
    listeners = [listener for listener in read_listeners(ports, there) if listener.pid not in own]
    problems.extend(ray_port_problems(settings, config.on_head, listeners))
    if not runs_here(there, settings.temp_dir):
        # while it runs, a restart gives back what Ray and the engine hold, and nobody knows how much that is
        free = available_memory()
        if free:
            problems.extend(ray_config.object_store_problems(settings.object_store, free, "that are free on this host"))
    versions = engine_versions(config)
    if not versions:
        problems.append(f"the engine's Python cannot be run: {' '.join(config.engine)}; run the engine role")
    elif versions.get("ray") == "absent":
        problems.append("Ray is not installed in the engine; run the engine role")
    else:
        problems.extend(ray_config.version_problems(versions["ray"]))
    return {"problems": problems, "versions": versions}
