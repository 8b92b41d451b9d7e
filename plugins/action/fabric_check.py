# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of the module ``fabric_check``: documented in plugins/modules/fabric_check.py."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.sparkthor.cluster.plugins.module_utils._drift import compare
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import nothing_changed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import inventory
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric as _fabric
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import ClusterError, plan_cluster
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import fabric_check, kept_nodes

#: the answer where the hosts have to be asked in two steps
MOVED = {"changed": False, "confirmed": False, "msg": "a host is not what it was"}


def _text(plan: Mapping[str, Any]) -> str:
    """For a comparison: what went through variables has no tuples any more."""
    return json.dumps(plan, sort_keys=True)


class ActionModule(ActionBase):
    BYPASS_HOST_LOOP = True
    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("fabric", "probes", "kept", "accept", "replace_foreign"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        hostvars = (task_vars or {})["hostvars"]
        _validated, arguments = self.validate_argument_spec(
            argument_spec={
                "fabric": {"type": "dict", "required": True},
                "probes": {"type": "str", "default": "__preflight_probe"},
                "kept": {"type": "str", "default": ""},
                "accept": {
                    "type": "list",
                    "elements": "str",
                    "default": [],
                    "choices": list(fabric_check.ACCEPTABLE),
                },
                "replace_foreign": {"type": "bool", "default": False},
            }
        )
        fabric = copy.deepcopy(arguments["fabric"])
        confirmed = True
        if arguments["kept"]:
            cluster = hostvars[next(iter(fabric))].get("sparkthor_cluster") or {}
            kept, found = (self._nodes(fabric, hostvars, arguments[name]) for name in ("kept", "probes"))
            answered = len(found) == len(fabric)
            confirmed = answered and kept_nodes.confirmed(kept, found, bool(cluster.get("serving")))
            if not confirmed and not (
                answered and _text(self._planned(task_vars, found)) == _text(arguments["fabric"])
            ):
                return {**result, **MOVED}
            if confirmed:
                self._display.display(f"sparkthor: {cluster.get('summary', '')}")
        nodes = {host: hostvars[host]["ansible_facts"]["sparkthor_node"] for host in fabric}
        probes = {host: self._probe(hostvars[host], arguments["probes"]) for host in fabric}
        errors, others = fabric_check.split(
            fabric_check.check_facts(fabric, nodes, probes, arguments["accept"], arguments["replace_foreign"])
        )
        if errors:
            raise AnsibleActionFail(nothing_changed(errors))
        if not confirmed:
            return {**result, **MOVED}
        if others:
            result["warnings"] = others
        _fabric.adopt_devices(fabric, fabric_check.devices(probes))
        renamed = fabric != arguments["fabric"]
        outcomes = {host: hostvars[host].get(arguments["probes"]) or {} for host in fabric}
        wanted = next(iter(outcomes.values()), {}).get("compared") or []
        # hosts that were compared with a plan that has other names in it were not compared
        settled = [] if renamed else compare.settled_everywhere(wanted, outcomes)
        if not self._task.check_mode:
            # for the next run
            kept_nodes.write(kept_nodes.of_run(task_vars)[0], nodes)
        result.update(
            changed=False,
            confirmed=True,
            msg=f"the facts of {len(fabric)} hosts agree with the plan",
            fabric=fabric,
            renamed=renamed,
            settled=settled,
            nothing_to_do=bool(settled) and settled == wanted,
        )
        return result

    @staticmethod
    def _nodes(fabric: Mapping[str, Any], hostvars: Mapping[str, Any], variable: str) -> dict[str, dict[str, Any]]:
        """The facts in a registered variable, of each host that has some there."""
        outcomes = {host: hostvars[host].get(variable) or {} for host in fabric}
        facts = {host: (outcome.get("ansible_facts") or {}).get("sparkthor_node") for host, outcome in outcomes.items()}
        return {host: node for host, node in facts.items() if node}

    @staticmethod
    def _planned(task_vars: Mapping[str, Any], nodes: Mapping[str, Any]) -> dict[str, Any]:
        """The fabric as these facts want it: where it is the one that the ports were looked at for, what they showed
        can be judged, and nobody has to look again to be told what is wrong."""
        groups = {name: list(members) for name, members in task_vars["groups"].items()}
        hosts = inventory.cluster_hosts(groups)
        variables = {host: inventory.planned_by(task_vars["hostvars"][host]) for host in hosts}
        try:
            return plan_cluster(groups, hosts, variables, nodes)[1]
        except ClusterError:
            return {}

    @staticmethod
    def _probe(variables: Mapping[str, Any], name: str) -> dict[str, Any]:
        outcome = variables.get(name, {})
        return outcome.get("probe") or {}
