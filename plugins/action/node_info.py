# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``node_info``: how far the host's clock is from this one's, and what an earlier run kept."""

from __future__ import annotations

import time
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import clock, kept_nodes


class ActionModule(ActionBase):
    """Runs the module and adds ``clock_offset`` to what it found."""

    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset(("timeout", "kept"))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Entry point of the plugin."""
        super().run(tmp, task_vars)
        if boolean(self._task.args.get("kept", False), strict=False):
            kept = (kept_nodes.of_run(task_vars or {})[1] or {}).get((task_vars or {})["inventory_hostname"])
            facts = {"ansible_facts": {"sparkthor_node": kept}} if kept else {}
            return {"changed": False, "kept": bool(kept), **facts}
        before = time.time()
        # Preflight runs host_compare next.  A module is put together once a run, so one that does both saves the other.
        result = self._execute_module(
            module_name="sparkthor.cluster.host_compare",
            module_args={"node": int(self._task.args.get("timeout", 10))},
            task_vars=task_vars or {},
        )
        clock.add_offset(result, before)
        return result
