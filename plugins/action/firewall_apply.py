# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``firewall_apply``: render the files, start, come back over a new connection, confirm.

The old connection proves nothing: a firewall lets established connections pass.  So it is closed before the change is
confirmed.
"""

from __future__ import annotations

import os
import uuid
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import reconnect
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.declaring import DeclaringAction

#: seconds on top of the rollback's own time until a host that took its change back must answer
GRACE = 30.0
PAUSE = 1.0


class ActionModule(DeclaringAction):
    """Runs the module once where no table has to be loaded, and twice where one has."""

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        host = self.host
        state = arguments.get("state", "present")
        declared = {key: value for key, value in self.declared(arguments).items() if key not in ("step", "token")}
        arguments = {**declared, "state": state}
        # that whole folders go is not among what the module does
        arguments.pop("absent", None)
        token = uuid.uuid4().hex
        self._parent = os.getppid()
        started = self.execute("firewall_apply", {**arguments, "step": "start", "token": token})
        if started.get("failed"):
            started["msg"] = f"{host}: {started.get('msg', '')}"
            return started
        if not started.pop("started", False):
            return started
        return self._confirm({**arguments, "step": "confirm", "token": token}, started)

    def _confirm(self, arguments: dict[str, Any], started: dict[str, Any]) -> dict[str, Any]:
        host = self.host
        timeout = int(arguments.get("rollback_timeout") or 45)
        answer, last = reconnect.ask(
            *(self._connection, self._parent, host, "firewall"),
            lambda: self.execute("firewall_apply", arguments),
            timeout + GRACE,
            PAUSE,
        )
        if answer and answer.get("failed"):
            return {"failed": True, "changed": False, "msg": f"{host}: {answer.get('msg', '')}", "connection": last}
        if answer is not None:
            return {**started, "confirmed": True}
        return {
            "failed": True,
            "changed": True,
            "msg": f"{host}: not reachable since its firewall was changed, although the host itself takes the change "
            f"back after {timeout} s; look at its console. Last error: {last}",
        }
