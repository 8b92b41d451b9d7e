# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``firewall_apply``: choose the trusted peers, start, come back over a new connection, confirm.

The old connection proves nothing: a firewall lets established connections pass.  So it is closed before the change is
confirmed.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import reconnect
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import trusted_sources

#: seconds on top of the rollback's own time until a host that took its change back must answer
GRACE = 30.0
PAUSE = 1.0
MODULE = "sparkthor.cluster.firewall_apply"


class ActionModule(ActionBase):
    """Runs the module once where no table has to be loaded, and twice where one has."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Entry point of the plugin."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        host = str(task_vars.get("inventory_hostname", ""))
        arguments = {key: value for key, value in self._task.args.items() if key not in ("step", "token", "plan")}
        plan = self._task.args.get("plan") or {}
        if plan:
            if host not in plan:
                return {"failed": True, "msg": f"{host}: the plan (sparkthor_fabric) does not know this host"}
            # The whole plan stays here; a host only learns of its own peers.
            arguments["trusted"] = trusted_sources(plan, host)
        token = uuid.uuid4().hex
        self._parent = os.getppid()
        started = self._module({**arguments, "step": "start", "token": token}, task_vars)
        if started.get("failed"):
            started["msg"] = f"{host}: {started.get('msg', '')}"
            return started
        if not started.pop("started", False):
            return started
        return self._confirm(host, {**arguments, "step": "confirm", "token": token}, task_vars, started)

    def _module(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._execute_module(module_name=MODULE, module_args=arguments, task_vars=task_vars)

    def _confirm(
        self, host: str, arguments: dict[str, Any], task_vars: dict[str, Any], started: dict[str, Any]
    ) -> dict[str, Any]:
        timeout = int(arguments.get("rollback_timeout") or 45)
        end = time.monotonic() + timeout + GRACE
        last = ""
        while time.monotonic() < end:
            reconnect.anew(self._connection, self._parent, host, "firewall")
            try:
                answer = self._module(arguments, task_vars)
            except AnsibleConnectionFailure as error:
                answer = {"unreachable": True, "msg": str(error)}
            if not answer.get("unreachable"):
                if answer.get("failed"):
                    reason = answer.get("msg", "")
                    return {"failed": True, "changed": False, "msg": f"{host}: {reason}", "connection": last}
                return {**started, "confirmed": True}
            last = str(answer.get("msg", ""))
            time.sleep(PAUSE)
        return {
            "failed": True,
            "changed": True,
            "msg": f"{host}: not reachable since its firewall was changed, although the host itself takes the change "
            f"back after {timeout} s; look at its console. Last error: {last}",
        }
