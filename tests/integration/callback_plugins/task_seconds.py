# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prints how long each task took over all hosts, for tests that hold a task to a time."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: task_seconds
type: aggregate
short_description: Print the seconds of each task
description:
  - A line a task, from its start to the start of the next one.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "task_seconds"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._name = ""
        self._began = 0.0

    def _close(self) -> None:
        if self._name:
            self._display.display(f"task-seconds {time.monotonic() - self._began:.2f} {self._name}")

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._close()
        self._name, self._began = task.get_name(), time.monotonic()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._close()
        self._name = ""
