# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""What Ray on this host is set up as: its ports, its limits, and the cluster that ``ray.json`` expects."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .._lib.versions import release
from . import location

CONFIG_PATH = "/etc/sparkthor/ray.json"
TOKEN_PATH = "/etc/sparkthor/secrets/ray_token"
#: what Ray's programs call the files by which nodes know each other; the certificate is its own authority
TLS_FILES = {
    "RAY_TLS_SERVER_KEY": "/etc/sparkthor/secrets/ray_tls.key",
    "RAY_TLS_SERVER_CERT": "/etc/sparkthor/secrets/ray_tls.crt",
    "RAY_TLS_CA_CERT": "/etc/sparkthor/secrets/ray_tls.crt",
}
#: meant for clients of Ray; the command of a node names its cluster
NOT_RAYS = ("RAY_ADDRESS",)
DEFAULT_ENGINE = ("/opt/sparkthor/venv/bin/python",)
SERVING_USER = "sparkthor"
_IN_CONTAINER = tuple(location.command("container"))
#: older releases run jobs for anybody who reaches the dashboard and know no token
MINIMUM_RAY = (2, 54)


class RayConfigError(ValueError):
    """The description of the expected cluster is missing or wrong."""


@dataclass(frozen=True)
class RayPort:
    key: str
    default: int
    flag: str
    #: "all" nodes or the "head" alone
    where: str
    #: "any" (Ray binds every interface whatever it is told), "node" (control address and loopback), "loopback"
    binds: str
    purpose: str


PORTS: tuple[RayPort, ...] = (
    RayPort("gcs", 6379, "--port", "head", "any", "GCS: membership, actors, placement groups"),
    RayPort("node_manager", 6380, "--node-manager-port", "all", "any", "raylet: leases, health checks from the GCS"),
    RayPort("object_manager", 6381, "--object-manager-port", "all", "any", "objects from node to node"),
    RayPort("runtime_env_agent", 6382, "--runtime-env-agent-port", "all", "node", "runtime environments"),
    RayPort("dashboard_agent_grpc", 6383, "--dashboard-agent-grpc-port", "all", "any", "agent: metrics of the raylet"),
    RayPort("dashboard_agent_listen", 6384, "--dashboard-agent-listen-port", "all", "node", "agent: health over HTTP"),
    RayPort(
        "metrics_export", 6385, "--metrics-export-port", "all", "any", "Prometheus metrics; Ray asks no token here"
    ),
    RayPort("client_server", 6386, "--ray-client-server-port", "head", "node", "ray:// clients"),
    RayPort("dashboard", 8265, "--dashboard-port", "head", "loopback", "dashboard, state and jobs API"),
)
DEFAULT_PORTS: Mapping[str, int] = {port.key: port.default for port in PORTS}
#: opened by the head without a flag to move them
FIXED_PORTS: Mapping[str, int] = {"autoscaler metrics": 44217, "dashboard metrics": 44227}
WORKER_PORTS = (20000, 20999)


def mib(value: int | float) -> str:
    return f"{value / (1024 * 1024):,.0f} MiB"


def object_store_problems(wanted: int, memory: int, words: str) -> list[str]:
    if wanted <= memory:
        return []
    return [
        f"ray_node_object_store_memory: {mib(wanted)} is more than the {mib(memory)} {words}: lower it (1 GiB is "
        "enough for an engine) or free memory"
    ]


def version_problems(ray_version: str) -> list[str]:
    found = release(ray_version)
    if not found or "." not in ray_version:
        return [f"Ray {ray_version!r}: this is not a version number"]
    if found < MINIMUM_RAY:
        wanted = ".".join(str(part) for part in MINIMUM_RAY)
        return [
            f"Ray {ray_version} is older than {wanted}: it has no token authentication and known holes "
            "(CVE-2023-48022, CVE-2025-62593, CVE-2026-27482); install a newer one"
        ]
    return []


@dataclass(frozen=True)
class ExpectedNode:
    name: str
    address: str
    gpus: int
    role: str = "worker"


@dataclass(frozen=True)
class Config:
    """What ``/etc/sparkthor/ray.json`` says: who is expected where, and how to ask."""

    nodes: tuple[ExpectedNode, ...]
    head_address: str
    node_address: str = ""
    gcs_port: int = DEFAULT_PORTS["gcs"]
    agent_port: int = DEFAULT_PORTS["dashboard_agent_listen"]
    dashboard_port: int = DEFAULT_PORTS["dashboard"]
    auth: bool = True
    tls: bool = False
    token_path: str = TOKEN_PATH
    engine: tuple[str, ...] = DEFAULT_ENGINE
    #: whom the engine runs as when root asks; its bytecode cache is not root's
    user: str = SERVING_USER
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_head(self) -> bool:
        return bool(self.node_address) and self.node_address == self.head_address

    @property
    def in_container(self) -> bool:
        return self.engine[: len(_IN_CONTAINER)] == _IN_CONTAINER

    @property
    def expected_gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    @classmethod
    def from_mapping(cls, data: Any, where: str = CONFIG_PATH) -> Config:
        if not isinstance(data, Mapping):
            raise RayConfigError(f"{where}: not a JSON object")
        nodes = []
        for item in data.get("nodes") or []:
            try:
                node = ExpectedNode(
                    name=str(item.get("name") or item["address"]),
                    address=str(item["address"]),
                    gpus=int(item.get("gpus", 1)),
                    role=str(item.get("role") or "worker"),
                )
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise RayConfigError(f"{where}: nodes: {item!r} needs an address and a number of gpus") from error
            nodes.append(node)
        if not nodes:
            raise RayConfigError(f"{where}: nodes is empty: nobody is expected")
        addresses = [node.address for node in nodes]
        twice = sorted({address for address in addresses if addresses.count(address) > 1})
        if twice:
            raise RayConfigError(f"{where}: nodes: {', '.join(twice)} is given to two nodes")
        heads = [node.address for node in nodes if node.role == "head"]
        head = str(data.get("head_address") or (heads[0] if len(heads) == 1 else ""))
        if not head:
            raise RayConfigError(f"{where}: head_address is missing")
        try:
            ports = {**DEFAULT_PORTS, **(data.get("ports") or {})}
            return cls(
                nodes=tuple(nodes),
                head_address=head,
                node_address=str(data.get("node_address") or ""),
                gcs_port=int(ports["gcs"]),
                agent_port=int(ports["dashboard_agent_listen"]),
                dashboard_port=int(ports["dashboard"]),
                auth=data.get("auth") is not False,
                tls=data.get("tls") is True,
                token_path=str(data.get("token_path") or TOKEN_PATH),
                engine=tuple(str(word) for word in data.get("engine") or DEFAULT_ENGINE),
                user=str(data.get("user") or SERVING_USER),
                environment={str(key): str(value) for key, value in (data.get("environment") or {}).items()},
            )
        except (TypeError, ValueError) as error:
            raise RayConfigError(f"{where}: ports: {error}") from error


def load_config(path: str = CONFIG_PATH) -> Config:
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError as error:
        raise RayConfigError(f"{path} does not exist: this host was not set up as a Ray node") from error
    except (OSError, ValueError) as error:
        raise RayConfigError(f"{path} cannot be read: {error}") from error
    return Config.from_mapping(data, path)


def read_token(config: Config, environment: Mapping[str, str] | None = None) -> str:
    """The token, or nothing.  A unit's credential goes before the file, which only root may read."""
    if not config.auth:
        return ""
    env = os.environ if environment is None else environment
    for path in (env.get("RAY_AUTH_TOKEN_PATH"), config.token_path):
        if not path:
            continue
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as stream:
            return stream.read().strip()
    return ""
