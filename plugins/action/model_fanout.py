# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``model_fanout``: who sends what to whom, and how far the copy is."""

from __future__ import annotations

import json
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout_job
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.progress_line import terminal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.model_action import ModelAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes

display = Display()


class ActionModule(ModelAction):
    # the fabric plan of a big cluster above all
    CONTROLLER_ONLY = ("results", "fetch", "run", "fabric", "head", "shape", "streams", "port", "seconds", "step")

    def step(self) -> dict[str, Any]:
        """A step of the copy, each on all hosts."""
        steps = {"seed": self._seed, "start": self._start, "watch": self._watch, "finish": self._finish}
        name = str(self._task.args.get("step"))
        if name not in steps:
            raise AnsibleActionFail(f"step: {name!r} is not one of {', '.join(steps)}")
        return steps[name]()

    def _host(self, step: str, job: dict[str, Any], **more: Any) -> dict[str, Any]:
        return self.execute("model_fanout", {**self._args, "step": step, "job": json.dumps(job), **more})

    def _plan(self) -> fanout.FanoutPlan:
        # hosts of another serving group have other models
        together = (self.vars.get("sparkthor_cluster") or {}).get("hosts")
        hosts = [str(host) for host in self.vars["ansible_play_hosts"] if together is None or host in together]
        plan = fanout.plan(
            self.vars["hostvars"],
            hosts,
            self._results,
            str(self._task.args.get("head") or ""),
        )
        if len(plan.order) < len(hosts):
            try:
                self._routes(plan)
            except fanout_routes.RouteError:
                # a host without a part in it lies in between: whoever asked brings the rest by other means
                return plan._replace(order=[plan.seed])
        return plan

    def _routes(self, plan: fanout.FanoutPlan) -> dict[str, fanout_routes.Route]:
        fabric = self._task.args.get("fabric") or {}
        return fanout_routes.routes(fabric, plan.order, str(self._task.args.get("shape", "chain")))

    def _seed(self) -> dict[str, Any]:
        """The host that lacks least gets what no other can give it, and the run gets its name and its key."""
        plan = self._plan()
        outcome: dict[str, Any] = {"changed": False, "seed": plan.seed}
        if plan.seed != self.host:
            return outcome
        folders, _pending = self._declare()
        if plan.need[self.host]:
            sent = self._send(folders, {"need": plan.need[self.host]}, "fabric")
            # what decides over the other hosts is the controller's, and never what this one answers
            outcome |= {key: value for key, value in sent.items() if key not in ("seed", "run", "parts")}
        outcome["run"] = fanout.new_run()
        absent = fanout.absent(folders.values(), plan.wanted)
        if absent and any(plan.need[host] for host in plan.order[1:]):
            size = self._part_size(plan)
            told = self._host("parts", {"wanted": absent, "size": size})
            if told.get("failed"):
                raise AnsibleActionFail(f"host {self.host}: {told.get('msg', told)}")
            wanted = [item for item in plan.wanted if item["sha256"] in absent]
            outcome["parts"] = fanout.told_parts(told.get("parts"), wanted, size)
        return outcome

    @staticmethod
    def _part_size(plan: fanout.FanoutPlan) -> int:
        return fanout_routes.part_size(sum(item["size"] for item in plan.wanted))

    def _run_of(self, seed: str) -> dict[str, Any]:
        variable = str(self._task.args.get("run", "__model_store_run"))
        return self.vars["hostvars"][seed].get(variable) or {}

    def _run_name(self, seed: str) -> str:
        return str(self._run_of(seed)["run"])

    def _start(self) -> dict[str, Any]:
        plan = self._plan()
        fabric = self._task.args.get("fabric") or {}
        if self.host not in plan.order or not any(plan.need[host] for host in plan.order[1:]):
            return {"changed": False}
        route = self._routes(plan)[self.host]
        folders, _pending = self._declare()
        size = self._part_size(plan)
        run = self._run_name(plan.seed)
        job = {
            "run": run,
            "node": self.host,
            "hosts": plan.order,
            "told_by": plan.seed if self._run_of(plan.seed).get("parts") else "",
            "port": int(self._task.args.get("port", 29870)),
            "streams": int(self._task.args.get("streams", 2)),
            "patience": int(self._task.args.get("patience", 60)),
            "seconds": int(self._task.args.get("seconds", 0)),
            "part_size": size,
            "contents": fanout.contents(folders.values(), plan.wanted, size, self._run_of(plan.seed).get("parts")),
            "listen": fanout_routes.addresses(fabric[self.host]["links"]),
            "peers": [address for host in plan.order for address in fanout_routes.addresses(fabric[host]["links"])],
            "upstreams": route.upstreams,
            "behind": route.behind,
        }
        return self._host("start", job, key=fanout.key(run))

    def _watch(self) -> dict[str, Any]:
        plan = self._plan()
        hosts = [host for host in plan.order[1:] if plan.need[host]]
        if not hosts:
            return {"changed": False}
        run = self._run_name(plan.seed)
        board = fanout.Board(hosts, terminal(), self._say)
        # as the seed knows it: every host tells the one before it
        nodes = fanout.follow(board, lambda: self._status(run))
        fanout.forget(run)
        seed = nodes.get(plan.seed) or {}
        if seed.get("state") == "failed":
            # no step after this one tidies up there
            self._low_level_execute_command(f"systemctl reset-failed {fanout_job.UNIT}")
            # the others would say no more than that it does not answer, and only when their patience is at its end
            raise AnsibleActionFail(
                f"host {plan.seed}: {seed.get('error')}. Nothing was passed on: fix it and run again"
            )
        return {"changed": False, "nodes": nodes}

    @staticmethod
    def _say(text: str, newline: bool = True) -> None:
        # what the board draws with; its texts have gone through the filter
        display.display(text, newline=newline)

    def _status(self, run: str) -> tuple[dict[str, Any], bool]:
        """The hosts' reports, and whether the seed's program still runs."""
        shown = self._low_level_execute_command(f"cat {fanout_job.STATUS}; echo; systemctl is-active {fanout_job.UNIT}")
        text, _newline, state = shown["stdout"].strip().rpartition("\n")
        return fanout.read_status(text, run), state.strip() == "active"

    def _finish(self) -> dict[str, Any]:
        plan = self._plan()
        first = self.vars["hostvars"][self.host][self._results]
        if self.host not in plan.order[1:] or not plan.need[self.host]:
            return {"changed": False, "models": first.get("models"), "unlisted": first.get("unlisted")}
        self._declare()
        outcome = self._host("finish", {"run": self._run_name(plan.seed)})
        if outcome.get("failed"):
            outcome["msg"] = f"host {self.host}: {outcome.get('msg', outcome)}"
        elif "diff" in first:
            outcome["diff"] = first["diff"]
        return outcome
