# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``vllm_service``: with ``state: serving`` it asks until vLLM is ready, and shows progress.

One module call that waits for half an hour would show nothing and would not survive a lost connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ansible.utils.display import Display
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import places
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.progress_line import (
    MARK,
    ProgressLine,
    terminal,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.waiting import SPEAK_EVERY, Waiting, elapsed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs

POLL = 4.0


class ActionModule(Action):
    _clock: Callable[[], float] = staticmethod(time.monotonic)
    _sleep: Callable[[float], None] = staticmethod(time.sleep)
    _show: Callable[..., None] = staticmethod(Display().display)
    _terminal: Callable[[], bool] = staticmethod(terminal)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        if arguments.get("state") == "told":
            return self._tell(arguments)
        first = self.execute("vllm_service", arguments)
        if arguments.get("state") != "serving":
            return first
        if first.get("failed") or self._task.check_mode or (first.get("ready") and not first.get("changed")):
            return self._finish(first, 0.0, bool(first.get("changed")))
        group = str(arguments.get("group") or "")
        waiting = Waiting(
            (self.host or "the head") + (f" ({group})" if group else ""),
            float(arguments.get("timeout", role_specs.defaults()["vllm_serve_ready_timeout"])),
            int(arguments.get("attempts", 3)),
            self._clock(),
            places.Places(group).unit,
        )
        self._line = ProgressLine(self._terminal(), self._show, Display().columns, sparse=0.0)
        try:
            return self._wait(arguments, first, waiting)
        finally:
            self._line.end()

    def _tell(self, arguments: dict[str, Any]) -> dict[str, Any]:
        found = self.read("vllm_service", arguments)
        if "away" not in found:
            return found
        if not found["away"]:
            return {**found, "failed": True}
        why = "its door does not know what is served again: run site.yml when it is back"
        return {**found, "warnings": [f"{self._task.delegate_to} is away, and {why}"]}

    def _wait(self, arguments: dict[str, Any], first: dict[str, Any], waiting: Waiting) -> dict[str, Any]:
        changed = bool(first.get("changed"))
        found = first
        invocation = ""
        later = {key: value for key, value in arguments.items() if key != "start"}
        while True:
            line = waiting.say(found, self._clock(), every=0.0 if self._line.in_place else SPEAK_EVERY)
            if line:
                self._line.tell(line)
            verdict = waiting.verdict(found, self._clock())
            if verdict:
                return {**found, "failed": True, "changed": changed, "msg": verdict}
            self._sleep(POLL)
            found = self.execute("vllm_service", {**later, "known_invocation": invocation})
            if found.get("failed"):
                problem = waiting.unanswered(str(found.get("msg", "")), self._clock())
                if problem:
                    return {**found, "failed": True, "changed": changed, "msg": problem}
                found = {"line": f"the head gave no answer: {found.get('msg', '')}"}
                continue
            waiting.answered()
            invocation = found.get("invocation") or invocation
            if found.get("ready"):
                seconds = self._clock() - waiting.started
                took = printable(str(found.get("loaded") or ""))
                self._line.end(
                    f"{waiting.host}: serves after {elapsed(seconds)}" + (f"; loaded in {took}" if took else "")
                )
                return self._finish(found, seconds, changed)

    def _finish(self, found: dict[str, Any], waited: float, changed: bool) -> dict[str, Any]:
        result = {**found, "changed": changed, "waited": round(waited, 1)}
        problem = result.pop("answers_problem", "")
        if problem:
            result["warnings"] = [f"{self.host}: {problem}"]
        for key in ("known_invocation", "failure", "invocation"):
            result.pop(key, None)
        if found.get("deadline_problem"):
            result.update(failed=True, msg=found["deadline_problem"])
        if result.get("certificate"):
            self._show(printable(f"{MARK}certificate of the API, made on {self.host}: SHA-256 {result['certificate']}"))
        return result
