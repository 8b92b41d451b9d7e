# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of Ray and of the units that run the engine."""

from __future__ import annotations

import re
import typing as t
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import systemd
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.verdict import gib
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import places
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import (
    GIB,
    Case,
    Evidence,
    check,
    groups_told,
    hosts_read,
    is_loopback,
    json_file,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit


def _flag(argv: Sequence[str], name: str) -> str:
    for word in argv:
        key, _sep, value = word.partition("=")
        if key.lstrip("-").replace("-", "_") == name:
            return value
    return ""


def _raylets(evidence: Evidence) -> Iterator[Mapping[str, t.Any]]:
    return (process for process in evidence.get("processes") or () if process["program"] == "raylet")


@check
def ray_wrong_nic(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        planned = ((case.fabric or {}).get(host) or {}).get("control_address")
        for process in _raylets(evidence):
            used = _flag(process["argv"], "node_ip_address")
            if planned and used and used != planned:
                nic = next(
                    (
                        name
                        for name, link in case.interfaces(host).items()
                        if any(item["address"].startswith(f"{used}/") for item in link["addresses"])
                    ),
                    "no NIC of this host",
                )
                yield Hit(host, [f"raylet runs on {used} ({nic}), planned is {planned}"], f"process {process['pid']}")


@check
def ray_absent(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        engine = evidence.get("engine") or {}
        wants = any(
            str(serve.get("distributed-executor-backend", "")) == "ray" and serve.ours
            for serve in case.serves
            if serve.host in case.together(host)
        ) or bool((evidence.get("files") or {}).get("ray.json"))
        versions = engine.get("versions") or {}
        serves = next((f"{name} {versions[name]}" for name in registry.ENGINES if versions.get(name)), "")
        if engine.get("present") and serves and "ray" not in versions and wants:
            yield Hit(host, [f"/opt/sparkthor/venv has {serves} and no ray"])


@check
def object_store_large(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        total = (evidence.get("memory") or {}).get("MemTotal", 0)
        for process in _raylets(evidence):
            value = _flag(process["argv"], "object_store_memory")
            if value.isdigit() and int(value) > 8 * GIB:
                seen = f"object store of {gib(int(value))} of {gib(total)} memory"
                yield Hit(host, [seen], f"process {process['pid']}")


@check
def memory_monitor_on(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for process in _raylets(evidence):
            value = process["env"].get("RAY_memory_monitor_refresh_ms")
            if process["env"] and value != "0":
                seen = f"RAY_memory_monitor_refresh_ms is {value or 'not set'} in raylet's environment"
                yield Hit(host, [seen], f"process {process['pid']}")


@check
def ray_without_token(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for process in _raylets(evidence):
            if process["env"] and process["env"].get("RAY_AUTH_MODE") != "token":
                yield Hit(host, ["RAY_AUTH_MODE is not token in raylet's environment"], f"process {process['pid']}")


@check
def gpus_invented(case: Case) -> Iterator[Hit]:
    """Ray was told of more GPUs than the host has."""
    for host, evidence in hosts_read(case):
        real = int(case.node(host).get("gpus") or 0)
        for process in _raylets(evidence):
            match = re.search(r"(?:^|,)GPU,(\d+)", _flag(process["argv"], "static_resource_list"))
            if match and real and int(match[1]) > real:
                yield Hit(host, [f"Ray books {match[1]} GPUs, nvidia-smi lists {real}"], f"process {process['pid']}")


@check
def token_differs(case: Case) -> Iterator[Hit]:
    values: dict[str, list[str]] = {}
    for host, evidence in hosts_read(case):
        secret = (evidence.get("secrets") or {}).get("ray_token")
        if secret:
            values.setdefault(secret["fingerprint"], []).append(host)
    if len(values) < 2:
        return
    # the head's counts: workers join it
    heads = [value for value, hosts in values.items() if case.hosts[0] in hosts]
    usual = heads[0] if heads else max(values, key=lambda value: len(values[value]))
    for value, hosts in values.items():
        if value != usual:
            for host in hosts:
                yield Hit(
                    host, [f"its token is not that of {', '.join(values[usual])}"], "/etc/sparkthor/secrets/ray_token"
                )


@check
def dashboard_open(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        port = int((json_file(evidence, "ray.json").get("ports") or {}).get("dashboard", 8265) or 8265)
        for listener in evidence.get("listeners") or ():
            if listener["port"] == port and not is_loopback(listener["address"]):
                yield Hit(host, [f"{listener['program'] or 'a program'} listens on {listener['address']}:{port}"])


@check
def ray_unhealthy(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for problem in (evidence.get("ray") or {}).get("problems") or ():
            if problem["code"] in ("token_missing", "token_refused", "engine_absent"):
                continue
            about = problem.get("node") or host
            about = about if about in case.hosts else host
            yield Hit(about, [problem["cause"]], fix=problem["fix"], hosts=(about,))


def _paused(case: Case, host: str, evidence: Evidence) -> set[str]:
    """Units of a host that nobody expects to run: those of a group in maintenance or asleep. Its head knows."""
    paused = {
        unit
        for group in groups_told(evidence)
        if group.listed("maintenance") in (evidence.get("files") or {})
        for unit in (group.unit, group.watchdog)
    }
    head = case.evidence.get(case.together(host)[0]) or {}
    if places.OWN.listed("maintenance") in (head.get("files") or {}):
        paused |= {places.OWN.unit, places.OWN.watchdog}
    return paused


@check
def unit_down(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        units, paused = evidence.get("units") or {}, _paused(case, host, evidence)
        beside = [unit for group in groups_told(evidence) if group.name for unit in (group.unit, group.watchdog)]
        for name in (*node.SERVING_UNITS, *node.FRONT_UNITS, *beside):
            unit = units.get(name) or {}
            if unit.get("LoadState") != "loaded" or name in paused:
                continue
            active, sub, enabled, result = (
                str(unit.get(key)) for key in ("ActiveState", "SubState", "UnitFileState", "Result")
            )
            if how := systemd.down(active, sub, enabled, result, int(unit.get("NRestarts") or 0)):
                yield Hit(host, [f"{name} is {how}"], name)


def _by_hand(evidence: Evidence, process: Mapping[str, t.Any]) -> bool:
    """Whether this is a rank of an engine on several hosts that no unit started: units have limits of their own."""
    words = ("--nnodes", "--node-rank", "--master-addr")
    ours = any(
        name.startswith(("sparkthor-ray", "sparkthor-vllm")) and unit.get("ActiveState") == "active"
        for name, unit in (evidence.get("units") or {}).items()
    )
    return not ours and any(word.partition("=")[0] in words for word in process["argv"])


@check
def memlock_limited(case: Case) -> Iterator[Hit]:
    if not case.roce:
        return
    for host, evidence in hosts_read(case):
        for name in ("sparkthor-ray.service", "sparkthor-vllm.service"):
            unit = (evidence.get("units") or {}).get(name) or {}
            limit = unit.get("LimitMEMLOCK", "")
            if unit.get("LoadState") == "loaded" and limit not in ("", "infinity", str(2**64 - 1)):
                yield Hit(host, [f"{name}: LimitMEMLOCK is {limit} bytes"], name)
        for process in evidence.get("processes") or ():
            where = ", in a container" if process.get("contained") else ""
            if (where or _by_hand(evidence, process)) and 0 < process["memlock"] < GIB:
                who = f"{process['program']} (process {process['pid']}{where})"
                yield Hit(host, [f"{who} may lock {process['memlock'] // 1024} KiB"], who)


@check
def not_serving(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for group in groups_told(evidence):
            state = json_file(evidence, group.listed("state.json"))
            if not state or group.listed("maintenance") in (evidence.get("files") or {}):
                continue
            old = float(evidence.get("ended") or 0) - float(state.get("updated") or 0) > 60
            if not old and state.get("state") in ("degraded", "restarting"):
                whose = group.name or case.group
                where = f"the watchdog of the group {whose}" if whose else "the watchdog"
                yield Hit(host, [str(state.get("line") or state["state"])], where)
