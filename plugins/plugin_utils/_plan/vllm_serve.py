# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role ``vllm_serve`` puts on a host: who serves what, and with which command, environment and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.vllm import VLLM
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import OWN, Places
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.groups import adapters_of, names_of
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import door, front, patience, virtual_address
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engine import (
    CACHE,
    MODELS,
    OFFLINE,
    VENV,
    WORK_DIR,
    InstalledEngine,
    bytecode_folder,
    cache_folders,
    installed_engine,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment import merged
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.environment_text import ordered
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import ServeConfigError, serve_config

#: vLLM copies its environment to Ray's workers; these differ from host to host, or are nobody else's business
OWN_VARIABLES = (
    *("CACHE_DIRECTORY", "CREDENTIALS_DIRECTORY", "CUDA_VISIBLE_DEVICES", "GLOO_SOCKET_IFNAME", "HF_TOKEN"),
    *("HF_TOKEN_PATH", "HOME", "HOSTNAME", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "LOGNAME"),
    *("MAINPID", "NOTIFY_SOCKET", "PATH", "SHELL", "STATE_DIRECTORY", "USER", "MEMORY_PRESSURE_WATCH"),
    *("MEMORY_PRESSURE_WRITE", "NCCL_IB_ADDR_RANGE", "NCCL_IB_GID_INDEX", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME"),
    *("OMPI_MCA_btl_tcp_if_include", "RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH", "RAY_NODE_IP_ADDRESS"),
    *("RAY_TLS_CA_CERT", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_USE_TLS"),
    *("RUNTIME_DIRECTORY", "SYSTEMD_EXEC_PID", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES", "VLLM_API_KEY", "VLLM_HOST_IP"),
)


@dataclass(frozen=True)
class ServingSettings:
    """Variables of the role ``vllm_serve``, and those of other roles that serving has to know."""

    vllm_serve_from_hub: bool
    vllm_serve_args: dict[str, Any]
    vllm_serve_env: dict[str, Any]
    vllm_serve_master_port: int
    vllm_serve_group_port: int
    vllm_serve_api_port: int
    vllm_serve_listen: list[Any]
    vllm_serve_api_keys: list[Any] = field(repr=False)
    vllm_serve_tls: str
    vllm_serve_tls_names: list[Any]
    vllm_serve_front_read_timeout: str
    vllm_serve_front_client_timeout: str
    vllm_serve_front_max_body: str
    vllm_serve_front_tokens: bool
    vllm_serve_watchdog_interval: float
    vllm_serve_watchdog_deadline: float
    vllm_serve_watchdog_first_deadline: float
    vllm_serve_watchdog_failures: int
    vllm_serve_watchdog_load_stall: float
    vllm_serve_watchdog_backoff_max: float
    vllm_serve_watchdog_step_patience: str
    vllm_serve_watchdog_wedge_bound: str
    vllm_serve_degraded_after: float
    vllm_serve_ready_timeout: int
    serving_engine: str = ""
    vllm_serve_engine_port: int = 30000
    vllm_serve_rpc_port: int = 50052
    console_enabled: bool = True
    vllm_serve_cors_origins: list[Any] = field(default_factory=list)
    vllm_serve_power_commands: list[Any] = field(default_factory=list)
    vllm_serve_power_outlets: dict[str, Any] = field(default_factory=dict)
    vllm_serve_power_after: float = 900
    vllm_serve_power_pause: float = 60
    vllm_serve_door_port: int = 8001
    vllm_serve_model: str = ""
    vllm_serve_served_model_name: Any = None
    vllm_serve_max_model_len: int | None = None
    vllm_serve_tensor_parallel_size: int | None = None
    vllm_serve_pipeline_parallel_size: int | None = None
    vllm_serve_acknowledged: list[Any] = field(default_factory=list)
    vllm_serve_media_domains: list[Any] = field(default_factory=list)
    vllm_serve_hf_token: str = field(default="", repr=False)
    model_store_root: str = MODELS
    model_store_models: list[Any] = field(default_factory=list)
    engine_runtime: str = ""
    engine_venv_path: str = VENV
    engine_cache_dir: str = CACHE
    ray_node_tls: bool = False


@dataclass(frozen=True)
class Serving:
    """What one host has to know to serve its part. ``planned`` is what preflight made of the recipe, maybe nothing."""

    settings: ServingSettings
    cluster: Mapping[str, Any]
    fabric: Mapping[str, Mapping[str, Any]]
    host: str
    node: Mapping[str, Any]
    engine: InstalledEngine
    #: which of the groups on the host it is
    places: Places = OWN

    @property
    def planned(self) -> Mapping[str, Any]:
        """With the user's own variables already applied; empty without a recipe and without a known model."""
        return self.cluster.get("serving") or {}

    @property
    def engine_name(self) -> str:
        """As the plan chose it; empty for the default one."""
        return str(self.planned.get("engine") or self.settings.serving_engine)

    @property
    def smaller(self) -> Mapping[str, Any]:
        """What preflight planned for all hosts but one; empty where degraded mode is off."""
        return self.planned.get("degraded") or {}

    @property
    def is_head(self) -> bool:
        return bool(self.host == self.cluster["head"])

    @property
    def rank(self) -> int:
        return int((self.planned.get("ranks") or self.cluster["hosts"]).index(self.host))

    @property
    def executor(self) -> str:
        """``ray`` or ``mp``, as the plan has decided it."""
        return str(self.cluster["executor"])

    @property
    def by_ray(self) -> bool:
        return self.executor == "ray"

    @property
    def has_engine(self) -> bool:
        """Only ranks without Ray run a unit of their own; a Ray worker is started by the head's engine."""
        return self.is_head or not self.by_ray

    @property
    def degraded(self) -> bool:
        return self.is_head and bool(self.smaller)

    @property
    def tls(self) -> str:
        return front.effective_tls(self.settings.vllm_serve_tls, front.network_of(self.cluster))

    @property
    def door(self) -> door.Door | None:
        """To the models of all serving groups; None where there is one group, and for one beside a host's own."""
        if self.places.name or not (self.is_head and self.cluster.get("groups")):
            return None
        port = door.checked_port(self.settings.vllm_serve_door_port, self.settings.vllm_serve_api_port)
        return door.plan_door(self.cluster, self.fabric, self.host, port)

    @property
    def token_limits(self) -> dict[str, dict[str, int]]:
        """Of the keys that have one."""
        return front.token_limits(front.named_keys(self.settings.vllm_serve_api_keys))

    @property
    def counts_tokens(self) -> bool:
        return self.settings.vllm_serve_front_tokens or bool(self.token_limits)

    @property
    def virtual(self) -> virtual_address.Virtual | None:
        """The address that this host may have in turn with other heads."""
        return virtual_address.of_cluster(self.cluster) if self.is_head else None

    @property
    def on_demand(self) -> Mapping[str, Any]:
        """When this group beside another serves in its place; empty for one that serves all the time."""
        return (self.cluster.get("given") or {}).get("on_demand") or {}

    @property
    def network(self) -> Mapping[str, Any]:
        """This host's plan of the fabric."""
        return self.fabric.get(self.host) or {}

    @property
    def tensor_parallel(self) -> int:
        return self.settings.vllm_serve_tensor_parallel_size or int(self.cluster.get("tensor_parallel") or 1)

    @property
    def pipeline_parallel(self) -> int:
        return self.settings.vllm_serve_pipeline_parallel_size or int(
            self.cluster.get("pipeline_parallel") or max(1, int(self.cluster["world"]) // self.tensor_parallel)
        )

    @property
    def model(self) -> str:
        return str(self.planned.get("model", self.settings.vllm_serve_model))

    @property
    def model_path(self) -> str:
        """As vLLM is told: a folder, or a name of the hub that vLLM fetches itself."""
        return self.model if self.settings.vllm_serve_from_hub else self.stored(self.model)

    @property
    def model_elsewhere(self) -> bool:
        """Whether the model is neither in the store, where it is whole on every host, nor fetched by vLLM."""
        models = self.planned.get("models", self.settings.model_store_models)
        return not self.settings.vllm_serve_from_hub and self.model not in [model["name"] for model in models]

    @property
    def names(self) -> list[str]:
        """Under which clients ask for the model."""
        served = self.planned.get("served_model_name") or self.settings.vllm_serve_served_model_name
        return list(names_of(served, self.model))

    @property
    def offered(self) -> list[str]:
        """The same, and the names of its adapters."""
        return [*self.names, *adapters_of(self.args)]

    @property
    def smaller_names(self) -> list[str]:
        """The same while a host is away."""
        return list(names_of(self.smaller["served_model_name"], str(self.smaller["model"])))

    @property
    def args(self) -> Mapping[str, Any]:
        return self.planned.get("args", self.settings.vllm_serve_args) or {}

    @property
    def patience(self) -> Mapping[str, float]:
        """How long an engine may go without a token, as ``plan_patience`` returns it."""
        found: Mapping[str, float] | None = self.planned.get("patience")
        return found or patience.plan_patience(vars(self.settings), {}, self.cluster["kinds"])

    @property
    def own_environment(self) -> Mapping[str, Any]:
        """What the recipe and the user want in the engine's environment."""
        return self.planned.get("environment", self.settings.vllm_serve_env) or {}

    @property
    def command(self) -> list[str]:
        return self.engine.program("vllm", self.places.service)

    @property
    def prepare_nodes(self) -> list[str]:
        """What has all nodes of Ray drop their page cache; with a container root asks, who has no RAY_ADDRESS."""
        address = str((self.network.get("env") or {}).get("RAY_ADDRESS", ""))
        return [*self.engine.python, "-B", location.PACKAGE, "nodes-prepare", address] if self.by_ray else []

    @property
    def hf_token(self) -> str:
        return self.settings.vllm_serve_hf_token if self.settings.vllm_serve_from_hub else ""

    @property
    def has_model(self) -> bool:
        """Whether this host needs the model: with some engines the head alone does."""
        return self.is_head or bool(self.planned.get("everywhere", True))

    @property
    def model_links(self) -> list[str]:
        """The names in the model store that mean the revisions which are served."""
        if not self.has_model:
            return []
        served = {self.model, str(self.smaller.get("model") or "")} & set(self.cluster.get("revisions") or {})
        root = self.settings.model_store_root.rstrip("/")
        return [] if self.settings.vllm_serve_from_hub else [f"{root}/{name}" for name in sorted(served)]

    def stored(self, model: str) -> str:
        """Folder of a model on the hosts: of its one revision, because a link could mean another one at each host."""
        if model.startswith("/"):
            return model
        folder = (self.cluster.get("revisions") or {}).get(model, model)
        return f"{self.settings.model_store_root.rstrip('/')}/{folder}"


def serving_on(
    given: ServingSettings,
    cluster: Mapping[str, Any],
    fabric: Mapping[str, Mapping[str, Any]],
    host: str,
    facts: Mapping[str, Any],
    places: Places = OWN,
) -> Serving:
    """``cluster`` and ``fabric`` are the plan that preflight made, ``facts`` the host's."""
    runtime = given.engine_runtime or str(cluster.get("runtime") or "venv")
    engine = installed_engine(facts.get("sparkthor_engine"), runtime, given.engine_venv_path)
    return Serving(given, cluster, fabric, host, facts.get("sparkthor_node") or {}, engine, places)


def vllm_config(serving: Serving) -> dict[str, Any]:
    """vllm.yaml. Raises ServeConfigError, which names the variable."""
    given = serving.settings
    return serve_config(
        serving.args,
        model=serving.model_path,
        served_model_name=serving.names,
        max_model_len=serving.planned.get("max_model_len", given.vllm_serve_max_model_len),
        tensor_parallel_size=serving.tensor_parallel,
        pipeline_parallel_size=serving.pipeline_parallel,
        executor=serving.executor,
        socket=serving.places.socket,
        hosts=len(serving.cluster["hosts"]),
        rank=serving.rank,
        master_address=serving.cluster["head_address"],
        master_port=given.vllm_serve_master_port,
        says_usage=bool(serving.token_limits),
        domains=serving.settings.vllm_serve_media_domains,
    )


def smaller_config(serving: Serving) -> dict[str, Any]:
    """vllm-degraded.yaml: the head's, while a host stays away."""
    smaller = serving.smaller
    return serve_config(
        smaller["args"],
        model=serving.stored(str(smaller["model"])),
        served_model_name=serving.smaller_names,
        max_model_len=smaller["max_model_len"],
        tensor_parallel_size=int(smaller["tensor_parallel"]),
        pipeline_parallel_size=int(smaller["pipeline_parallel"]),
        executor=serving.executor,
        socket=serving.places.socket,
        hosts=int(smaller["hosts"]),
        rank=0,
        master_address=serving.cluster["head_address"],
        master_port=serving.settings.vllm_serve_master_port,
        says_usage=bool(serving.token_limits),
        domains=serving.settings.vllm_serve_media_domains,
    )


_STORE = "VLLM_ENABLE_RESPONSES_API_STORE"


def vllm_environment(serving: Serving) -> dict[str, Any]:
    """vllm.env; what the recipe and the user want wins. Raises ServeConfigError, which names the variable."""
    if serving.token_limits and str(serving.own_environment.get(_STORE, "0")) not in ("", "0", "False", "false"):
        raise ServeConfigError(
            f"vllm_serve_env: {_STORE} lets vLLM answer in the background, where tokens cannot be counted; leave it "
            f"out, or tokens_per_minute and tokens_per_month of {', '.join(serving.token_limits)} in "
            "vllm_serve_api_keys"
        )
    environment: dict[str, Any] = {
        **cache_folders(serving.settings.engine_cache_dir, VLLM),
        "VLLM_CONFIG_ROOT": "/etc/sparkthor/vllm",
        # a domain that is allowed must not lead to another one, or to a port of this host
        "VLLM_MEDIA_URL_ALLOW_REDIRECTS": "0",
        **VLLM.no_reports,
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if not serving.settings.vllm_serve_from_hub:
        environment.update(OFFLINE)
    timeout = str(patience.step_timeout(serving.patience["step_patience"]))
    # 300 s by default, with either executor; Ray's is for the compiled graphs of older engines
    environment["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"] = timeout
    if serving.by_ray:
        environment["RAY_CGRAPH_get_timeout"] = timeout
        if own := merged(serving.own_environment):
            environment["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] = ",".join(ordered(own))
    return merged(environment, serving.own_environment)


def not_carried(serving: Serving) -> list[str]:
    """Variables that vLLM must not copy from the head to Ray's workers."""
    return ordered({*OWN_VARIABLES, *(serving.network.get("env") or {})})


def option_arguments(serving: Serving) -> dict[str, Any]:
    """Arguments of the module ``vllm_options``, which checks vLLM's options by the vLLM that is installed."""
    cache = serving.settings.engine_cache_dir
    # as the serving user, whose compiled modules the engine's next start finds
    environment = ["env", f"PYTHONPYCACHEPREFIX={bytecode_folder(cache)}", f"HOME={cache}"]
    user = [] if serving.engine.container else ["runuser", "-u", "sparkthor", "--", *environment]
    version = serving.engine.versions.get("vllm")
    return {
        "command": [*user, *serving.engine.python],
        **({"version": version} if version else {}),
        # what root believes of it must lie where only root writes, and goes with the engine
        "cache_dir": WORK_DIR,
        "engine": serving.engine.digest,
        "arguments": serving.args,
        "acknowledged": serving.planned.get("acknowledged", serving.settings.vllm_serve_acknowledged),
        "environment": merged(serving.own_environment),
        "needs": serving.planned.get("needs") or {},
    }


def sizing(serving: Serving) -> dict[str, Any]:
    """Arguments of the module ``memory_plan`` but for the hosts' memory.

    A model outside of the store is planned by the same options as one that preflight could read.
    """
    return {
        **(serving.planned.get("sizing") or {}),
        "model_path": serving.model_path,
        "tensor_parallel": serving.tensor_parallel,
        "pipeline_parallel": serving.pipeline_parallel,
        "max_model_len": serving.planned.get("max_model_len"),
        "hosts": list(serving.cluster["hosts"]),
    }
