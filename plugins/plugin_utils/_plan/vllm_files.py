# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files, directories and units of serving on one host, and what restarts what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import ENGINE, FABRIC, MARKER
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import former_head, location
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.places import BESIDE, LASTING, OWN, Places
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.serving import GOOD
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    door,
    front,
    front_bodies,
    on_demand,
    onhost,
    virtual_address,
    vllm_serve,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.host_state import (
    ROLES,
    Directory,
    File,
    HostState,
    Unit,
    directory,
    environment_text,
    json_file,
    merged,
    program,
    rendered,
    role_file,
    secret_file,
    switched_off,
    yaml_text,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.sandbox import (
    NETWORK,
    engine_sandbox,
    sandbox,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_serve import Serving

ReadSecret = Callable[[str], str]

_TEMPLATES = ROLES / "vllm_serve" / "templates"
_ETC = "/etc/sparkthor"
_UNITS = "/etc/systemd/system"
_VLLM = OWN.unit
_FRONT = "sparkthor-front.service"
_TOKENS = "sparkthor-tokens.service"
_LIMITS = f"{_ETC}/front/limits.json"
_WATCHDOG = OWN.watchdog
_ADDRESS = virtual_address.UNIT
#: whom the watchdog is, but for its root part
_WATCHDOG_USER = "sparkthor-watchdog"
_DROP_CACHES = "sparkthor-drop-caches.path"
_RAY_TOKEN = f"{_ETC}/secrets/ray_token"
_HF_TOKEN = f"{_ETC}/secrets/hf_token"
_NOT_CARRIED = f"{_ETC}/vllm/ray_non_carry_over_env_vars.json"


def plan_serving(serving: Serving, beside: Sequence[Serving] = ()) -> dict[str, Any]:
    """What the role's tasks read: ``state`` for host_state without the secrets' files, and what is checked before.

    ``beside`` are the groups on the same host besides its own one. Raises FrontError or ServeConfigError, which name
    the variable.
    """
    return {
        "model_path": serving.model_path,
        "model_elsewhere": serving.model_elsewhere,
        "declared": declared_file(serving),
        "kept": [*kept(serving), *(path for one in beside for path in kept_beside(one))],
        "options": vllm_serve.option_arguments(serving),
        "sizing": vllm_serve.sizing(serving),
        "beside": [one.places.name for one in beside],
        "beside_options": [vllm_serve.option_arguments(one) for one in beside],
        "state": merged(
            [host_state(serving, beside), *map(host_state_beside, beside), former_beside(serving, beside)]
        ).arguments(),
    }


def host_state_beside(serving: Serving) -> HostState:
    """What a group beside the host's own one has there in addition: its engine and its watchdog."""
    own = serving.places
    return HostState(
        directories=[directory(path) for path in (f"{_ETC}/{BESIDE}", own.etc, f"{LASTING}/{BESIDE}", own.lasting)],
        files=[
            *_engine_files(serving),
            json_file(own.group, group_settings(serving)),
            *_head_files(serving, ()),
        ],
        # what a stop or a drain has left, as of the host's own group
        absent=[own.maintenance[0], own.draining],
        units=_serving_units(own, bool(serving.on_demand)),
    )


def former_beside(serving: Serving, beside: Iterable[Serving]) -> HostState:
    """What goes with groups that were beside the host's own one in an earlier run."""
    wanted = {one.places.name for one in beside}
    former = [Places(str(name)) for name in serving.node.get("beside") or () if name not in wanted]
    return HostState(
        absent=[
            path
            for own in former
            for path in (f"{_UNITS}/{own.watchdog}", f"{_UNITS}/{own.unit}", own.etc, own.run, own.lasting)
        ],
        units=[switched_off(unit) for own in former for unit in (own.watchdog, own.unit)],
    )


def host_state(serving: Serving, beside: Sequence[Serving] = ()) -> HostState:
    return HostState(
        groups=[{"name": "sparkthor-api", "system": True}] if serving.has_engine else [],
        users=[
            {"name": name, "system": True, "home": "/nonexistent", "shell": "/usr/sbin/nologin"}
            for name in (("sparkthor-front", _WATCHDOG_USER) if serving.is_head else ())
        ],
        directories=_directories(serving),
        files=files(serving, beside),
        absent=[*absent(serving), *(() if on_demand.groups(beside) else (on_demand.PATH,))],
        sysctls=dict(door.KEEPALIVE) if serving.door else {},
        units=units(serving, beside),
    )


def secret_files(serving: Serving, read_secret: ReadSecret) -> list[File]:
    """Files that are root's alone. ``read_secret`` is asked by name, and only for what this host needs; the former
    API key is empty where there is none."""
    given, found = serving.settings, []
    if not serving.by_ray:
        # the role ray_node writes the same file where Ray runs
        found.append(secret_file(_RAY_TOKEN, read_secret("ray_token") + "\n"))
    if serving.is_head:
        key, former = read_secret("api_key"), read_secret("api_key.previous")
        main = front.NamedKey(front.MAIN, front.checked_key(key, "vllm_serve_api_key"))
        previous = [front.NamedKey(front.PREVIOUS, former)] if former else []
        keys = [main, *previous, *front.named_keys(given.vllm_serve_api_keys)]
        found.append(secret_file(f"{_ETC}/front/keys.conf", front.key_map(keys)))
        found.append(secret_file(f"{_ETC}/secrets/api_key", key + "\n"))
        if serving.tls == "given":
            found.append(secret_file(f"{_ETC}/front/tls.key", given.vllm_serve_tls_key.strip() + "\n"))
        if serving.door and serving.door.tls:
            # the heads' own: workers, and whoever serves there, know the token
            found += door.peer_files(serving.door, read_secret("peer_secret"))
    if serving.has_engine and serving.hf_token:
        found.append(secret_file(_HF_TOKEN, serving.hf_token + "\n"))
    return found


def declared_file(serving: Serving) -> File:
    """cluster.json: who was declared head, on every host, so that a former head that returns knows that it is one."""
    cluster, fabric = serving.cluster, serving.fabric
    content = {
        "cluster": cluster["id"],
        "generation": int(cluster["generation"]),
        **{"host": serving.host, "hostname": str(serving.node.get("hostname") or ""), "head": cluster["head"]},
        "head_address": cluster["head_address"],
        "topology": cluster["topology"],
        "peers": {host: fabric[host]["management_address"] for host in cluster["hosts"]},
        "machines": cluster.get("machines") or {},
        "api_port": serving.settings.vllm_serve_api_port,
        "tls": serving.tls != "off",
        # by which a later run tells that the address on this host is no other one's
        **({"virtual_address": serving.virtual.bare} if serving.virtual else {}),
        # for status and doctor
        "folders": {"models": serving.settings.model_store_root, "cache": serving.settings.engine_cache_dir},
    }
    return json_file(former_head.CLUSTER, content)


def inputs(serving: Serving) -> list[str]:
    """What a running engine was started with; another content means one restart of the group."""
    own = serving.places
    return [
        own.vllm_config,
        *(own.environment, FABRIC, ENGINE),
        *(() if own.name else (_NOT_CARRIED,)),
        f"{_UNITS}/{own.unit}",
        serving.engine.record,
        _RAY_TOKEN,
        *(() if serving.by_ray else (own.group, *onhost.program_files("rank"))),
    ]


def kept(serving: Serving) -> list[str]:
    """All that says what is served and how, links to engine and model included, for playbooks/rollback.yml."""
    ray = ("ray.env", "ray.json") if serving.by_ray else ()
    own = ("vllm.env",) if serving.has_engine else ()
    group = () if serving.by_ray else ("group.json",)
    head = ("serving.json",) if serving.is_head else ()
    units = (*((_VLLM,) if serving.has_engine else ()), *(("sparkthor-ray.service",) if serving.by_ray else ()))
    return [
        serving.settings.engine_venv_path,
        *serving.model_links,
        *(f"{_ETC}/{name}" for name in ("engine.env", "container.json", *ray, *own, *group, *head)),
        *((serving.places.vllm_config, _NOT_CARRIED) if serving.has_engine else ()),
        *((vllm_serve.SMALLER_CONFIG,) if serving.degraded else ()),
        *(f"{_UNITS}/{unit}" for unit in units),
    ]


def kept_beside(serving: Serving) -> list[str]:
    """The same of a group beside the host's own one, which has its engine from there."""
    own = serving.places
    return [own.environment, own.vllm_config, own.group, own.config, f"{_UNITS}/{own.unit}", *serving.model_links]


def members(serving: Serving) -> dict[str, str]:
    """Hosts by the address that the others reach them at."""
    return {serving.fabric[host]["control_address"]: host for host in serving.cluster["hosts"]}


def group_settings(serving: Serving) -> dict[str, Any]:
    """group.json, with executor mp: what each host's rank knows of the others."""
    own = serving.places
    return {
        "host": serving.host,
        "head": serving.cluster["head"],
        "head_address": serving.cluster["head_address"],
        "port": serving.settings.vllm_serve_group_port,
        "members": members(serving),
        "command": [*serving.engine.launch(own.environment), *serving.command, "serve", "--config", own.vllm_config],
        "cleanup": location.command("container", "remove", own.service) if serving.engine.container else [],
        "inputs": inputs(serving),
        "memory_path": f"{own.lasting}/group/generation.json",
        "state_path": own.group_state,
        # the page cache is not dropped under another group that serves
        **({"watchdog_state": own.state, "drop_request": ""} if own.name else {}),
    }


def serving_settings(serving: Serving, beside: Sequence[Serving] = ()) -> dict[str, Any]:
    """serving.json, on the head: what the watchdog watches, and its patience in seconds."""
    given, own, degraded = serving.settings, serving.places, {}
    if serving.degraded:
        degraded = {
            "model": serving.smaller_names[0],
            "config": vllm_serve.SMALLER_CONFIG,
            "whole": own.vllm_config,
            "link": vllm_serve.CONFIG_LINK,
            "answers": bool(serving.smaller.get("answers", True)),
        }
    return {
        "unit": own.unit,
        "socket": own.socket,
        "cache": given.engine_cache_dir,
        "model": serving.names[0],
        "group": "sparkthor-api",
        "user": _WATCHDOG_USER,
        "ray": serving.by_ray,
        "group_state": "" if serving.by_ray else own.group_state,
        "degraded": degraded,
        "inputs": inputs(serving),
        "answers": bool(serving.planned.get("answers", True)),
        **({"beside": own.name} if own.name else {}),
        **({"on_demand": True} if serving.on_demand else {}),
        **({"on_demand_groups": groups} if (groups := on_demand.groups(beside)) else {}),
        "settings": {
            "interval": given.vllm_serve_watchdog_interval,
            "deadline": given.vllm_serve_watchdog_deadline,
            "first_deadline": given.vllm_serve_watchdog_first_deadline,
            "failures": given.vllm_serve_watchdog_failures,
            **serving.patience,
            "load_stall": given.vllm_serve_watchdog_load_stall,
            "backoff_max": given.vllm_serve_watchdog_backoff_max,
            "degraded_after": given.vllm_serve_degraded_after if degraded else 0.0,
            "degraded_hosts": int(serving.smaller.get("hosts") or 0),
            "expected": members(serving),
        },
    }


def files(serving: Serving, beside: Sequence[Serving] = ()) -> list[File]:
    """All but the secrets' files, and those of the groups ``beside`` but for the front proxy's."""
    return [
        declared_file(serving),
        _unit_file(_DROP_CACHES),
        _unit_file("sparkthor.target"),
        {"path": "/etc/tmpfiles.d/sparkthor-serving.conf", "content": rendered(_TEMPLATES / "tmpfiles.conf.j2")},
        *(_engine_files(serving) if serving.has_engine else ()),
        *(() if serving.by_ray else (json_file(f"{_ETC}/group.json", group_settings(serving)),)),
        *(_head_files(serving, beside) if serving.is_head else ()),
        *(_front_files(serving, beside) if serving.is_head else ()),
        *((on_demand.unit_file(),) if on_demand.groups(beside) else ()),
        *(_address_files(serving, serving.virtual) if serving.virtual else ()),
    ]


def _unit_file(name: str, path: str = "", **values: Any) -> File:
    """Of a template; it is a unit of that name, or the one at ``path``."""
    content = rendered(_TEMPLATES / f"{name}.j2", program=program, **values)
    return {"path": path or f"{_UNITS}/{name}", "content": content}


def _engine_files(serving: Serving) -> list[File]:
    own = serving.places
    text = f"{MARKER}\n# Read by: vllm serve --config\n{yaml_text(vllm_serve.vllm_config(serving))}"
    return [
        {
            "path": own.environment,
            "content": environment_text(vllm_serve.vllm_environment(serving)),
            "secret": True,
            # with mp the rank reads it as the serving user, to know whether it changed
            **({"mode": "0600"} if serving.by_ray else {"mode": "0640", "group": "sparkthor-api"}),
        },
        {"path": own.vllm_config, "content": text},
        *(() if own.name else (json_file(_NOT_CARRIED, vllm_serve.not_carried(serving)),)),
        _unit_file(
            _VLLM,
            path=f"{_UNITS}/{own.unit}",
            serving=serving,
            cache=serving.settings.engine_cache_dir,
            container=serving.engine.container,
            as_root=serving.engine.as_root,
            command=" ".join(serving.command),
            # the file is root's; the unit's user reads systemd's copy of it
            launch="".join(f"{word} " for word in serving.engine.launch("%d/vllm.env")),
            prepare_nodes=" ".join(serving.prepare_nodes),
            config=vllm_serve.CONFIG_LINK if serving.degraded else own.vllm_config,
            # programs of the host's own group know their files
            argument=(lambda path: f" {path}") if own.name else (lambda _path: ""),
            folders=[path.removeprefix("/run/").removeprefix("/var/lib/") for path in (own.run, own.lasting)],
            sandbox=engine_sandbox(_folders(serving)),
        ),
    ]


def _front_sandbox() -> str:
    """A port below 1024 needs the capability; each worker of nginx sets its own limit of open files."""
    return sandbox(families=NETWORK, capabilities=["CAP_NET_BIND_SERVICE"], refused=["@privileged"])


def _watchdog_sandbox() -> str:
    """Its root part gives root up for the other one, and writes what survives a reboot below /var/lib."""
    return sandbox(
        families=NETWORK,
        capabilities=["CAP_CHOWN", "CAP_SETGID", "CAP_SETUID"],
        writable=["/run/sparkthor", "/var/lib"],
        refused=["@resources"],
    )


def _folders(serving: Serving) -> list[Any]:
    """Settings by which the engine may come to folders that are not ours."""
    given = serving.settings
    places = (serving.engine.venv, serving.model_path, given.model_store_root, given.engine_cache_dir)
    return [*places, given.vllm_serve_args, given.vllm_serve_env]


def _head_files(serving: Serving, beside: Sequence[Serving]) -> list[File]:
    own = serving.places
    found = [
        json_file(own.config, serving_settings(serving, beside)),
        _unit_file(
            _WATCHDOG,
            path=f"{_UNITS}/{own.watchdog}",
            digest=onhost.program_digest("watchdog"),
            sandbox=_watchdog_sandbox(),
            own=own,
            folder=own.run.removeprefix("/run/"),
        ),
    ]
    if serving.degraded:
        config = yaml_text(vllm_serve.smaller_config(serving))
        text = f"{MARKER}\n# Read by: vllm serve --config, while a host stays away\n{config}"
        found.append({"path": vllm_serve.SMALLER_CONFIG, "content": text})
    return found


def _scripts(serving: Serving) -> list[str]:
    return front.scripts(bool(serving.door), serving.counts_tokens)


def _front_files(serving: Serving, beside: Sequence[Serving]) -> list[File]:
    given = serving.settings
    keys = front.named_keys(given.vllm_serve_api_keys)
    max_body = front_bodies.max_body(given.vllm_serve_front_max_body, bool(serving.door))
    config = rendered(
        _TEMPLATES / "nginx.conf.j2",
        settings=given,
        tls=serving.tls != "off",
        key_rates=front.key_rates(keys),
        refused_keys=door.refused_keys(keys, serving.names),
        door=serving.door,
        beside=[
            door.Neighbour(
                one.places,
                one.settings.vllm_serve_door_port,
                tuple(door.refused_keys(keys, one.names)),
                on_demand.turn(one, beside),
            )
            for one in beside
        ],
        turn=on_demand.turn(serving, beside),
        js_module=front.MODULE,
        counter=front.COUNTER,
        counter_folder=front.COUNTER_FOLDER,
        token_folder=front.TOKEN_FOLDER,
        counts_tokens=serving.counts_tokens,
        limited=list(serving.token_limits),
        peers=front.peer_addresses(serving.fabric),
        served=front.label(serving.names[0]),
        own_socket=door.SOCKET,
        origins=front.origins(given.vllm_serve_cors_origins),
        listen=front.listen_addresses(given.vllm_serve_listen, given.vllm_serve_api_port, _management_address(serving)),
        read_timeout=front.checked_duration(given.vllm_serve_front_read_timeout, "vllm_serve_front_read_timeout"),
        client_timeout=front.checked_duration(given.vllm_serve_front_client_timeout, "vllm_serve_front_client_timeout"),
        max_body=max_body,
        body_classes=front_bodies.body_classes(max_body),
    )
    nginx = (serving.node.get("binaries") or {}).get("nginx") or "/usr/sbin/nginx"
    memory = front_bodies.memory_bytes(max_body) if serving.door else 0
    # checked always, though written only where the certificate is self-made
    shared = [serving.virtual.bare] if serving.virtual else []
    subjects = front.subject_names([*(given.vllm_serve_tls_names or _own_names(serving)), *shared])
    found: list[File] = [
        {"path": f"{_ETC}/front/nginx.conf", "content": config, "mode": "0600"},
        _unit_file(_FRONT, nginx=nginx, memory=memory, sandbox=_front_sandbox()),
    ]
    if serving.token_limits:
        found.append(json_file(_LIMITS, serving.token_limits))
        digest = onhost.program_digest("front-tokens")
        found.append(_unit_file(_TOKENS, digest=digest, sandbox=sandbox(families=["AF_UNIX"])))
    found += [role_file("vllm_serve", name, f"{_ETC}/front/{name}", mode="0600") for name in _scripts(serving)]
    if serving.door:
        lasting = "".join(f"{name} = {value}\n" for name, value in door.KEEPALIVE.items())
        found.append({"path": door.SYSCTL_FILE, "content": f"{MARKER}\n{lasting}"})
    if serving.tls == "self_signed":
        found.append({"path": f"{_ETC}/front/self-signed", "content": subjects + "\n", "mode": "0600"})
    if serving.tls == "given":
        certificate = given.vllm_serve_tls_certificate.strip() + "\n"
        found.append({"path": f"{_ETC}/front/tls.crt", "content": certificate, "mode": "0600"})
    return found


def _address_sandbox() -> str:
    """It sets an address, says so to the LAN, and asks the front proxy as somebody else, whom it ends if need be."""
    return sandbox(
        families=(*NETWORK, "AF_NETLINK", "AF_PACKET"),
        capabilities=["CAP_KILL", "CAP_NET_ADMIN", "CAP_NET_BROADCAST", "CAP_NET_RAW", "CAP_SETGID", "CAP_SETUID"],
        refused=["@resources"],
    )


def _address_files(serving: Serving, virtual: virtual_address.Virtual) -> list[File]:
    port, tls = serving.settings.vllm_serve_api_port, serving.tls != "off"
    program_path = (serving.node.get("binaries") or {}).get("keepalived") or "/usr/sbin/keepalived"
    return [
        virtual_address.program(),
        {"path": virtual_address.CONFIG, "content": virtual_address.keepalived(virtual, serving.host, port, tls)},
        _unit_file(
            _ADDRESS,
            keepalived=program_path,
            config=virtual_address.CONFIG,
            virtual=virtual,
            own=virtual.of(serving.host),
            sandbox=_address_sandbox(),
        ),
    ]


def _own_names(serving: Serving) -> list[str]:
    """The head's; an inventory name that no certificate can have is a name of the inventory alone."""
    names = [serving.host] if front.is_name(serving.host) else []
    return [*names, serving.cluster["head_address"], _management_address(serving)]


def _management_address(serving: Serving) -> str:
    return str(serving.network.get("management_address", serving.cluster["head_address"]))


def absent(serving: Serving) -> list[str]:
    """What an earlier run may have left that this host must not have now."""
    # of a head that was superseded, which this run declares anew; copies of what served, which a rank once kept there
    found = [former_head.MARKER]
    if not serving.has_engine:
        found.append(f"{_UNITS}/{_VLLM}")
    if serving.by_ray:
        found.append(f"{_ETC}/group.json")
    if serving.is_head:
        found += ["/var/lib/sparkthor/maintenance", "/run/sparkthor/draining"]
    else:
        found += [f"{_UNITS}/{_FRONT}", f"{_UNITS}/{_WATCHDOG}"]
        found += [f"{_ETC}/{name}" for name in ("front", "front.good", "front.good.old", "front.good.new")]
        found += [f"{_ETC}/serving.json", f"{_ETC}/secrets/api_key"]
    if serving.is_head and serving.tls != "self_signed":
        found.append(f"{_ETC}/front/self-signed")
    if not (serving.is_head and serving.door and serving.door.tls):
        found += [door.PEER_SECRET, *((f"{_ETC}/front/peer.key", f"{_ETC}/front/peer.crt") if serving.is_head else ())]
    if serving.is_head:
        found += [f"{_ETC}/front/{name}" for name in front.SCRIPTS if name not in _scripts(serving)]
    if not (serving.is_head and serving.token_limits):
        found += [f"{_UNITS}/{_TOKENS}", *([_LIMITS] if serving.is_head else [])]
    if not serving.door:
        found.append(door.SYSCTL_FILE)
    if not serving.virtual:
        found += [virtual_address.CONFIG, virtual_address.PROGRAM, f"{_UNITS}/{_ADDRESS}"]
    if not serving.degraded:
        found += [vllm_serve.SMALLER_CONFIG, "/run/sparkthor/degraded.json"]
    if not (serving.has_engine and serving.hf_token):
        found.append(_HF_TOKEN)
    return found


def _directories(serving: Serving) -> list[Directory]:
    return [
        directory("/run/sparkthor"),
        directory("/run/sparkthor/requests", "sparkthor", "root", "0750"),
        directory(_ETC),
        directory(f"{_ETC}/secrets", mode="0700"),
        directory(GOOD, mode="0700"),
        directory(serving.settings.engine_cache_dir, "sparkthor", "sparkthor"),
        *((directory(f"{_ETC}/vllm"),) if serving.has_engine else ()),
        *((directory(f"{_ETC}/front", mode="0700"),) if serving.is_head else ()),
    ]


def units(serving: Serving, beside: Sequence[Serving] = ()) -> list[Unit]:
    """In the order in which they are brought to their state."""
    common: list[Unit] = [
        {"name": "sparkthor.target", "enabled": True, "state": "started"},
        {"name": _DROP_CACHES, "enabled": True, "state": "started", "restart_on": [f"{_UNITS}/{_DROP_CACHES}"]},
    ]
    if serving.is_head:
        counts = [*_scripts(serving), *(["limits.json"] if serving.token_limits else [])]
        own = _head_units([*counts, *(door.FILES if serving.door else ())])
        tokens = _tokens_unit() if serving.token_limits else switched_off(_TOKENS)
        turns = on_demand.unit(OWN.config) if on_demand.groups(beside) else switched_off(on_demand.NAME)
        return [*common, tokens, turns, *own, _address_unit() if serving.virtual else switched_off(_ADDRESS)]
    former = [switched_off(unit) for unit in (_ADDRESS, _FRONT, _TOKENS, on_demand.NAME, _WATCHDOG)]
    if not serving.has_engine:
        return [*common, *former, switched_off(_VLLM)]
    # It waits until the head's unit starts. Only the head restarts the group (vllm_service): a rank that restarted by
    # itself would end the group once more than needed.
    return [*common, *former, {"name": _VLLM, "enabled": True, "state": "started", "no_block": True}]


def _tokens_unit() -> Unit:
    """It reads changed limits by itself."""
    return {"name": _TOKENS, "enabled": True, "state": "started", "restart_on": [f"{_UNITS}/{_TOKENS}"]}


def _head_units(of_door: Iterable[str]) -> list[Unit]:
    read_by_front = ("nginx.conf", "keys.conf", "self-signed", "tls.crt", "tls.key", *of_door)
    return [
        {
            "name": _FRONT,
            "enabled": True,
            "state": "started",
            "restart_on": [f"{_UNITS}/{_FRONT}"],
            "reload_on": [f"{_ETC}/front/{name}" for name in read_by_front],
        },
        *_serving_units(OWN, False),
    ]


def _serving_units(own: Places, sleeps: bool) -> list[Unit]:
    return [
        {
            "name": own.watchdog,
            "enabled": True,
            "state": "started",
            # the unit's file changes with the watchdog's code
            "restart_on": [f"{_UNITS}/{own.watchdog}", own.config],
        },
        # vllm_service starts it and restarts it at most once: _serving/ready.py compares the files of `inputs`
        {"name": own.unit, "enabled": not sleeps},
    ]


def _address_unit() -> Unit:
    """After the front proxy, so that no host takes the address before anything listens on it."""
    return {
        "name": _ADDRESS,
        "enabled": True,
        "state": "started",
        "restart_on": [f"{_UNITS}/{_ADDRESS}"],
        "reload_on": [virtual_address.CONFIG],
    }
