# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading an Ansible inventory: the one source of a lab's hosts."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plan import Wish, check_lab_name, short_name
from .system import LabError, run


@dataclass(frozen=True)
class Request:
    """What an inventory says about the lab it wants."""

    wishes: tuple[Wish, ...]
    topology: str
    cage: int
    name: str | None
    subnet: str | None
    suite: str | None
    disk: str | None
    layers: tuple[str, ...] = ()
    #: whether hosts own GPUs; a list of them by number, which other labs may have as well
    gpu: bool | tuple[int, ...] = False
    #: hosts whose cable is in the other cage than the first host's
    other_cage: tuple[str, ...] = ()
    #: both, where two cages of each host are cabled
    cages: tuple[int, ...] = ()


def ansible_inventory() -> str:
    beside = Path(sys.executable).with_name("ansible-inventory")
    found = str(beside) if beside.exists() else shutil.which("ansible-inventory")
    if not found:
        raise LabError("ansible-inventory was not found: install ansible-core beside sparklab")
    return found


def read(paths: Sequence[str]) -> dict[str, Any]:
    """The inventory as `ansible-inventory --list` gives it."""
    for path in paths:
        if not os.path.exists(path) and "," not in path:
            raise LabError(f"no inventory at {path}")
    # a broken source is an error, not a warning: a lab of half the hosts helps nobody
    env = {
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_DEPRECATION_WARNINGS": "false",
    }
    done = run([ansible_inventory(), *(word for path in paths for word in ("-i", path)), "--list"], env=env)
    return dict(json.loads(done.stdout))


def members(data: Mapping[str, Any], group: str) -> list[str]:
    """Hosts of a group in the order that matters: the head first, then the workers, then the rest."""
    entry = data.get(group) or {}
    children = list(entry.get("children") or [])
    first = [name for name in ("ray_head", "ray_workers") if name in children]
    found: list[str] = []
    for child in [*first, *(name for name in children if name not in first)]:
        found += [host for host in members(data, child) if host not in found]
    found += [host for host in entry.get("hosts") or [] if host not in found]
    return found


def interpret(data: Mapping[str, Any]) -> Request:
    """The request for a lab in an inventory's data."""
    hosts = members(data, "cluster")
    if not hosts:
        raise LabError("the inventory has no host in the group cluster (children ray_head and ray_workers)")
    hostvars = (data.get("_meta") or {}).get("hostvars") or {}
    thors = set(members(data, "thors"))

    # a real GPU is no Spark's and no Thor's
    usual = "generic" if any(hostvars.get(host, {}).get("lab_gpu") for host in hosts) else "spark"

    def kind(host: str) -> str:
        return str(hostvars.get(host, {}).get("lab_kind") or ("thor" if host in thors else usual))

    def common(key: str) -> Any:
        values = {json.dumps(hostvars.get(host, {}).get(key)) for host in hosts} - {"null"}
        if len(values) > 1:
            raise LabError(f"{key} differs between hosts of the group cluster: {', '.join(sorted(values))}")
        return json.loads(values.pop()) if values else None

    def text(key: str) -> str | None:
        value = common(key)
        return None if value is None else str(value)

    both = common("fabric_cages") or ()
    cages = {host: str(hostvars.get(host, {}).get("fabric_cage", 1)) for host in hosts}
    cage = cages[hosts[0]]
    return Request(
        wishes=tuple(Wish(host, kind(host), _address(hostvars.get(host, {}))) for host in hosts),
        topology=text("fabric_topology") or "lan",
        cage=int(cage) if cage.isdigit() else 1,
        other_cage=tuple(host for host in hosts if cages[host] != cage),
        cages=tuple(int(number) for number in both),
        name=text("lab_name"),
        subnet=text("lab_subnet"),
        suite=text("lab_suite"),
        disk=text("lab_disk"),
        layers=tuple(str(layer) for layer in common("lab_layers") or ()),
        gpu=_gpus(common("lab_gpu")),
    )


def _gpus(value: Any) -> bool | tuple[int, ...]:
    if not isinstance(value, list):
        return bool(value)
    if not value or not all(isinstance(one, int) and one >= 0 for one in value):
        raise LabError(f"lab_gpu {value!r}: true, or the numbers of GPUs, one for each host")
    return tuple(value)


def _address(variables: Mapping[str, Any]) -> str | None:
    value = variables.get("ansible_host")
    return value if isinstance(value, str) else None


def default_name(request: Request, paths: Sequence[str]) -> str:
    """The inventory's lab_name, else the name of the folder that the first inventory lies in."""
    if request.name:
        return check_lab_name(request.name)
    path = Path(paths[0]).resolve()
    return short_name((path if path.is_dir() else path.parent).name)
