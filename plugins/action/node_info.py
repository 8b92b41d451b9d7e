# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``node_info``: how far the host's clock is from this one's.

The host read its clock between the start and the end of the call, so whatever lies outside of that span is wrong by at
least the distance to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.module_utils import _inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils import _kept_nodes


def clock_offset(clock: float, before: float, after: float) -> float:
    """Seconds that a clock is ahead (or, negative, behind) at least; 0 where it may be right."""
    if clock < before:
        return round(clock - before, 1)
    return round(max(0.0, clock - after), 1)


def add_clock_offset(result: Mapping[str, Any], before: float) -> None:
    """To what a call that began at ``before`` and has just ended found of the host."""
    node = (result.get("ansible_facts") or {}).get("sparkthor_node")
    if node:
        node["clock_offset"] = clock_offset(float(node["clock"]), before, time.time())


def kept_nodes(task_vars: Mapping[str, Any]) -> tuple[str, _kept_nodes.Nodes | None]:
    """Where the facts of this run's cluster are kept, and what is there."""
    everything = task_vars["hostvars"]
    hosts = _inventory.cluster_hosts(task_vars["groups"])
    addresses = {host: str(everything[host].get("ansible_host", host)) for host in hosts}
    path = _kept_nodes.path_of(addresses, str(everything[hosts[0]].get("inventory_dir") or ""))
    return path, _kept_nodes.read(path, hosts)


class ActionModule(ActionBase):
    """Runs the module and adds ``clock_offset`` to what it found."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("timeout", "kept"))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Entry point of the plugin."""
        super().run(tmp, task_vars)
        if boolean(self._task.args.get("kept", False), strict=False):
            kept = (kept_nodes(task_vars or {})[1] or {}).get((task_vars or {})["inventory_hostname"])
            facts = {"ansible_facts": {"sparkthor_node": kept}} if kept else {}
            return {"changed": False, "kept": bool(kept), **facts}
        before = time.time()
        # Preflight runs host_compare next.  A module is put together once a run, so one that does both saves the other.
        result = self._execute_module(
            module_name="sparkthor.cluster.host_compare",
            module_args={"node": int(self._task.args.get("timeout", 10))},
            task_vars=task_vars or {},
        )
        add_clock_offset(result, before)
        return result
