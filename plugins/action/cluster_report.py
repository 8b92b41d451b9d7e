# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_report``: documented in plugins/modules/cluster_report.py."""

from __future__ import annotations

import json
import os
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import ClusterAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results, screen


class ActionModule(ClusterAction):
    ARGUMENTS = {
        "nodes": {"type": "str", "required": True},
        "format": {"type": "str", "choices": ["text", "json", "none", "html"], "default": "text"},
        "path": {"type": "path"},
        "folder": {"type": "path"},
        "doctor": {"type": "path"},
        "runs": {"type": "int", "default": 20},
        "data": {"type": "path"},
        "query": {"type": "str"},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        seen = results.see(self.vars, arguments["nodes"])
        return self._page(arguments, seen) if arguments["format"] == "html" else self._screen(arguments, seen.status)

    def _screen(self, arguments: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        text = screen.render(status)
        result: dict[str, Any] = {"changed": False, "status": status, "text": text}
        if arguments["query"]:
            result["picked"] = results.show_picked(status, arguments["query"], "status_query", self.tell)
        elif arguments["format"] == "json":
            self.tell(json.dumps(status, indent=1))
        elif arguments["format"] == "text":
            self.tell(text)
        if arguments["path"]:
            results.save(arguments["path"], status, "status_output_file")
        if arguments["format"] != "none" and not any(host["reachable"] for host in status["hosts"].values()):
            raise AnsibleActionFail("No host could be read; of each the lines above say why, and the fix.")
        # the screen has been shown; a callback would print the whole document once more
        return {**result, "_ansible_verbose_override": True}

    def _page(self, arguments: dict[str, Any], seen: results.Seen) -> dict[str, Any]:
        # the screen, which people wait for, needs none of these
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import bench, verify
        from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page as _report

        planned: dict[str, Any] = {}
        why = seen.plan_error
        if not why:
            nodes = {host: facts["node"] for host, facts in seen.facts_by_host.items()}
            planned, why = results.serving_plan(self.vars["hostvars"], seen.cluster, nodes, results.told(seen))
        folder = results.results_folder(self.vars, arguments["folder"])
        newest = max(1, arguments["runs"])
        runs = verify.read_history(results.read_all(os.path.join(folder, "verify"), newest))
        runs = results.runs_of_group(runs, seen.cluster)
        doctor = self._doctor(arguments["doctor"] or os.path.join(folder, "doctor.json"), bool(arguments["doctor"]))
        if not arguments["doctor"]:
            doctor = self._newest(doctor, seen.status)
        memory = planned.get("memory")
        benchmarks = bench.history(results.read_all(os.path.join(folder, "bench"), newest))
        benchmarks = results.runs_of_group(benchmarks, seen.cluster)
        page = _report.page(seen.status, runs, doctor, memory, why, benchmarks)
        path = results.save(arguments["path"] or os.path.join(folder, "report.html"), page, "report_path")
        if arguments["data"]:
            data = {"status": seen.status, "runs": runs, "doctor": doctor, "memory": memory, "why": why}
            results.save(arguments["data"], {**data, "benchmarks": benchmarks}, "report_data")
        self.tell(f"the report: {path}")
        return {"changed": False, "path": path}

    @staticmethod
    def _newest(doctor: dict[str, Any] | None, status: dict[str, Any]) -> dict[str, Any] | None:
        """The diagnosis that the controller has, or what the head keeps for its page where that is newer."""
        kept = (status["serving"].get("checks") or {}).get("doctor")
        if not kept or str((doctor or {}).get("time", "")) >= kept["taken"]:
            return doctor
        return {**kept, "time": kept["taken"]}

    @staticmethod
    def _doctor(path: str, wanted: bool) -> dict[str, Any] | None:
        """An absent diagnosis is fine unless it was asked for; a torn one is said."""
        try:
            with open(os.path.expanduser(path), encoding="utf-8") as handle:
                diagnosed = json.load(handle)
        except (OSError, ValueError) as error:
            if wanted or not isinstance(error, OSError):
                raise AnsibleActionFail(f"report_doctor: {path} cannot be read: {error}") from None
            return None
        if not isinstance(diagnosed, dict) or not isinstance(diagnosed.get("findings"), list):
            raise AnsibleActionFail(f"report_doctor: {path} is not a diagnosis of playbooks/doctor.yml")
        return diagnosed
