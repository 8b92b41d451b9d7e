# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of a host's engine: its environment, its commands, and what Docker is told of a container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.pins import EngineError, read_engine
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location, places, ray_config
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.base import EngineOnHost
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.local_path import local
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import toolchain
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged

HOME = "/var/lib/sparkthor"
CACHE = f"{HOME}/cache"
MODELS = f"{HOME}/models"
RAY_TEMP_DIR = f"{HOME}/ray"
#: root's own: environments, wheels, images, and what is known of them
WORK_DIR = "/opt/sparkthor"
VENV = f"{WORK_DIR}/venv"
OFFLINE: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_NO_REPORTS: Mapping[str, str] = {**registry.DEFAULT.no_reports, "DO_NOT_TRACK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class EngineSettings:
    """Variables of the role ``engine`` and of the roles whose folders it prepares."""

    engine_runtime: str = "venv"
    engine_venv_path: str = VENV
    engine_cache_dir: str = CACHE
    engine_offline: bool = True
    engine_extra_env: dict[str, Any] = field(default_factory=dict)
    engine_container_mounts: list[str] = field(default_factory=list)
    engine_container_options: list[str] = field(default_factory=list)
    model_store_root: str = MODELS
    ray_node_temp_dir: str = RAY_TEMP_DIR
    vllm_serve_model: str = ""
    engine_requirements: str = ""
    fabric_topology: str = ""
    engine_toolchain_check: bool = True
    engine_build_packages: list[str] = field(default_factory=lambda: ["gcc", "libc6-dev", "python3-dev"])


def cache_folders(cache: str, engine: EngineOnHost) -> dict[str, str]:
    """Environment that leads everything that costs minutes to make below one folder: compiled kernels, graphs, tuning.

    The one answer for Ray (engine.env) and for serving: a rank that Ray starts finds what another left.
    FlashInfer appends ``.cache/flashinfer`` to its folder.
    """
    return {
        "HOME": cache,
        "XDG_CACHE_HOME": cache,
        "HF_HOME": f"{cache}/huggingface",
        **{name: f"{cache}/{folder}" for name, folder in engine.caches.items()},
        "FLASHINFER_WORKSPACE_BASE": cache,
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
    }


def bytecode_folder(cache: str) -> str:
    """For PYTHONPYCACHEPREFIX: the engine is root's, and modules are compiled where the serving user may write."""
    return f"{cache}/pycache"


@dataclass(frozen=True)
class InstalledEngine:
    """How units reach the engine of a host. Commands are lists of words."""

    container: bool
    venv: str
    #: Python with the engine; with a container it runs inside
    python: list[str]
    digest: str
    versions: Mapping[str, str]

    @property
    def record(self) -> str:
        """File that changes whenever another engine is installed."""
        return "/etc/sparkthor/container.json" if self.container else f"{self.venv}/.sparkthor-engine.json"

    @property
    def as_root(self) -> str:
        """Prefix of a unit's command: only root may speak to Docker, and what runs inside is the unit's user anyway."""
        return "+" if self.container else ""

    def launch(self, *files: str, without: Iterable[str] = ()) -> list[str]:
        """Before a program of a venv: gives it the engine's environment and ``files``, files of its service.

        With a container nothing: what root runs there reads the files itself, for Docker to pass on.
        """
        if self.container:
            return []
        paths = (environment_file.FABRIC, f"-{environment_file.ENGINE}", *files)
        words = [*(f"--file={path}" for path in paths), *(f"--without={name}" for name in without)]
        return location.command("launch", *words, "--")

    def program(self, name: str, service: str) -> list[str]:
        """A program of the engine, run for one of the services of a container's settings."""
        return location.command("container", "run", service) if self.container else [f"{self.venv}/bin/{name}"]


def installed_engine(fact: Mapping[str, Any] | None, runtime: str, venv: str) -> InstalledEngine:
    """From the fact ``sparkthor_engine``; where the engine role has not run (render.yml), from its variables."""
    known: Mapping[str, Any] = (
        fact
        if fact is not None
        else {"runtime": runtime, "path": venv, "command": location.command("container", "python")}
    )
    path = str(known.get("path") or VENV)
    container = known.get("runtime", "venv") == "container"
    return InstalledEngine(
        container=container,
        venv=path,
        python=[str(word) for word in known["command"]] if container else [f"{path}/bin/python"],
        digest=str(known.get("digest") or ""),
        versions=dict(known.get("versions") or {}),
    )


def engine_environment(settings: EngineSettings, node: Mapping[str, Any]) -> dict[str, Any]:
    """What every engine process of the host gets: no per-host network values (fabric.env), and never a secret.

    Values given in ``engine_extra_env`` win; null takes one away.
    """
    environment: dict[str, Any] = {
        **cache_folders(settings.engine_cache_dir, registry.DEFAULT),
        "PYTHONPYCACHEPREFIX": bytecode_folder(settings.engine_cache_dir),
        **_NO_REPORTS,
    }
    if settings.engine_offline:
        environment.update(OFFLINE)
    # The ptxas that Triton brings along does not know every GPU (sm_110a of a Thor); the one of the host's CUDA does.
    # A container does not see the host's; engine_extra_env can name the image's.
    ptxas = (node.get("binaries") or {}).get("ptxas")
    if ptxas and settings.engine_runtime == "venv" and node.get("kind") in ("spark", "thor"):
        environment["TRITON_PTXAS_PATH"] = str(ptxas)
    return merged(environment, settings.engine_extra_env)


def as_user(settings: EngineSettings, node: Mapping[str, Any]) -> list[str]:
    """Prefix of a command that runs as the serving user; a container has no rights in any case."""
    if settings.engine_runtime == "container":
        return []
    environment = engine_environment(settings, node)
    return ["runuser", "-u", "sparkthor", "--", "env", *(f"{name}={value}" for name, value in environment.items())]


def container_settings(settings: EngineSettings) -> dict[str, Any]:
    """What the units' containers are given besides the image. Everything lies at the same place inside."""
    writable = ["/run/sparkthor", "/tmp"]
    for folder in (settings.engine_cache_dir, settings.ray_node_temp_dir):
        if not _below(folder, writable):
            writable.append(folder)
    readable = ["/etc/sparkthor", location.LIBRARY]
    for folder in (settings.model_store_root, settings.vllm_serve_model):
        if folder.startswith("/") and not _below(folder, (*writable, *readable)):
            readable.append(folder)
    files = [environment_file.FABRIC, f"-{environment_file.ENGINE}"]
    return {
        "user": "sparkthor",
        "nccl_conf": "/etc/nccl.conf",
        "options": settings.engine_container_options,
        "writable": writable,
        "readable": [*readable, *settings.engine_container_mounts],
        "services": {
            "ray": {
                "group": "sparkthor",
                "umask": "0022",
                "directory": settings.ray_node_temp_dir,
                "oom_score_adj": 200,
                "env_files": [*files, "/etc/sparkthor/ray.env"],
                # its command names the cluster
                "without": list(ray_config.NOT_RAYS),
            },
            places.SERVICE: {
                "group": "sparkthor-api",
                # the front proxy's user reaches the socket by this group
                "umask": "0007",
                "directory": settings.engine_cache_dir,
                "oom_score_adj": 300,
                "env_files": [*files, places.OWN.environment],
            },
        },
    }


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _served(cluster: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The plans of all groups of this plan's hosts, its own one first."""
    return [cluster.get("serving") or {}, *(own["serving"] for own in (cluster.get("beside") or {}).values())]


def _calls(cluster: Mapping[str, Any]) -> list[str]:
    """What all models call that a host of this plan may serve."""
    serving = _served(cluster)
    plans = [*serving, *(own["degraded"] for own in serving if "degraded" in own)]
    return sorted({one for plan in plans for one in plan.get("calls") or ()})


def plan_engine(
    settings: EngineSettings, node: Mapping[str, Any], cluster: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the role's tasks and templates read.

    ``environment`` (variables of engine.env), ``container`` (the settings of its containers), ``user`` (words before
    the command of an engine that is not in use yet), ``nccl`` (the release that a ring needs, or nothing), ``calls``
    (what the models call of its libraries), ``serves`` (the engine's name), ``by_programs`` (whether a group of the
    host is served by programs), ``packages`` and ``problems`` of the host's toolchain.  ``node`` are the host's facts,
    ``cluster`` is its plan.
    """
    engines = [registry.engine_of(own) for own in _served(cluster or {})]
    return {
        "environment": engine_environment(settings, node),
        "container": container_settings(settings),
        "user": as_user(settings, node),
        "calls": _calls(cluster or {}),
        "serves": engines[0].name,
        "by_programs": any(one.programs for one in engines),
        "nccl": toolchain.RING_NCCL if settings.fabric_topology == "ring" else "",
        **_toolchain(settings, node),
    }


def _toolchain(settings: EngineSettings, node: Mapping[str, Any]) -> dict[str, Any]:
    """``packages`` that the host gets to compile with, and the ``problems`` that they do not fix."""
    if settings.engine_runtime != "venv" or not settings.engine_toolchain_check or not settings.engine_requirements:
        return {"packages": [], "problems": []}
    try:
        lock = {pin.name: pin.version for pin in read_engine(local(settings.engine_requirements)).pins}
    except EngineError:
        # the role says what is wrong with its lock, and before anything is changed
        return {"packages": [], "problems": []}
    wanted = settings.engine_build_packages
    return {
        "packages": toolchain.packages(node, lock, wanted),
        "problems": [
            *toolchain.problems(node, lock, wanted),
            *toolchain.ring_problems(settings.fabric_topology, lock),
        ],
    }
