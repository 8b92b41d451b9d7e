# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``cluster_verify``: documented in plugins/modules/cluster_verify.py."""

from __future__ import annotations

import datetime
import os
import secrets
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure.arguments import ARGUMENTS, MEASURING
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import burn, measurements, switches, verify
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import results as _results


class ActionModule(Action):
    ARGUMENTS = ARGUMENTS
    ERRORS = (verify.VerifyError,)

    def explain(self, error: Exception) -> str:
        return str(error)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        given, task_vars = arguments, self.vars
        if given["stage"] in MEASURING:
            return self._measure(given)
        if not given["nodes"]:
            raise AnsibleActionFail("nodes: name the variable in which each host's status was registered")
        if not self._task.run_once:
            raise AnsibleActionFail(f"the stage {given['stage']} is for all hosts together: add run_once: true")
        seen = _results.see(task_vars, given["nodes"])
        verify.thresholds(["spark"], given["thresholds"])
        if seen.plan_error:
            raise AnsibleActionFail(f"verify needs a plan: {seen.plan_error}")
        if given["stage"] == "plan":
            wanted = burn.BURN in given["parts"] and (given["named"] or burn.idle(seen.facts_by_host))
            plan = self._plan(seen.cluster, seen.fabric, seen.facts_by_host)
            return {"changed": False, "plan": {**plan, "burn": wanted}}
        document = self._verdict(given, seen)
        folder = os.path.join(_results.results_folder(task_vars, given["folder"]), "verify")
        earlier = verify.read_history(_results.read_all(folder, 50))
        verify.with_history(document["lines"], _results.runs_of_group(earlier, seen.cluster))
        path = os.path.join(folder, document["taken"].replace("-", "").replace(":", "") + ".json")
        _results.save(path, document, "verify_folder")
        picked = {}
        if given["query"]:
            picked["picked"] = _results.show_picked(document, given["query"], "verify_query", self.tell)
        else:
            self.tell(verify.text(document))
        self.tell(f"kept in {path}")
        failed = [entry for entry in document["lines"] if entry["verdict"] == verify.FAIL]
        result = {"changed": False, "verify": document, "path": path, **picked, "_ansible_verbose_override": True}
        if failed:
            told = "; ".join(f"{entry['check']}, {entry['where']}" for entry in failed[:6])
            more = f" and {len(failed) - 6} more" if len(failed) > 6 else ""
            result.update(failed=True, msg=f"below what is needed: {told}{more}", _ansible_verbose_override=False)
            result.pop("verify")
        return result

    def _measure(self, given: dict[str, Any]) -> dict[str, Any]:
        """On the host, with its part of the plan."""
        plan = given["plan"]
        if plan:
            plan = {
                **{name: plan[name] for name in ("nonce", "port", "world", "master")},
                **{name: plan[name].get(self.host) or [] for name in ("addresses", "tests")},
                "rank": plan["ranks"][self.host],
                "python": plan["python"].get(self.host) or [],
                "container": self.host in plan["in_container"],
            }
        elif given["stage"] != "serving":
            raise AnsibleActionFail(f"plan: the stage {given['stage']} needs what the stage plan returned")
        return self.execute("cluster_verify", {**self._task.args, "plan": plan})

    @staticmethod
    def _plan(cluster: dict[str, Any], fabric: dict[str, Any], facts_by_host: dict[str, Any]) -> dict[str, Any]:
        hosts = [host for host in cluster["hosts"] if host in facts_by_host]
        rdma = {
            host: {link["netdev"]: link for link in facts["rdma"]["links"]} for host, facts in facts_by_host.items()
        }
        return {
            **measurements.collective_plan(cluster["hosts"], facts_by_host),
            "reached": hosts,
            "all_reached": len(hosts) == len(cluster["hosts"]),
            "nonce": secrets.token_hex(16),
            # an agent of an earlier run may still be there for a minute; ten ports are one run's
            "port": 29600 + 10 * secrets.randbelow(100),
            "tests": measurements.link_tests(fabric, hosts, rdma),
            "addresses": {
                host: [link["address"].partition("/")[0] for link in fabric[host]["links"]] for host in hosts
            },
            "ranks": {host: index for index, host in enumerate(cluster["hosts"])},
            "world": len(cluster["hosts"]),
            "master": cluster["head_address"],
            "head": cluster["head"],
            # of a group beside the head's own one the name, by which its API is measured
            "group": cluster["group"] if "given" in cluster else "",
            "serves": cluster["head"] in facts_by_host
            and bool(_results.served(facts_by_host[cluster["head"]], cluster).get("model")),
        }

    def _found(self, host: str, name: str | None) -> Any:
        """What a host measured, an error, or None where it did not; a part that is not measured has no name."""
        outcome = (self.vars["hostvars"][host].get(name) if name else None) or {}
        if outcome.get("skipped"):
            return None
        if "found" not in outcome and outcome.get("msg"):
            return {"error": str(outcome.get("msg"))[:300]}
        return outcome.get("found")

    def _verdict(self, given: dict[str, Any], seen: _results.Seen) -> dict[str, Any]:
        status, facts, cluster, fabric, _plan_error = seen
        given_thresholds, parts, plan = given["thresholds"], given["parts"], given["plan"]
        everything, found = self.vars["hostvars"], self._found
        hosts = cluster["hosts"]
        limits = verify.cluster_limits(cluster, fabric, given_thresholds)
        lines = verify.host_lines(status)
        tests = [test for host in plan["reached"] for test in plan["tests"][host]]
        suspects = []
        if "links" in parts:
            measured = {host: found(host, given["links"]) or {} for host in plan["reached"]}
            results = measurements.found_by_test(plan["tests"], measured)
            speeds = {
                host: {link["netdev"]: link["rate_gbits"] for link in status["hosts"][host]["links"]}
                for host in plan["reached"]
            }
            lines += verify.link_lines(tests, results, cluster, given_thresholds, speeds, fabric)
            suspects = verify.shared_ports(lines, tests)
            lines += switches.between_lines(lines, tests) if cluster["topology"] in ("switch", "lan") else []
        if "collective" in parts:
            not_run = verify.collective_not_run(hosts, plan)
            if not_run:
                lines.append(not_run)
            else:
                results = {host: found(host, given["collective"]) or {"error": "no result"} for host in hosts}
                lines += verify.collective_lines(
                    results, hosts, cluster["topology"], cluster["profile"], fabric, limits
                )
        if plan.get("burn"):
            answers = {host: found(host, given["burn"]) for host in hosts if host in plan["reached"]}
            lines += burn.burn_lines(answers, {host: facts[host]["node"] for host in answers})
        if "ray" in parts:
            lines += verify.ray_lines(status, {host: fabric[host] for host in hosts})
        if "serving" in parts:
            bound, why = _results.decode_bound(everything, cluster, {host: one["node"] for host, one in facts.items()})
            answer = found(cluster["head"], given["serving"]) if cluster["head"] in plan["reached"] else None
            if answer is None and cluster["head"] in plan["reached"]:
                answer = {"error": "nothing is set up to be served (run site.yml)"}
            lines += verify.serving_lines(answer, bound, why, limits)
        return {
            "version": verify.VERSION,
            "taken": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "cluster": status["cluster"],
            "group": _results.group_of(cluster),
            "parts": [part for part in parts if part != burn.BURN or plan.get("burn")],
            "ok": all(entry["verdict"] not in (verify.FAIL, verify.UNPROVEN) for entry in lines),
            "lines": lines,
            "suspects": suspects,
            "sweep": (found(cluster["head"], given["collective"]) or {}).get("rows", []),
        }
