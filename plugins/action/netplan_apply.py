# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``netplan_apply``: start the change, come back over a new connection, confirm.

The confirmation is worth something only if it travels the way a person would: the old, multiplexed connection may go
on working for a while over addresses that are already gone, so it is closed first.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

#: seconds on top of the rollback's own time until a host that took its change back must answer
GRACE = 60.0
PAUSE = 1.5
#: seconds between the change and the first confirmation: what breaks a way in (a lease, somebody's own apply) may take
#: a moment to do so, and a confirmation before that would disarm the rollback too early
SETTLE = 5.0


class ActionModule(ActionBase):
    """Runs the module once where nothing has to change, and twice where something does."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Entry point of the plugin."""
        super().run(tmp, task_vars)
        task_vars = task_vars or {}
        host = str(task_vars.get("inventory_hostname", ""))
        arguments = {key: value for key, value in self._task.args.items() if key not in ("step", "token")}
        if arguments.get("state", "present") not in ("present", "absent"):
            return self._named(host, self._module(arguments, task_vars))
        token = uuid.uuid4().hex
        self._parent = os.getppid()
        try:
            result = self._module({**arguments, "step": "start", "token": token}, task_vars)
        except AnsibleConnectionFailure as error:
            if self._task.check_mode:
                raise
            # Lost in the middle: the host may or may not have started.  Only it knows.
            return self._confirm(host, arguments, token, task_vars, {"changed": True}, error)
        if result.get("failed") or not result.pop("started", False):
            return self._named(host, result)
        return self._confirm(host, arguments, token, task_vars, result, None)

    def _module(self, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._execute_module(
            module_name="sparkthor.cluster.netplan_apply", module_args=arguments, task_vars=task_vars
        )

    @staticmethod
    def _named(host: str, result: dict[str, Any]) -> dict[str, Any]:
        if result.get("failed") and host and not str(result.get("msg", "")).startswith(f"{host}: "):
            result["msg"] = f"{host}: {result.get('msg', '')}"
        return result

    def _confirm(
        self,
        host: str,
        arguments: dict[str, Any],
        token: str,
        task_vars: dict[str, Any],
        started: dict[str, Any],
        lost: AnsibleConnectionFailure | None,
    ) -> dict[str, Any]:
        timeout = int(arguments.get("rollback_timeout", 60))
        end = time.monotonic() + timeout + GRACE
        last = str(lost or "")
        answer: dict[str, Any] | None = None
        time.sleep(SETTLE)
        while answer is None and time.monotonic() < end:
            if os.getppid() != self._parent:
                # A killed ansible-playbook leaves its workers running in sessions of their own.  Nobody would see the
                # answer, so nobody is there to confirm to: the host takes the change back.
                raise AnsibleError(f"{host}: the controller process is gone, the network change stays unconfirmed")
            self._reset()
            try:
                answer = self._module({**arguments, "step": "confirm", "token": token}, task_vars)
                if answer.get("unreachable"):
                    last, answer = str(answer.get("msg", "")), None
            except AnsibleConnectionFailure as error:
                last = str(error)
            if answer is None:
                time.sleep(PAUSE)
        if answer is None:
            return {
                "failed": True,
                "changed": True,
                "msg": f"{host}: not reachable since its network was changed, although the host itself takes the change"
                f" back after {timeout} s; look at its console. Last error: {last}",
            }
        outcome = answer.get("rollback") or {}
        status = outcome.get("status")
        if status == "unknown" and lost is not None:
            raise lost
        result = {**started, **{key: value for key, value in answer.items() if key != "invocation"}}
        if status == "confirmed":
            result["changed"] = True
            return result
        # After a rollback the host is as it was; what the play gets is the reason.
        result.update(failed=True, changed=False)
        if status is None:
            result["msg"] = f"{host}: {answer.get('msg', 'the change could not be confirmed')}"
        else:
            word = {"rolled_back": "was taken back by the host"}.get(status, "could not be confirmed")
            result["msg"] = f"{host}: the network change {word}: {outcome.get('reason', '')}" + (
                f" (connection meanwhile: {last})" if last else ""
            )
        return result

    def _reset(self) -> None:
        try:
            self._connection.reset()
        except (AttributeError, NotImplementedError, AnsibleError):
            self._connection.close()
