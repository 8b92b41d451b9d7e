# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``host_compare``: what the roles of this run want of the host, from their own tasks."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleActionFail
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state, role_tasks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.role_values import role_variables, typed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.role_specs import Declared, Templated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_name, roles
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import asked, compare

ALL = "all"


class ActionModule(Action):
    ARGUMENTS = {
        "roles": {"type": "list", "elements": "str", "default": []},
        "probe": {"type": "dict", "default": {}},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        everything = [role for role in play_roles.IMPORTS if role in play_roles.in_play(self.vars)]
        wanted = everything if arguments["roles"] == [ALL] else arguments["roles"]
        compared = [role for role in wanted if play_roles.selected(role, self.vars)]
        self._refused: list[str] = []
        self._unknown = ""
        comparisons, engine = self._comparisons(compared)
        given = asked.asked_of(arguments["probe"], compared, self.vars, self._templar, self.host)
        outcome = self.execute("host_compare", {**given, "comparisons": comparisons})
        outcome["compared"] = compared
        outcome["refused"] = [*self._refused, *(outcome.get("refused") or [])]
        outcome["unknown"] = self._unknown
        if "drift" in outcome:
            outcome["drift"] = outcome["drift"] or self._unknown
        if told := host_name.told((self.vars.get("ansible_facts") or {}).get("sparkthor_node") or {}):
            outcome["renamed"] = told
        if engine and "engine" in (outcome.get("converged") or []):
            outcome["ansible_facts"] = {"sparkthor_engine": engine}
        return outcome

    def _comparisons(self, compared: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Comparisons, up to the first role of which it is not known what it wants, and the engine that is wanted.

        What a role would refuse after others have changed the host is refused now, whatever is known of it.
        """
        comparisons: list[dict[str, Any]] = []
        variables = dict(self.vars)
        for role in compared:
            variables = role_variables(variables, role)
            if role in roles.ROLES:
                # made once for everything that the comparison reads of it
                plan, problems = roles.planned(role, Declared(Templated(variables, self._templar)))
                self._refused += problems
                variables |= {f"__{role}_plan": plan} if plan else {}
            if self._unknown:
                continue
            try:
                comparisons += compare.prepare(role, self._wanted(role, variables), variables)
            except Exception as error:
                # the role will meet it again, and says what it is
                self._unknown = f"{role}: {error}"
                if isinstance(error, AnsibleActionFail):
                    self._refused.append(str(error))
        return comparisons, (variables.get("ansible_facts") or {}).get("sparkthor_engine")

    def _wanted(self, role: str, variables: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """The calls that the role's own tasks make, and on the head what its nodes are waited for with."""
        found = []
        for module, arguments, own in role_tasks.calls(role, self._templar, variables):
            if module in ("host_state", "firewall_apply"):
                seen = own | typed(self._templar, own, role)
                arguments = declared_state.present(arguments, declared_state.text_by(self._loader, self._templar, seen))
            found.append((module, arguments))
        cluster = variables.get("sparkthor_cluster") or {}
        if role == "ray_node" and self.host == cluster.get("head") and cluster["executor"] == "ray":
            found.append(("ray_info", {}))
        return found
