# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_report``: documented in plugins/modules/cluster_report.py."""

from __future__ import annotations

import json
import os

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page as _report
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results, verify


class ActionModule(ActionBase):
    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("looks", "path", "folder", "doctor", "runs", "data"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        _validated, given = self.validate_argument_spec(
            argument_spec={
                "looks": {"type": "str", "default": "__look"},
                "path": {"type": "path"},
                "folder": {"type": "path"},
                "doctor": {"type": "path"},
                "runs": {"type": "int", "default": 20},
                "data": {"type": "path"},
            }
        )
        task_vars = task_vars or {}
        seen = results.see(task_vars, given["looks"])
        planned, why = {}, seen.plan_error
        if not seen.plan_error:
            nodes = {host: look["node"] for host, look in seen.looks.items()}
            planned, why = results.serving_plan(task_vars["hostvars"], seen.cluster, nodes)
        folder = results.results_folder(task_vars, given["folder"])
        runs = verify.read_history(results.read_all(os.path.join(folder, "verify"), max(1, given["runs"])))
        doctor = self._doctor(given["doctor"] or os.path.join(folder, "doctor.json"), bool(given["doctor"]))
        memory = planned.get("memory")
        page = _report.page(seen.status, runs, doctor, memory, why)
        path = results.save(given["path"] or os.path.join(folder, "report.html"), page, "report_path")
        if given["data"]:
            data = {"status": seen.status, "runs": runs, "doctor": doctor, "memory": memory, "why": why}
            results.save(given["data"], data, "report_data")
        self._display.display(f"the report: {path}")
        result.update(changed=False, path=path)
        return result

    @staticmethod
    def _doctor(path: str, wanted: bool):
        """An absent diagnosis is fine unless it was asked for; a torn one is said."""
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as handle:
                found = json.load(handle)
        except (OSError, ValueError) as error:
            if wanted or not isinstance(error, OSError):
                raise AnsibleActionFail(f"report_doctor: {path} cannot be read: {error}") from error
            return None
        if not isinstance(found, dict) or not isinstance(found.get("findings"), list):
            raise AnsibleActionFail(f"report_doctor: {path} is not a diagnosis of playbooks/doctor.yml")
        return found
