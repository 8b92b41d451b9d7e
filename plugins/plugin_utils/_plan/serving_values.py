# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role ``vllm_serve`` has to know of each serving group on a host, as plain values.

What becomes of them on the host, the paths, units and texts, stands in the role itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import environment_file
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    door,
    front,
    front_bodies,
    on_demand,
    onhost,
    power,
    vllm_serve,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import engine_home
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving


@dataclass(frozen=True)
class FrontValues:
    """Of the front proxy on a head."""

    #: of the host's own group and of each one beside it ``name``, ``engine``, where it listens, as nginx writes it,
    #: ``says_loading``, whether it says 503 there while it loads, and only then, the ``names`` of its model as words
    #: of nginx, and ``listed``, its answer to GET /v1/models while it sleeps
    engines: list[dict[str, Any]]
    #: program of nginx
    nginx: str
    #: addresses with ports, as nginx writes them
    listen: list[str]
    #: from which hosts of the inventory ask a head
    peers: list[str]
    #: the own model, as a word of a line
    served: str
    #: keys with a limit: ``rate``, requests in a minute, and their ``names``
    key_rates: list[dict[str, Any]]
    #: by name of each key that is for some models only, what matches their names
    limited_keys: dict[str, str]
    #: by name of the key, tokens in a ``minute`` and in a ``month``
    token_limits: dict[str, dict[str, int]]
    #: by name of the key what it may do on the page, ``view`` or ``operate``; null where there is no page
    console: dict[str, str] | None
    #: origins of web pages that may use the API from a browser
    origins: list[str]
    #: times and a size, as nginx writes them
    read_timeout: str
    client_timeout: str
    max_body: str
    #: ``name``, ``pattern``, ``at_once`` and ``of_key`` of each class of bodies of about one size
    body_classes: list[dict[str, Any]]
    #: bytes that a door may take
    memory: int
    #: subjectAltName of a certificate that the head makes itself
    certificate_names: str
    #: of a head among several: ``port``, ``tls``, ``heads`` (addresses), ``groups`` (server by name), ``offers``
    #: (``group``, ``head``, ``names``, ``patterns`` and ``label``) and ``routes``: ``number``, ``groups``, ``servers``,
    #: and ``instead``, the number of the one that answers in its place
    door: dict[str, Any] | None
    #: ``name``, ``port`` and ``turn`` of each group beside the own one
    beside: list[dict[str, Any]]
    #: of a group that takes turns: ``group``, its name
    turn: dict[str, Any] | None


@dataclass(frozen=True)
class ServingValues:
    """Of one group on a host.  The defaults are a host of which nothing is known, for a teardown, which has no plan."""

    #: of a group beside the host's own one; empty for that one
    name: str = ""
    #: whether it is the host's own group
    own: bool = True
    #: whether this host is its head, has the front proxy, and runs a unit of the engine
    head: bool = False
    front: bool = False
    engine: bool = False
    rank: int = 0
    #: whether Ray starts the ranks, with TLS between hosts
    ray: bool = False
    ray_tls: bool = False
    container: bool = False
    #: whether a smaller model serves while a host stays away
    degraded: bool = False
    #: whether it sleeps until its model is asked for, and whether the host's own group gives way to such a one
    sleeps: bool = False
    takes_turns: bool = False
    #: whether the engine fetches the model with a token
    hf_token: bool = False
    #: of the front proxy: whether it leads to the models of other heads, with TLS between them, counts tokens, and
    #: limits them; ``tls`` is ``off``, ``self_signed`` or ``given``
    door: bool = False
    door_tls: bool = False
    counts_tokens: bool = False
    limits_tokens: bool = False
    tls: str = "off"
    proxy: dict[str, Any] = field(default_factory=dict)
    #: the address that heads have in turn, as one of them knows it: ``address`` with its length, ``router_id``,
    #: ``interface``, ``source``, ``peers`` and ``priority``
    virtual: dict[str, Any] | None = None
    keepalived: str = ""
    #: whose power is switched when they do not come back, and how; empty where nobody's is
    power: dict[str, Any] = field(default_factory=dict)
    #: folders of models and caches, and what ProtectHome= says for them
    models: str = ""
    cache: str = ""
    home: str = "yes"
    #: words before a program of the engine, but for files of its service; the program; its first arguments for nodes
    launch: list[str] = field(default_factory=list)
    program: list[str] = field(default_factory=list)
    prepare_nodes: list[str] = field(default_factory=list)
    as_root: str = ""
    #: files of other roles with which the engine is started
    started_with: list[str] = field(default_factory=list)
    #: which engine serves, empty for the default one; as people write it, the whole command of its rank, where it
    #: listens and has its page of metrics, and the name of its configuration's file
    engine_name: str = ""
    title: str = ""
    command: list[str] = field(default_factory=list)
    socket: str = ""
    metrics_target: str = registry.DEFAULT.on_host.metrics.target
    config_name: str = registry.DEFAULT.on_host.config
    #: names of the other engines' files
    other_configs: list[str] = field(
        default_factory=lambda: [one.on_host.config for one in registry.ENGINES.values() if one is not registry.DEFAULT]
    )
    #: a port of the engine that others must not reach: ``port``, ``clients`` and ``servers``; empty without one
    guard: dict[str, Any] = field(default_factory=dict)
    #: folders that the engine does not see
    hidden: list[str] = field(default_factory=list)
    #: where its part of a worker has to listen before the head's begins
    listens: str = ""
    #: the engine's configuration, that of the smaller model, and what of its environment stays on this host
    config: dict[str, Any] = field(default_factory=dict)
    smaller_config: dict[str, Any] = field(default_factory=dict)
    not_carried: list[str] = field(default_factory=list)
    #: what the watchdog asks for, and whether it answers completions; the same of the smaller model
    model: str = ""
    answers: bool = True
    #: what is loaded, by which its former loads are known: the engine's record, the model's path, the split
    load: dict[str, str] = field(default_factory=dict)
    smaller_model: str = ""
    smaller_answers: bool = True
    #: the watchdog's patience in seconds
    watchdog: dict[str, Any] = field(default_factory=dict)
    #: hosts by the address that the others reach them at, and the head among them
    members: dict[str, str] = field(default_factory=dict)
    head_name: str = ""
    head_address: str = ""
    group_port: int = 0
    #: by name what the groups on demand beside it are allowed
    on_demand_groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    #: groups that were beside it in an earlier run
    former: list[str] = field(default_factory=list)


def host_plan(host_group: Serving, beside: Sequence[Serving] = ()) -> dict[str, Any]:
    """What the role's tasks read: ``groups``, the values of those beside the host's own one and of that one, by name
    their ``environments``, which no result shows, and what is checked before and kept after.

    Raises FrontPlanError or ServeConfigError, which name the variable.
    """
    return {
        "groups": [*(asdict(serving_values(group)) for group in beside), asdict(serving_values(host_group, beside))],
        "environments": {
            group.places.name: registry.planned_engine(group.engine_name).environment(group)
            for group in (host_group, *beside)
            if group.has_engine
        },
        "model_path": host_group.model_path,
        "model_elsewhere": host_group.model_elsewhere and host_group.has_model,
        "options": registry.planned_engine(host_group.engine_name).option_arguments(host_group),
        "trials": [
            words
            for group in (host_group, *beside)
            if (words := registry.planned_engine(group.engine_name).trial(group))
        ],
        "sizing": vllm_serve.sizing(host_group),
        "beside": [group.places.name for group in beside],
        "beside_options": [registry.planned_engine(group.engine_name).option_arguments(group) for group in beside],
        "model_links": [link for group in (host_group, *beside) for link in group.model_links],
        "engine_venv": host_group.settings.engine_venv_path,
        "ray": host_group.by_ray,
    }


def unplanned(beside: Iterable[str]) -> list[dict[str, Any]]:
    """The groups of a host of which nothing else is known, for a teardown."""
    return [*(asdict(ServingValues(name=name, own=False)) for name in beside), asdict(ServingValues())]


def serving_values(serving: Serving, beside: Sequence[Serving] = ()) -> ServingValues:
    """``beside`` are the groups beside the host's own one, and nothing for one of them."""
    given, planned_door, of_host = serving.settings, serving.door, not serving.places.name
    # what needs an engine is nothing to a host without one
    engine = _engine_values(serving) if serving.has_engine else {}
    has_front = of_host and serving.is_head
    return ServingValues(
        name=serving.places.name,
        own=of_host,
        head=serving.is_head,
        front=has_front,
        engine=serving.has_engine,
        ray=serving.by_ray,
        ray_tls=given.ray_node_tls,
        container=serving.engine.container,
        degraded=serving.degraded,
        sleeps=bool(serving.on_demand),
        takes_turns=bool(on_demand.groups(beside)),
        hf_token=serving.has_engine and bool(serving.hf_token),
        door=bool(planned_door),
        door_tls=bool(planned_door and planned_door.tls),
        counts_tokens=has_front and serving.counts_tokens,
        limits_tokens=has_front and bool(serving.token_limits),
        tls=serving.tls,
        proxy=asdict(_front_values(serving, beside)) if has_front else {},
        virtual=_virtual_values(serving) if of_host else None,
        keepalived=(serving.node.get("binaries") or {}).get("keepalived") or "/usr/sbin/keepalived",
        power=_power(serving) if has_front else {},
        models=given.model_store_root,
        cache=given.engine_cache_dir,
        members={serving.fabric[host]["control_address"]: host for host in serving.cluster["hosts"]},
        head_name=serving.cluster["head"],
        head_address=serving.cluster["head_address"],
        group_port=given.vllm_serve_group_port,
        on_demand_groups=on_demand.groups(beside),
        former=_former(serving, beside) if of_host else [],
        **engine,
    )


def _engine_values(serving: Serving) -> dict[str, Any]:
    given, engine, planned = serving.settings, serving.engine, registry.planned_engine(serving.engine_name)
    files = (environment_file.FABRIC, environment_file.ENGINE, engine.record)
    folders = (engine.venv, serving.model_path, given.model_store_root, given.engine_cache_dir)
    return {
        "rank": serving.rank,
        "home": engine_home(*folders, given.vllm_serve_args, given.vllm_serve_env),
        "launch": engine.launch()[:-1],
        "program": serving.command,
        "prepare_nodes": serving.prepare_nodes,
        "as_root": engine.as_root,
        "started_with": [*files, *([] if serving.by_ray else onhost.program_files("rank"))],
        "engine_name": "" if planned is registry.DEFAULT else planned.name,
        "title": planned.title,
        "command": planned.command(serving),
        "socket": planned.socket(serving),
        "metrics_target": planned.on_host.metrics.target,
        "config_name": planned.on_host.config,
        "other_configs": [one.on_host.config for one in registry.ENGINES.values() if one is not planned],
        "hidden": list(planned.on_host.hidden),
        "guard": asdict(guard) if (guard := planned.guard(serving)) else {},
        "listens": planned.listens(serving),
        "config": planned.config(serving),
        "smaller_config": planned.smaller_config(serving) if serving.degraded else {},
        "not_carried": vllm_serve.not_carried(serving),
        "model": serving.names[0],
        "answers": bool(serving.planned.get("answers", True)),
        "load": {
            "engine": engine.record,
            "model": serving.model_path,
            "split": f"TP={serving.tensor_parallel} PP={serving.pipeline_parallel}",
        },
        "smaller_model": serving.smaller_names[0] if serving.degraded else "",
        "smaller_answers": bool(serving.smaller.get("answers", True)),
        "watchdog": _watchdog(serving) if serving.is_head else {},
    }


def _watchdog(serving: Serving) -> dict[str, Any]:
    given = serving.settings
    return {
        "interval": given.vllm_serve_watchdog_interval,
        "deadline": given.vllm_serve_watchdog_deadline,
        "first_deadline": given.vllm_serve_watchdog_first_deadline,
        "failures": given.vllm_serve_watchdog_failures,
        **serving.patience,
        "load_stall": given.vllm_serve_watchdog_load_stall,
        "backoff_max": given.vllm_serve_watchdog_backoff_max,
        "degraded_after": given.vllm_serve_degraded_after if serving.degraded else 0.0,
        "degraded_hosts": int(serving.smaller.get("hosts") or 0),
    }


def _power(serving: Serving) -> dict[str, Any]:
    given = serving.settings
    return power.power_plan(
        given.vllm_serve_power_commands,
        given.vllm_serve_power_outlets,
        given.vllm_serve_power_after,
        given.vllm_serve_power_pause,
        serving.cluster,
        serving.fabric,
    )


def _former(serving: Serving, beside: Sequence[Serving]) -> list[str]:
    wanted = {one.places.name for one in beside}
    return [str(name) for name in serving.node.get("beside") or () if name not in wanted]


def _front_values(serving: Serving, beside: Sequence[Serving]) -> FrontValues:
    given, planned_door = serving.settings, serving.door
    keys = front.named_keys(given.vllm_serve_api_keys)
    max_body = front_bodies.max_body(given.vllm_serve_front_max_body, bool(planned_door))
    management = str(serving.network.get("management_address", serving.cluster["head_address"]))
    # an inventory name that no certificate can have is a name of the inventory alone
    own_names = [
        *([serving.host] if front.is_host_name(serving.host) else []),
        serving.cluster["head_address"],
        management,
    ]
    shared = [serving.virtual.bare] if serving.virtual else []
    turn = on_demand.turn(serving, beside)
    return FrontValues(
        engines=[_engine_of(one) for one in (serving, *beside)],
        nginx=(serving.node.get("binaries") or {}).get("nginx") or "/usr/sbin/nginx",
        listen=front.listen_addresses(given.vllm_serve_listen, given.vllm_serve_api_port, management),
        peers=front.peer_addresses(serving.fabric),
        served=front.label(serving.names[0]),
        key_rates=[{"rate": rate, "names": names} for rate, names in front.key_rates(keys).items()],
        limited_keys=door.limited_keys(keys),
        token_limits=serving.token_limits,
        console=front.console_rights(keys) if given.console_enabled else None,
        origins=front.origins(given.vllm_serve_cors_origins),
        read_timeout=front.checked_duration(given.vllm_serve_front_read_timeout, "vllm_serve_front_read_timeout"),
        client_timeout=front.checked_duration(given.vllm_serve_front_client_timeout, "vllm_serve_front_client_timeout"),
        max_body=max_body,
        body_classes=[asdict(size) for size in front_bodies.body_classes(max_body)],
        memory=front_bodies.memory_bytes(max_body) if planned_door else 0,
        # checked always, though written only where the certificate is self-made
        certificate_names=front.subject_names([*(given.vllm_serve_tls_names or own_names), *shared]),
        door=_door_values(planned_door) if planned_door else None,
        beside=[_neighbour(one, beside) for one in beside],
        turn=asdict(turn) if turn else None,
    )


def _engine_of(group: Serving) -> dict[str, Any]:
    planned = registry.planned_engine(group.engine_name)
    place = planned.socket(group)
    return {
        "name": group.places.name,
        "engine": f"unix:{place}" if place.startswith("/") else place,
        "says_loading": planned.on_host.says_loading,
        "names": door.words(group.offered),
        "listed": on_demand.listed(group),
    }


def _door_values(found: door.Door) -> dict[str, Any]:
    offers = [{**asdict(offer), "patterns": offer.patterns, "label": offer.label} for offer in found.offers]
    return {**asdict(found), "offers": offers}


def _neighbour(group: Serving, beside: Sequence[Serving]) -> dict[str, Any]:
    turn = on_demand.turn(group, beside)
    return {
        "name": group.places.name,
        "port": group.settings.vllm_serve_door_port,
        "turn": asdict(turn) if turn else None,
    }


def _virtual_values(serving: Serving) -> dict[str, Any] | None:
    virtual = serving.virtual
    holder = virtual.of(serving.host) if virtual else None
    if virtual is None or holder is None:
        return None
    return {
        "address": virtual.address,
        "router_id": virtual.router_id,
        "interface": holder.interface,
        "source": holder.address,
        "peers": virtual.peers(serving.host),
        "priority": virtual.priority(holder),
    }
