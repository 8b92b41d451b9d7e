# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps what each run changed beside its lab, so that a test can hold check mode to its word."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: record_changes
type: aggregate
short_description: Write what each task changed to a file
description:
  - One JSON file a run in the folder that SPARKTHOR_RECORDS names; nothing where it is not set.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record_changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._began = time.time()
        self._tasks: list[dict[str, Any]] = []
        self._playbook = ""

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = Path(playbook._file_name).name

    def _note(self, result: Any, outcome: str) -> None:
        answer = result.result if hasattr(result, "result") else result._result
        host = result.host if hasattr(result, "host") else result._host
        task = result.task if hasattr(result, "task") else result._task
        diffs = answer.get("diff") or []
        self._tasks.append(
            {
                "host": host.get_name(),
                "task": task.get_name(),
                "outcome": outcome,
                "changed": bool(answer.get("changed", False)),
                "paths": sorted(answer.get("changed_paths") or []),
                "files": sorted(
                    {
                        str(part["after_header"])
                        for part in (diffs if isinstance(diffs, list) else [diffs])
                        if isinstance(part, dict) and part.get("after_header")
                    }
                ),
                "msg": str(answer.get("msg", "")),
            }
        )

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note(result, "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._note(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._note(result, "unreachable")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._note(result, "skipped")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        folder = os.environ.get("SPARKTHOR_RECORDS")
        if not folder or not Path(folder).parent.is_dir():
            return
        check = bool(context.CLIARGS.get("check"))
        record = {
            "playbook": self._playbook,
            "check": check,
            "seconds": round(time.time() - self._began, 1),
            "changed": {host: stats.summarize(host)["changed"] for host in stats.processed},
            "failed": {host: stats.summarize(host)["failures"] for host in stats.processed},
            "tasks": self._tasks,
        }
        Path(folder).mkdir(mode=0o700, exist_ok=True)
        name = f"{self._began:.3f}-{'check' if check else 'run'}.json"
        (Path(folder) / name).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
