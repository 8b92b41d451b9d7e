# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the network settings of NCCL and similar libraries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.environment_file import FABRIC
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import (
    Case,
    check,
    environments,
    fabric_environment,
    hosts_read,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.diagnosis import Hit, tidy


def _is_on(value: str) -> bool:
    return value.strip() not in ("", "0")


@check
def ib_disabled_host(case: Case) -> Iterator[Hit]:
    if not case.roce:
        return
    for host, evidence in hosts_read(case):
        for name, content in (evidence.get("nccl") or {}).items():
            if _is_on(content["settings"].get("NCCL_IB_DISABLE", "0")):
                yield Hit(host, [f"{name}: NCCL_IB_DISABLE={content['settings']['NCCL_IB_DISABLE']}"], name)
        value = fabric_environment(evidence).get("NCCL_IB_DISABLE", "0")
        if _is_on(value):
            yield Hit(host, [f"{FABRIC}: NCCL_IB_DISABLE={value}"], FABRIC)


@check
def ib_disabled_engine(case: Case) -> Iterator[Hit]:
    """In the engine's own environment, or in the file that its image carries."""
    if not case.roce:
        return
    for host, evidence in hosts_read(case):
        file_says = _is_on(fabric_environment(evidence).get("NCCL_IB_DISABLE", "0"))
        for process in evidence.get("processes") or ():
            name = f"{process['program']} (process {process['pid']})"
            value = process["env"].get("NCCL_IB_DISABLE")
            if value is not None and _is_on(value) and not file_says:
                yield Hit(host, [f"environment of {name}: NCCL_IB_DISABLE={value}"], name)
            elif value is None and _is_on((process.get("nccl_conf") or {}).get("NCCL_IB_DISABLE", "0")):
                yield Hit(host, [f"/etc/nccl.conf inside the image of {name}: NCCL_IB_DISABLE=1"], name)


#: settings that froze small collectives on the ConnectX-7 of a GB10, whoever set them (aicad-nccl-optimization #1)
_FREEZING = ("NCCL_IB_USE_INLINE", "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS")


@check
def nccl_unplanned(case: Case) -> Iterator[Hit]:
    """What an image's own nccl.conf sets and nobody planned, and settings known to freeze wherever they stand."""
    for host, evidence in hosts_read(case):
        planned = {**(((case.fabric or {}).get(host) or {}).get("env") or {}), **fabric_environment(evidence)}
        of_host = ((evidence.get("nccl") or {}).get("/etc/nccl.conf") or {}).get("settings") or {}
        for name, content in (evidence.get("nccl") or {}).items():
            found = [
                f"{key}={value}" for key, value in content["settings"].items() if key in _FREEZING and _is_on(value)
            ]
            if found:
                yield Hit(host, [f"{name}: {', '.join(found)}"], name)
        for process in evidence.get("processes") or ():
            settings = {
                key: value
                for key, value in (process.get("nccl_conf") or {}).items()
                # what the environment sets outranks the file; RDMA switched off has a rule of its own
                if key not in process["env"] and key not in planned and key not in of_host and key != "NCCL_IB_DISABLE"
            }
            if settings:
                name = f"{process['program']} (process {process['pid']})"
                words = ", ".join(f"{key}={value}" for key, value in sorted(settings.items()))
                yield Hit(host, [f"/etc/nccl.conf inside the image of {name}: {words}"], name)


@check
def mixed_transport(case: Case) -> Iterator[Hit]:
    """On a lan all ranks need sockets; one that may use RDMA makes the others fail."""
    if not case.cluster or case.cluster["profile"] != "tcp" or len(case.hosts) < 2:
        return
    for host, evidence in hosts_read(case):
        if not (evidence.get("rdma") or {}).get("links"):
            continue
        for where, environment in environments(evidence):
            conf = (evidence.get("nccl") or {}).get("/etc/nccl.conf", {}).get("settings", {})
            if not _is_on(environment.get("NCCL_IB_DISABLE", conf.get("NCCL_IB_DISABLE", "0"))):
                yield Hit(
                    host, [f"{where}: NCCL_IB_DISABLE is not 1, though this host has RDMA and others do not"], where
                )


@check
def nccl_line_ineffective(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        for name, content in (evidence.get("nccl") or {}).items():
            for line in content["ineffective"]:
                yield Hit(host, [f"{name} line {line['line']}: {tidy(line['text'])!r}: {line['reason']}"], name)


def _absent_names(key: str, value: str, nics: Iterable[str], devices: Iterable[str]) -> list[str]:
    """Names in one variable that nothing on the host answers to, as the library reads it."""
    value = value.strip()
    if not value or value.startswith("^") or value in ("all", "any"):
        return []
    exact = not key.startswith("NCCL_") or value.startswith("=")
    wanted = [item.strip() for item in value.lstrip("=").split(",") if item.strip()]
    known = list(devices) if key == "NCCL_IB_HCA" else [*nics, *devices]
    missing = []
    for item in wanted:
        name = item.split(":")[0]
        if not any(have == name if exact else have.startswith(name) for have in known):
            missing.append(name)
    # a prefix list is an offer: one that is there will do
    return missing if exact or len(missing) == len(wanted) else []


_NAMING = (
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("OMPI_MCA_btl_tcp_if_include", "NCCL_IB_HCA"),
)


@check
def nic_name_absent(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        nics = case.interfaces(host)
        devices = [link["device"] for link in (evidence.get("rdma") or {}).get("links") or ()]
        if not nics:
            continue
        for where, environment in environments(evidence):
            for key in _NAMING:
                missing = _absent_names(key, environment.get(key, ""), nics, devices)
                if missing:
                    yield Hit(host, [f"{where}: {key}={environment[key]}, but {', '.join(missing)} is not here"], where)


@check
def environment_differs(case: Case) -> Iterator[Hit]:
    for host, evidence in hosts_read(case):
        environment = fabric_environment(evidence)
        planned = ((case.fabric or {}).get(host) or {}).get("env") or {}
        if not environment:
            continue
        wrong = [
            f"{key} is {environment.get(key, 'absent')}, planned {value}"
            for key, value in sorted(planned.items())
            if environment.get(key) != str(value)
        ]
        extra = sorted(key for key in environment if key.startswith("NCCL_") and key not in planned)
        wrong += [f"{key}={environment[key]} is not planned" for key in extra]
        if planned and wrong:
            yield Hit(host, wrong, FABRIC)
