# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``os_update``: documented in plugins/modules/os_update.py."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import HostAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import update


class ActionModule(HostAction):
    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        state = arguments.get("state")
        if state == "shown":
            return self._show(arguments)
        if state == "proven":
            return self._prove(arguments)
        return super().act(arguments)

    def _show(self, arguments: dict[str, Any]) -> dict[str, Any]:
        hosts = list(self.vars.get("ansible_play_hosts") or [])
        known = self.vars["hostvars"]
        plans = {host: known[host].get(arguments.get("plans") or "") or {} for host in hosts}
        before = {host: (known[host].get(arguments.get("before") or "") or {}).get("status") or {} for host in hosts}
        heads = [host for host in hosts if host in self.vars["groups"].get("ray_head", [])]
        lines = update.lines(plans, heads, before)
        self.tell("\n".join(lines))
        return {"changed": False, "lines": lines}

    def _prove(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "problems": []}
        former = (self.vars.get(arguments.get("before") or "") or {}).get("status") or {}
        now = self.execute("node_info", {"gather": "status"})
        if now.get("failed") or not now.get("status"):
            raise AnsibleActionFail(f"host {self.host}: it cannot be read: {now.get('msg') or 'no answer'}")
        problems = update.worse(self.host, former, now["status"])
        if problems:
            raise AnsibleActionFail(f"host {self.host}: {'; '.join(problems)}")
        return {"changed": False, "problems": []}
