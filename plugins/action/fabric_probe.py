# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``fabric_probe``: tells each host which of its peers' ports were up before anybody looked."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import ports


class ActionModule(ActionBase):
    """Adds ``peer_up`` to the links and runs the module."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Entry point of the plugin."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        links = ports.with_peers(self._task.args.get("links") or [], task_vars.get("hostvars") or {})
        return self._execute_module(
            module_name="sparkthor.cluster.fabric_probe",
            module_args={**self._task.args, "links": links},
            task_vars=task_vars,
        )
