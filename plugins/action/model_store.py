# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``model_store``: documented in plugins/modules/model_store.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.utils.display import Display
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout_job
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout, models, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.record import Record
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fanout_routes

#: what the host's side has no use for; the fabric plan of a big cluster above all
CONTROLLER_ONLY = ("results", "run", "fabric", "head", "shape", "streams", "port")
display = Display()


class ActionModule(push.StoreAction):
    MODULE = "model_store"
    # which host and which run of the fan-out the next steps speak to, and what the plan is combined with
    OWN = frozenset(("nodes", "revisions", "run", "seed", "sent_bytes", "wheels"))
    ERRORS = (fanout_routes.RouteError, fanout.RunError, StoreError)

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        self._args = {key: value for key, value in arguments.items() if key not in CONTROLLER_ONLY}
        self._given: list[Any] = self._args.get("models") or []
        stage = str(arguments.get("stage", "apply"))
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "apply": self._apply,
            "check": self._check,
            "seed": self._seed,
            "start": self._start,
            "watch": self._watch,
            "finish": self._finish,
            "switch": self._switch,
            "list": self._list,
        }
        if stage not in steps:
            raise AnsibleActionFail(f"stage: {stage!r} is not one of {', '.join(steps)}")
        return steps[stage]()

    def _apply(self) -> dict[str, Any]:
        folders, pending = self._declare()
        outcome = self._inspect(pending, folders)
        if outcome.get("need") and not outcome.get("failed"):
            outcome = self._send(folders, outcome)
        return self._with_pending(outcome, pending)

    def _declare(self) -> tuple[dict[str, Any], list[str]]:
        """Complete the models by what their sources hold; those that check mode must not fetch are named."""
        given, record = self._given, Record(self.vars.get("inventory_dir"))
        # hosts may have the large files: what none has is fetched when it is sent
        declared = self._read(models.with_recorded(given, record), outlines=True)
        if not self._task.check_mode:
            models.keep_commits(given, declared, record)
        self._args["models"] = declared.models
        self._revisions = models.revisions(declared)
        return declared.folders, declared.pending

    def _fetch(self, folders: dict[str, Any], need: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Download what is to be sent and is not on the controller yet."""
        if not fanout.absent(folders.values(), need):
            return folders
        # the very commit that the hosts were compared with
        given = [
            {**item, "revision": model["commit"]} if model["commit"] else item
            for item, model in zip(self._given, self._args["models"], strict=True)
        ]
        return self._read(given, outlines=False).folders

    def _read(self, given: Sequence[Any], outlines: bool) -> models.Declared:
        return models.declare(
            given, not self._task.check_mode, lambda line: self._say(f"sparkthor: {line}"), outlines=outlines
        )

    def _inspect(self, pending: list[str], folders: dict[str, Any]) -> dict[str, Any]:
        if pending and not self._args["models"]:
            return {"changed": False, "models": {}, "unlisted": []}
        outcome = self._module(self._args)
        if outcome.get("need"):
            outcome["need"] = fanout.asked(
                outcome["need"], [entry for _folder, entries in folders.values() for entry in entries]
            )
        if taken := outcome.get("from_caches"):
            self._say(
                f"sparkthor: {self.host}: models: {human(taken['bytes'])} from {', '.join(taken['caches'])} there"
            )
        return outcome

    @staticmethod
    def _with_pending(outcome: dict[str, Any], pending: list[str]) -> dict[str, Any]:
        if pending and not outcome.get("failed"):
            outcome["changed"] = True
            outcome["msg"] = "would be fetched by the controller first: " + ", ".join(pending)
        return outcome

    def _send(self, folders: dict[str, Any], outcome: dict[str, Any], stage: str = "apply") -> dict[str, Any]:
        entries_of: dict[str, Any] = {}
        for folder, entries in self._fetch(folders, outcome["need"]).values():
            for entry in entries:
                entries_of.setdefault(entry.sha256, (folder, entry))
        wanted = []
        for item in outcome["need"]:
            folder, entry = entries_of[item["sha256"]]
            if not folder:
                # of files that hosts alone have nothing lies on the controller, whatever path they name
                raise AnsibleActionFail(
                    f"host {self.host}: no host has {entry.path} any more that said it had it: run again"
                )
            wanted += push.contents(folder, [entry], [item])
        sent = self._bring("models", wanted, {**self._args, "models": []})
        last = self._module({**self._args, "stage": stage, "verify": "fast"})
        return self._arrived("files", outcome, last, sent)

    def _list(self) -> dict[str, Any]:
        """What lies on this host. What is declared is known by name alone, without reading its source."""
        names = [models.folder_of(model) for model in self._args.get("models") or []]
        keep = [*names, *(self._args.get("keep") or [])]
        results = str(self._task.args.get("results", "__model_store_check"))
        if self._args.get("remove_unused"):
            self._all_here("nothing was removed")
        in_use = self._in_use(self.vars.get("ansible_play_hosts") or [], results)
        return self._module({**self._args, "models": [], "declared": names, "keep": keep, "in_use": in_use})

    def _check(self) -> dict[str, Any]:
        """What this host lacks. Nothing moves before every host has said so and has room."""
        folders, pending = self._declare()
        outcome = self._inspect(pending, folders)
        if outcome.get("need"):
            # the change itself is reported by the step that makes it
            outcome["changed"] = False
        return {**self._with_pending(outcome, pending), "revisions": self._revisions}

    def _switch(self) -> dict[str, Any]:
        """The models' names mean the new revisions, on all hosts or on none."""
        self._all_here("every host keeps the revisions that it has")
        self._declare()
        results = str(self._task.args.get("results", "__model_store_check"))
        return self._module({**self._args, "in_use": self._in_use(self.vars["ansible_play_hosts"], results)})

    def _all_here(self, otherwise: str) -> None:
        """Of a host that is away nobody knows what it has, nor which revision it serves with."""
        hosts = self.vars.get("ansible_play_hosts") or []
        if away := [host for host in self.vars.get("ansible_play_hosts_all") or hosts if host not in hosts]:
            raise AnsibleActionFail(
                f"hosts {', '.join(away)} failed or are away, so {otherwise}: run again when they are back"
            )

    def _in_use(self, hosts: Sequence[str], results: str) -> list[str]:
        """Revisions that any host serves with or served with last: a worker of Ray loads what the head names."""
        outcomes = [self.vars["hostvars"][host].get(results) or {} for host in hosts]
        return sorted({folder for outcome in outcomes for folder in outcome.get("named") or ()})

    def _plan(self) -> fanout.Plan:
        # hosts of another serving group have other models
        together = (self.vars.get("sparkthor_cluster") or {}).get("hosts")
        hosts = [str(host) for host in self.vars["ansible_play_hosts"] if together is None or host in together]
        plan = fanout.plan(
            self.vars["hostvars"],
            hosts,
            str(self._task.args.get("results", "__model_store_check")),
            str(self._task.args.get("head") or ""),
        )
        if len(plan.order) < len(hosts):
            try:
                self._routes(plan)
            except fanout_routes.RouteError:
                # a host without a part in it lies in between: whoever asked brings the rest by other means
                return plan._replace(order=[plan.seed])
        return plan

    def _routes(self, plan: fanout.Plan) -> dict[str, fanout_routes.Route]:
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
            sent = self._send(folders, {"need": plan.need[self.host]}, "check")
            # what decides over the other hosts is the controller's, and never what this one answers
            outcome |= {key: value for key, value in sent.items() if key not in ("seed", "run", "parts")}
        outcome["run"] = fanout.new_run()
        absent = fanout.absent(folders.values(), plan.wanted)
        if absent and any(plan.need[host] for host in plan.order[1:]):
            size = self._part_size(plan)
            job = {"wanted": absent, "size": size}
            told = self._module({**self._args, "stage": "parts", "job": json.dumps(job)})
            if told.get("failed"):
                raise AnsibleActionFail(f"host {self.host}: {told.get('msg', told)}")
            wanted = [item for item in plan.wanted if item["sha256"] in absent]
            outcome["parts"] = fanout.told_parts(told.get("parts"), wanted, size)
        return outcome

    @staticmethod
    def _part_size(plan: fanout.Plan) -> int:
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
            "part_size": size,
            "contents": fanout.contents(folders.values(), plan.wanted, size, self._run_of(plan.seed).get("parts")),
            "listen": fanout_routes.addresses(fabric[self.host]["links"]),
            "peers": [address for host in plan.order for address in fanout_routes.addresses(fabric[host]["links"])],
            "upstreams": route.upstreams,
            "behind": route.behind,
        }
        return self._module({**self._args, "verify": "fast", "job": json.dumps(job), "key": fanout.key(run)})

    def _watch(self) -> dict[str, Any]:
        plan = self._plan()
        hosts = [host for host in plan.order[1:] if plan.need[host]]
        if not hosts:
            return {"changed": False}
        run = self._run_name(plan.seed)
        board = fanout.Board(hosts, fanout.terminal(), self._say)
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
        first = self.vars["hostvars"][self.host][str(self._task.args.get("results", "__model_store_check"))]
        if self.host not in plan.order[1:] or not plan.need[self.host]:
            return {"changed": False, "models": first.get("models"), "unlisted": first.get("unlisted")}
        self._declare()
        outcome = self._module({**self._args, "verify": "fast", "job": json.dumps({"run": self._run_name(plan.seed)})})
        if outcome.get("failed"):
            outcome["msg"] = f"host {self.host}: {outcome.get('msg', outcome)}"
        elif "diff" in first:
            outcome["diff"] = first["diff"]
        return outcome
