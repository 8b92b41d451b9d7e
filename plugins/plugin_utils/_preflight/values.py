# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the roles' variables that have the right type and cannot be used all the same.

What the last roles would refuse is refused here, before a host is contacted: the planners' own checks, and those of the
modules on the hosts.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._host_state.wanted import PROTECTED
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import nccl
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import models
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import MINIMUM_SECRET_LENGTH
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import (
    Declared,
    of_collection,
    shortened,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import (
    environment,
    firewall,
    front,
    patience,
    power,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import forms
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.fabric_check import ACCEPTABLE, BY_VALUE

Variables = Mapping[str, Any]

#: folders on the hosts that a role gives to the serving user or removes things from
FOLDERS = ("engine_cache_dir", "ray_node_temp_dir", "model_store_root")
ENVIRONMENTS = ("vllm_serve_env", "engine_extra_env", "ray_node_env")
_PORTS = (
    *("vllm_serve_api_port", "vllm_serve_master_port", "vllm_serve_group_port", "firewall_api_port"),
    *("vllm_serve_door_port", "vllm_serve_engine_port", "vllm_serve_rpc_port"),
    *("model_store_port", "monitoring_exporter_port", "ray_node_worker_port_min", "ray_node_worker_port_max"),
)
_BOUNDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(_PORTS, (1, 65535)),
    "firewall_rollback_timeout": (10, 600),
    "roce_network_rollback_timeout": (30, 600),
    "model_store_streams": (1, 64),
    "os_hardening_swap_swappiness": (0, 200),
    "os_hardening_oom_ssh": (-1000, 1000),
    "os_hardening_oom_journald": (-1000, 1000),
    "os_hardening_earlyoom_min_free_percent": (1, 99),
    "os_hardening_gpu_clock_max": (300, 3003),
    # a reboot with a check of the disk takes minutes, and a GB10 forgets its power negotiation only after half of one
    "vllm_serve_power_after": (300, 2**31),
    "vllm_serve_power_pause": (1, 600),
    **dict.fromkeys(("ray_node_num_cpus", "vllm_serve_degraded_after", "roce_network_verify_wait"), (0, 2**31)),
    **dict.fromkeys(
        (
            *(
                "vllm_serve_ready_timeout",
                "vllm_serve_max_model_len",
                "vllm_serve_front_workers",
            ),
            *("vllm_serve_front_retry_after", "ray_node_join_timeout", "model_store_patience"),
        ),
        (1, 2**31),
    ),
    # a second replica is a serving group of its own
    "vllm_serve_replicas": (1, 2**31),
    **{name: (int(least), int(most)) for name, (least, most, *_why) in patience.RANGES.items()},
}
#: what to give where not everything within the bounds can be used
_FIXES: Mapping[str, str] = {
    "vllm_serve_degraded_after": "give 0, or a whole number from 30",
    "vllm_serve_replicas": "give 1, and a serving group to each other replica (serving_groups)",
}
#: mappings whose names and values are written as they are, with the form of both
_WORDS_OF: Mapping[str, tuple[re.Pattern[str], str, str]] = {
    "nccl_conf_settings": (
        re.compile(f"(?:(?!{forms.NOT_ONE_LINE.pattern}).){{0,{forms.LONGEST}}}"),
        "is not one line",
        "write what NCCL reads, such as 1 or 0, or name the key in nccl_conf_remove",
    ),
    "ray_node_labels": (
        re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,253}[A-Za-z0-9])?"),
        "is no label of Ray",
        "use letters, digits, '.', '_' and '-', in quotes where YAML reads something else",
    ),
}


def _media_domains(given: Any, _name: str) -> None:
    # a run without serving has no use for what plans it
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.vllm_config import media_domains

    media_domains(given)


#: what the plan of serving takes; each raises ValueError
_OF_SERVING: Mapping[str, Callable[[Any, str], object]] = {
    "vllm_serve_listen": lambda value, _name: front.listen_addresses(value, 1),
    "vllm_serve_cors_origins": lambda value, _name: front.origins(value),
    "vllm_serve_tls_names": lambda value, _name: front.subject_names(value),
    **dict.fromkeys(("vllm_serve_front_read_timeout", "vllm_serve_front_client_timeout"), front.checked_duration),
    "vllm_serve_front_max_body": front.checked_size,
    "vllm_serve_media_domains": _media_domains,
}
_OF_RAY = ("CPU", "GPU", "memory", "object_store_memory")
#: headers carry them: printable ASCII without blanks
_TOKEN = re.compile(r"[!-~]+")
_TOKENS = ("ray_node_token", "vllm_serve_hf_token", "vllm_serve_peer_secret")
#: whose value is not shown
_SECRETS = (*_TOKENS, "vllm_serve_api_key", "vllm_serve_api_keys")
#: of an inventory name becomes a label, a comment of a unit and a file's name on the controller
_HOST = re.compile(r"[\w.:-]+")


def value_problems(hostvars: Mapping[str, Variables]) -> list[Finding]:
    """What is wrong with the variables that an inventory gives; the same on several hosts is said once."""
    found: dict[Finding, list[str]] = {}
    for host, raw in hostvars.items():
        given = Declared(raw, strict=False)
        for finding in (*_host_name(host), *_of_host({name: given[name] for name in given if name in _NAMES})):
            found.setdefault(finding, []).append(host)
    return [replace(finding, source=f"on {', '.join(hosts)}") for finding, hosts in found.items()]


def _of_host(given: Variables) -> Iterator[Finding]:
    for name, (low, high) in _BOUNDS.items():
        value = given.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and not low <= value <= high:
            span = f"from {low} to {high}" if high < 2**31 else f"from {low}"
            yield _finding(name, value, f"it is not {span}", _FIXES.get(name, f"give a whole number {span}"))
    sound: dict[str, Any] = {}
    for name, value in given.items():
        secret = name in _SECRETS
        # the end of a file is no part of the secret in it
        wrong = forms.problem(name, value.strip() if secret and isinstance(value, str) else value)
        if wrong:
            yield _finding(name, None if secret else wrong[0], *wrong[1:])
        else:
            sound[name] = value
    yield from _of_sound(sound)


def _of_sound(given: Variables) -> Iterator[Finding]:
    """The checks that read texts, which have their form by now."""
    gpus = given.get("ray_node_num_gpus")
    if gpus not in (None, "", "auto") and (isinstance(gpus, bool) or not re.fullmatch(r"\d{1,4}", str(gpus).strip())):
        yield _finding("ray_node_num_gpus", gpus, "it is neither a number of GPUs nor auto", "give 0 or more, or auto")
    yield from _accepted(given)
    yield from _folders(given)
    yield from _environments(given)
    yield from _mappings(given)
    yield from _lists(given)
    yield from _secrets(given)
    yield from _serving(given)
    yield from _firewall(given)
    yield from _nccl(given)
    yield from _models(given)
    yield from power.problems(given)


def _accepted(given: Variables) -> Iterator[Finding]:
    """``preflight_accept``: a kind of finding, or one value of those that are accepted value by value."""
    values = given.get("preflight_accept")
    for item in values if isinstance(values, list) else ():
        for word in (part.strip() for part in str(item).split(",")):
            kind, sign, value = word.partition("=")
            if word in BY_VALUE or (kind in BY_VALUE and not value):
                fix = f"name what the finding shows, such as {kind}=VALUE; each value is accepted by itself"
                yield _finding("preflight_accept", word, "it would accept any value", fix)
            elif not (kind in BY_VALUE and sign) and word not in ACCEPTABLE:
                known = ", ".join([*ACCEPTABLE, *(f"{name}=VALUE" for name in BY_VALUE)])
                yield _finding("preflight_accept", word, "it is no finding that can be accepted", f"choose of {known}")


def _finding(name: str, value: Any, what: str, fix: str) -> Finding:
    # Ansible's texts carry marks; a finding is compared and kept, so it has a plain value
    shown = value if value is None or isinstance(value, (int, float)) else shortened(str(value))
    return Finding("value", what, fix, where=name, value=shown)


def _host_name(host: str) -> Iterator[Finding]:
    if not _HOST.fullmatch(host) or host.startswith("-"):
        what = "its inventory name holds characters that labels and file names cannot have"
        yield Finding(
            "value", what, "name it with letters, digits, '_', '-' and '.'; ansible_host has the address", host
        )


def _folders(given: Variables) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for name in (*FOLDERS, "engine_venv_path"):
        value = given.get(name)
        if not isinstance(value, str):
            continue
        path = posixpath.normpath(value)
        if not value.startswith("/") or ".." in value.split("/"):
            yield _finding(
                name, value, "it is not an absolute path", "give a folder of the hosts from / on, without .."
            )
        elif not re.fullmatch(r"[A-Za-z0-9_./-]+", value):
            what = "it holds a blank or a character that means something to systemd or a shell"
            yield _finding(name, value, what, "use letters, digits, '_', '-', '.' and '/'")
        elif path in PROTECTED or path.startswith(("/proc/", "/sys/", "/dev/", "/tmp/", "/var/tmp/", "/run/", "/etc/")):
            what = "it is a folder of the system or one that everybody may write to"
            yield _finding(name, value, what, "give a folder of its own, such as one below /var/lib/sparkthor or /srv")
        elif path in seen:
            yield _finding(name, value, f"{seen[path]} is the same folder", "give each a folder of its own")
        seen.setdefault(path, name)


def _environments(given: Variables) -> Iterator[Finding]:
    for where in ENVIRONMENTS:
        values = given.get(where)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if wrong := environment.problem(name, value):
                yield _finding(where, None, *wrong)


def _mappings(given: Variables) -> Iterator[Finding]:
    """Values that become words of a file or a command: a null would be the word None there, and false False."""
    for where, (pattern, what, fix) in _WORDS_OF.items():
        values = given.get(where)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if value is None or isinstance(value, (bool, Mapping, list, tuple)):
                shown = json.dumps(value) if value is None or isinstance(value, bool) else "a list or a mapping"
                yield _finding(where, None, f"the value of {name} is {shown}", fix)
            elif not (pattern.fullmatch(str(name)) and pattern.fullmatch(str(value))):
                yield _finding(where, f"{name}={value}", f"it {what}", fix)
    values = given.get("ray_node_resources")
    for name, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            fix = "give a number without quotes, such as 1, or leave the resource out"
            yield _finding("ray_node_resources", value, f"the amount of {name} is no number from 0", fix)
        elif name in _OF_RAY:
            fix = "use ray_node_num_cpus, ray_node_num_gpus or ray_node_object_store_memory instead"
            yield _finding("ray_node_resources", name, "Ray counts this resource itself", fix)


def _lists(given: Variables) -> Iterator[Finding]:
    """Items become words of files and commands: an empty one breaks them, as a pin without a package breaks apt."""
    for name, value in given.items():
        items = [item for item in value if item is None or isinstance(item, str)] if isinstance(value, list) else []
        if any(item is None or not item.strip() for item in items):
            yield _finding(name, None, "an item of the list is empty", "remove it, or write what is meant")


def _secrets(given: Variables) -> Iterator[Finding]:
    for name in _TOKENS:
        value = given.get(name)
        if isinstance(value, str) and value.strip() and not _TOKEN.fullmatch(value.strip()):
            what = "the value (not shown) holds a blank or a character outside of ASCII"
            yield _finding(name, None, what, "use letters, digits and signs of ASCII")
    try:
        key, named = given.get("vllm_serve_api_key"), given.get("vllm_serve_api_keys")
        # too short a key is inventory.secret_problems' to say
        if isinstance(key, str) and len(key.strip()) >= MINIMUM_SECRET_LENGTH:
            front.checked_key(key.strip(), "vllm_serve_api_key")
        front.named_keys(named if isinstance(named, list) else ())
    except front.FrontPlanError as error:
        where, _sign, message = str(error).partition(": ")
        what, _sign, fix = message.partition("; ")
        yield _finding(where, None, what, fix)
    if given.get("vllm_serve_tls") == "given":
        for name, mark in (("vllm_serve_tls_certificate", "BEGIN CERTIFICATE"), ("vllm_serve_tls_key", "PRIVATE KEY")):
            if mark not in str(given.get(name) or ""):
                what = f"vllm_serve_tls is given, and {name} (not shown) holds no {mark}"
                yield _finding(name, None, what, "give the text of the PEM file, such as lookup('file', …)")


def _serving(given: Variables) -> Iterator[Finding]:
    """What the plan of serving would refuse when it is made."""
    for name, check in _OF_SERVING.items():
        try:
            if given.get(name):
                check(given[name], name)
        except ValueError as error:
            # the variable is in the message
            what, _sign, fix = str(error).removeprefix(f"{name}: ").partition("; ")
            yield _finding(name, None, what, fix)


def _firewall(given: Variables) -> Iterator[Finding]:
    for name, problem in firewall.check(given).items():
        what, _sign, fix = problem.partition("; ")
        yield _finding(name, None, what, fix)


def _nccl(given: Variables) -> Iterator[Finding]:
    settings, removed = given.get("nccl_conf_settings"), given.get("nccl_conf_remove")
    try:
        nccl.edit(
            b"",
            {str(key): str(value) for key, value in settings.items()} if isinstance(settings, Mapping) else {},
            [str(key) for key in removed] if isinstance(removed, list) else [],
        )
    except nccl.NcclError as error:
        yield _finding(
            "nccl_conf_settings", None, shortened(str(error)), "correct nccl_conf_settings or nccl_conf_remove"
        )


def _models(given: Variables) -> Iterator[Finding]:
    """Names only: a source may be away just now, and is needed only where a host lacks the model."""
    entries = given.get("model_store_models")
    try:
        for entry in entries if isinstance(entries, list) else ():
            models.store_folder_of(entry)
    except AnsibleActionFail as error:
        what = str(error).partition(": ")[2]
        yield _finding("model_store_models", None, what, "correct it in the inventory")


# those of the fabric are checked together, but for one that is a word of files
_NAMES = frozenset((*of_collection().names, "fabric_lan_nic"))
