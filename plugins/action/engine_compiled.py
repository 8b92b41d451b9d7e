# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``engine_compiled``: who gives to whom, and what the fan-out is told of it."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine.compiled import LARGEST, NAME, TAR
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import human
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError, parse_manifest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import images, push
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery.model_action import ModelAction
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import compiled

#: variables in which the hosts' results were registered
PROBED, GIVEN = "__preflight_probe", "__engine_given"
ROOT = "/opt/sparkthor/compiled"


class ActionModule(ModelAction):
    CONTROLLER_ONLY = ("fabric",)
    # who speaks to whom, and which file goes from host to host
    OWN = ModelAction.OWN | {"giver", "model"}

    def step(self) -> dict[str, Any]:
        self._args.setdefault("root", ROOT)
        plan = compiled.sharing(self._machines(), self._task.args.get("fabric") or {})
        steps = {"give": self._give, "compare": self._compare, "take": self._take, "tidy": self._tidy}
        name = str(self._task.args.get("step"))
        if name not in steps:
            raise AnsibleActionFail(f"step: {name!r} is not one of {', '.join(steps)}")
        return steps[name](plan)

    def _machines(self) -> dict[str, compiled.CompilingHost]:
        """The hosts that serve together with this one, as preflight found them."""
        found = {}
        for host, probed in images.results(self.vars, PROBED).items():
            facts = self.vars["hostvars"][host].get("ansible_facts") or {}
            node, engine = (facts.get(name) or {} for name in ("sparkthor_node", "sparkthor_engine"))
            found[host] = compiled.CompilingHost(node, engine, probed.get("compiled"))
        return found

    def _host(self, step: str) -> dict[str, Any]:
        outcome = self.execute("engine_compiled", {**self._args, "step": step})
        if outcome.get("failed"):
            raise AnsibleActionFail(f"host {self.host}: {outcome.get('msg', outcome)}")
        return outcome

    def _give(self, plan: compiled.Sharing) -> dict[str, Any]:
        told: dict[str, Any] = {"changed": False, "giver": plan.giver if plan.has(self.host) else ""}
        if self.host != plan.giver or self._task.check_mode:
            return told
        try:
            (entry,) = parse_manifest([self._host("give").get("saved") or []])
        except (StoreError, TypeError, ValueError) as error:
            raise AnsibleActionFail(f"host {self.host}: what it says of what it wrote is no file ({error})") from None
        if entry.path != TAR or entry.size > LARGEST:
            raise AnsibleActionFail(f"host {self.host}: what it says that it wrote is not what it was asked for")
        handed = push.hand_over(self._root, NAME, self._root, manifest=[list(entry)])
        return {**told, "model": handed["wheels"]["model"]}

    def _compare(self, plan: compiled.Sharing) -> dict[str, Any]:
        """What the fan-out asks of a registered result, of the hosts that have a part in it."""
        model = (self.vars["hostvars"][plan.giver].get(GIVEN) or {}).get("model") if plan.has(self.host) else None
        if not model:
            return {"changed": False}
        self._args, self._given = {"root": self._root, "models": [model], "deliver": "fabric"}, [model]
        folders, pending = self._declare()
        outcome = self._inspect(pending, folders)
        if outcome.get("failed"):
            raise AnsibleActionFail(f"host {self.host}: {outcome.get('msg', outcome)}")
        # nothing that anybody keeps
        return {**outcome, "changed": False, "model": model}

    def _take(self, plan: compiled.Sharing) -> dict[str, Any]:
        if self.host not in plan.takers:
            return self._tidy(plan)
        if self._task.check_mode:
            text = f"would take what {plan.giver} compiled"
            self.tell(f"sparkthor: {self.host}: {text}")
            return {"changed": True, "msg": text}
        outcome = self._host("take")
        count, size = outcome.get("files", 0), outcome.get("bytes", 0)
        self.tell(f"sparkthor: {self.host}: {count} files ({human(size)}) that {plan.giver} compiled")
        return outcome

    def _tidy(self, _plan: compiled.Sharing) -> dict[str, Any]:
        """What cannot be tidied now is in nobody's way: the next one does it."""
        self.execute("engine_compiled", {**self._args, "step": "tidy"})
        return {"changed": False}
