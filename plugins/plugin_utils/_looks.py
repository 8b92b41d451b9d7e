# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the controller side of status, verify and report have in common: registered results and files beside the
inventory."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils import _inventory

#: of each host's variables, what the plan reads; templating all of them would cost a second
NAMES = (
    *_inventory.CLUSTER_WIDE,
    *("ansible_host", "ansible_port", "ansible_user", "fabric_lan_nic", "fabric_overrides", "ray_node_num_gpus"),
    *("vllm_serve_api_port", "fabric_topology", "fabric_cidr", "fabric_cage", "fabric_mtu"),
)


def gather(
    task_vars: Mapping[str, Any], name: str, extra: tuple[str, ...] = ()
) -> tuple[dict[str, list[str]], dict[str, dict[str, Any]], dict[str, Mapping[str, Any]]]:
    """Groups, the variables that the plan reads, and what the task that registered ``name`` returned, by host."""
    groups = {group: list(hosts) for group, hosts in task_vars["groups"].items()}
    everything = task_vars["hostvars"]
    hosts = _inventory.cluster_hosts(groups)
    hostvars = {
        host: {key: everything[host][key] for key in (*NAMES, *extra) if key in everything[host]} for host in hosts
    }
    outcomes = {host: everything[host].get(name) or {} for host in hosts}
    return groups, hostvars, outcomes


def results_folder(task_vars: Mapping[str, Any], given: str | None = None) -> str:
    """Where verify, doctor and report keep what they found: beside the inventory, like the secrets."""
    if given:
        return os.path.expanduser(given)
    base = task_vars.get("inventory_dir") or os.getcwd()
    return os.path.join(str(base), ".results")


def write(path: str, content: str) -> None:
    """All or nothing, on the controller."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".sparkthor-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), 0o644)
            stream.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
