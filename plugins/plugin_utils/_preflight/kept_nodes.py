# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the last sound run found of each host, kept on the controller.

A plan from these facts lets a run ask each host once instead of twice: what it is, and whether it is as that plan
wants it.  The answer counts only where every host still is what it was; otherwise the hosts are asked in two steps.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory

Nodes = dict[str, dict[str, Any]]

#: what changes while a host stays what it is; nothing is planned by it but where there is memory for a model, which
#: matters only while none is served (:func:`confirmed`)
VOLATILE = frozenset(("clock", "clock_offset", "mem_available_bytes", "disk_free_bytes"))


def path_of(hosts: Mapping[str, str], inventory_dir: str, environment: Mapping[str, str] | None = None) -> str:
    """The file for a cluster: ``hosts`` are its hosts' addresses by name."""
    environment = os.environ if environment is None else environment
    home = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    name = hashlib.sha256(json.dumps([inventory_dir, sorted(hosts.items())]).encode()).hexdigest()[:32]
    return os.path.join(home, "sparkthor", "nodes", f"{name}.json")


def of_run(task_vars: Mapping[str, Any]) -> tuple[str, Nodes | None]:
    """Where the facts of this run's cluster are kept, and what is there."""
    everything = task_vars["hostvars"]
    hosts = inventory.cluster_hosts(task_vars["groups"])
    addresses = {host: str(everything[host].get("ansible_host", host)) for host in hosts}
    path = path_of(addresses, str(everything[hosts[0]].get("inventory_dir") or ""))
    return path, read(path, hosts)


def read(path: str, hosts: Sequence[str]) -> Nodes | None:
    """The facts by host, or nothing where they are not kept for exactly these hosts."""
    try:
        with open(path, encoding="utf-8") as stream:
            kept = json.load(stream)
    except (OSError, ValueError):
        return None
    if (
        not isinstance(kept, dict)
        or set(kept) != set(hosts)
        or not all(isinstance(node, dict) for node in kept.values())
    ):
        return None
    return kept


def steady(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key not in VOLATILE}


def same(kept: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether every host is what it was."""
    return set(kept) == set(found) and all(steady(kept[host]) == steady(found[host]) for host in kept)


def confirmed(kept: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]], serves: bool) -> bool:
    """Whether a plan from ``kept`` is the plan from ``found``.  ``serves``: the plan has a model in it."""
    return same(kept, found) and (not serves or all(node.get("serving") for node in found.values()))


def write(path: str, nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep them; a controller that cannot is one that asks twice."""
    former = read(path, list(nodes))
    if former is not None and same(former, nodes):
        return
    part = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            json.dump(nodes, stream)
        os.replace(part, path)
    except OSError:
        return
