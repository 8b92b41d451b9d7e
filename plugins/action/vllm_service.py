# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``vllm_service``: with ``state: serving`` many short looks with something to read in between.

One module call that waits for half an hour would show nothing and would not survive a lost connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.waiting import Waiting

POLL = 4.0


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _clock: Callable[[], float] = staticmethod(time.monotonic)
    _sleep: Callable[[float], None] = staticmethod(time.sleep)
    _show: Callable[[str], None] = staticmethod(lambda text: Display().display(text))

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = dict(self._task.args)
        if args.get("state") != "serving":
            result.update(self._ask_host(args, task_vars))
            return result
        return self._wait(result, args, task_vars)

    def _wait(self, result: dict[str, Any], args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        host = task_vars.get("inventory_hostname", "the head")
        first = self._ask_host(args, task_vars)
        if first.get("failed") or self._task.check_mode or (first.get("ready") and not first.get("changed")):
            return self._finish(result, first, 0.0, bool(first.get("changed")))
        waiting = Waiting(host, float(args.get("timeout", 2700)), int(args.get("attempts", 3)), self._clock())
        changed = bool(first.get("changed"))
        found = first
        invocation = ""
        later = {key: value for key, value in args.items() if key != "start"}
        while True:
            line = waiting.say(found, self._clock())
            if line:
                self._show(line)
            verdict = waiting.verdict(found, self._clock())
            if verdict:
                result.update(found, failed=True, changed=changed, msg=verdict)
                return result
            self._sleep(POLL)
            found = self._ask_host({**later, "known_invocation": invocation}, task_vars)
            if found.get("failed"):
                trouble = waiting.unanswered(str(found.get("msg", "")), self._clock())
                if trouble:
                    result.update(found, failed=True, changed=changed, msg=trouble)
                    return result
                found = {"line": f"the head gave no answer: {found.get('msg', '')}"}
                continue
            waiting.answered()
            invocation = found.get("invocation") or invocation
            if found.get("ready"):
                return self._finish(result, found, self._clock() - waiting.started, changed)

    def _ask_host(self, args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        return self._execute_module(module_name="sparkthor.cluster.vllm_service", module_args=args, task_vars=task_vars)

    @staticmethod
    def _finish(result: dict[str, Any], found: dict[str, Any], waited: float, changed: bool) -> dict[str, Any]:
        result.update(found)
        result.update(changed=changed, waited=round(waited, 1))
        for key in ("known_invocation", "failure", "invocation"):
            result.pop(key, None)
        if found.get("deadline_problem"):
            result.update(failed=True, msg=found["deadline_problem"])
        return result
