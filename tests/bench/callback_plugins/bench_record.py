# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run did, task by task: the benchmark counts module tasks and finds the slow ones with it."""

from __future__ import annotations

import json
import os
import time

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: bench_record
type: aggregate
short_description: Write each task's hosts, outcome and wall time as JSON
description:
  - The path is taken from the environment variable E(SPARKTHOR_BENCH_RECORD); without it nothing is written.
requirements: [enabled in configuration]
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "bench_record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._path = os.environ.get("SPARKTHOR_BENCH_RECORD", "")
        self._begun = time.monotonic()
        self._tasks: list[dict[str, object]] = []

    def v2_playbook_on_task_start(self, task, is_conditional) -> None:
        self._tasks.append(
            {
                "name": task.get_name(),
                "action": task.resolved_action or task.action,
                "start": time.monotonic() - self._begun,
                "hosts": {},
            }
        )

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def _end(self, result, outcome: str) -> None:
        if self._tasks:
            changed = bool(result._result.get("changed"))
            self._tasks[-1]["hosts"][result._host.get_name()] = [
                "changed" if outcome == "ok" and changed else outcome,
                round(time.monotonic() - self._begun, 3),
            ]

    def v2_runner_on_ok(self, result) -> None:
        self._end(result, "ok")

    def v2_runner_on_skipped(self, result) -> None:
        self._end(result, "skipped")

    def v2_runner_on_failed(self, result, ignore_errors=False) -> None:
        self._end(result, "failed")

    def v2_runner_on_unreachable(self, result) -> None:
        self._end(result, "unreachable")

    def v2_playbook_on_stats(self, stats) -> None:
        if self._path:
            with open(self._path, "w", encoding="utf-8") as handle:
                found = {"begun": self._begun, "tasks": self._tasks, "seconds": time.monotonic() - self._begun}
                json.dump(found, handle)
