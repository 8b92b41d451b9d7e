# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``netplan_apply``: start the change, come back over a new connection, confirm.

The confirmation is worth something only if it travels the way a person would: the old, multiplexed connection may go
on working for a while over addresses that are already gone, so it is closed first.

With ``confirm: false`` the change is proven in the same way and stays armed.  A second task (``outcomes``) then reads
the results of all hosts and keeps the change everywhere or nowhere.  If that task never runs - somebody pressed Ctrl-C,
another host ended the play - every host rolls its change back by itself.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import reconnect
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action

#: seconds on top of the rollback's own time until a host that took its change back must answer
GRACE = 60.0
PAUSE = 1.5
#: seconds between the change and the first confirmation: what breaks a way in (a lease, somebody's own apply) may take
#: a moment to do so, and a confirmation before that would disarm the rollback too early
SETTLE = 5.0
#: seconds that one round of hosts takes; with fewer forks than hosts the first ones wait armed for the last
ROUND = 20
LONGEST = 600
_OWN = ("step", "token", "reason", "outcomes")


class ActionModule(Action):
    """Runs the module once where nothing has to change, and twice where something does."""

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        task_vars, host = self.vars, self.host
        arguments = {key: value for key, value in arguments.items() if key not in _OWN}
        self._parent = os.getppid()
        state = arguments.get("state", "present")
        if self._task.args.get("outcomes"):
            return self._all_or_none(host, arguments, task_vars)
        if state not in ("present", "absent"):
            return self._named(host, self._module(arguments, task_vars))
        alone = state == "absent" or boolean(arguments.get("confirm", True), strict=False)
        arguments["confirm"] = alone
        if not alone and not self._task.check_mode:
            arguments["rollback_timeout"] = self._patience(arguments, task_vars)
        token = uuid.uuid4().hex
        try:
            result = self._start(host, arguments, token, task_vars, "confirm" if alone else "check")
        except AnsibleConnectionFailure as error:
            if alone or self._task.check_mode:
                raise
            result = {"failed": True, "changed": False, "msg": f"{host}: not reachable: {error}"}
        return result if alone or self._task.check_mode else self._outcome(result, token)

    @staticmethod
    def _patience(arguments: Mapping[str, Any], task_vars: Mapping[str, Any]) -> int:
        """Seconds that a host stays armed: it waits until all hosts have been proven, round by round."""
        hosts = len(task_vars.get("ansible_play_hosts") or [1])
        rounds = -(-hosts // max(1, int(task_vars.get("ansible_forks") or 5)))
        return min(LONGEST, int(arguments.get("rollback_timeout", 60)) + (rounds - 1) * ROUND)

    @staticmethod
    def _outcome(result: dict[str, Any], token: str) -> dict[str, Any]:
        """What the second task needs to know; a failure is its business, so that it runs on every host."""
        if result.get("failed") or result.get("unreachable"):
            return {**result, "failed": False, "unreachable": False, "changed": False, "held": False}
        if result.get("deferred") or (result.get("rollback") or {}).get("status") == "held":
            return {**result, "held": True, "token": token}
        return result

    def _start(
        self, host: str, arguments: dict[str, Any], token: str, task_vars: dict[str, Any], then: str
    ) -> dict[str, Any]:
        try:
            result = self._module({**arguments, "step": "start", "token": token}, task_vars)
        except AnsibleConnectionFailure as error:
            if self._task.check_mode:
                raise
            # Lost in the middle: the host may or may not have started.  Only it knows.
            return self._confirm(host, {**arguments, "step": then, "token": token}, task_vars, {"changed": True}, error)
        if result.get("failed") or not result.pop("started", False):
            return self._named(host, result)
        return self._confirm(host, {**arguments, "step": then, "token": token}, task_vars, result, None)

    def _all_or_none(self, host: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        name = str(self._task.args["outcomes"])
        if self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": "in check mode nothing is armed"}
        outcomes = {
            one: task_vars["hostvars"][one].get(name) for one in task_vars.get("ansible_play_hosts_all") or [host]
        }
        outcome = outcomes.get(host) or {}
        bad = {one: reason for one, result in outcomes.items() if (reason := self._problem(one, result))}
        if not outcome.get("held"):
            return {"failed": True, "changed": False, "msg": bad.get(host) or f"{host}: there is nothing to confirm"}
        arguments["confirm"] = True
        token = outcome["token"]
        if not bad:
            if outcome.get("deferred"):
                result = self._start(host, arguments, token, task_vars, "confirm")
            else:
                result = self._confirm(
                    host, {**arguments, "step": "confirm", "token": token}, task_vars, {}, None, settle=0
                )
            if result.get("failed"):
                result["msg"] += "; hosts that were confirmed at the same moment keep theirs, so run this again"
            # The first task has said that the host changes; said twice it would count twice.
            return {**result, "changed": False}
        because = "; ".join(bad.values())
        if outcome.get("deferred"):
            return {"failed": True, "changed": False, "msg": f"{host}: nothing was changed, because {because}"}
        taken = {**arguments, "step": "take_back", "token": token, "reason": f"another host failed: {because}"}
        result = self._confirm(host, taken, task_vars, {}, None, settle=0)
        result["msg"] = f"{host}: its network change was rolled back as well, because {because}"
        if (result.get("rollback") or {}).get("status") != "rolled_back":
            result["msg"] = f"{host}: its network change is rolled back when its time is up, because {because}"
        return {**result, "failed": True, "changed": False}

    @staticmethod
    def _problem(host: str, outcome: Mapping[str, Any] | None) -> str:
        if outcome is None:
            return f"{host} took no part in the change"
        if outcome.get("failed") or outcome.get("unreachable") or outcome.get("held") is False:
            return str(outcome.get("msg") or f"{host} failed")
        return ""

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
        task_vars: dict[str, Any],
        started: dict[str, Any],
        lost: AnsibleConnectionFailure | None,
        settle: float = SETTLE,
    ) -> dict[str, Any]:
        timeout = int(arguments.get("rollback_timeout", 60))
        time.sleep(settle)
        answer, last = reconnect.ask(
            *(self._connection, self._parent, host, "network"),
            lambda: self._module(arguments, task_vars),
            timeout + GRACE - settle,
            PAUSE,
        )
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
        if status in ("confirmed", "held"):
            result["changed"] = True
            return result
        # After a rollback the host is as it was; what the play gets is the reason.
        result.update(failed=True, changed=False)
        if status is None:
            result["msg"] = f"{host}: {answer.get('msg', 'the change could not be confirmed')}"
        else:
            word = {"rolled_back": "was rolled back by the host"}.get(status, "could not be confirmed")
            result["msg"] = f"{host}: the network change {word}: {outcome.get('reason', '')}" + (
                f" (connection meanwhile: {last})" if last else ""
            )
        return result
