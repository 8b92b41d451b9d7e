# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``host_compare``: what the roles of this run want of the host, from their own variables."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.base import Action
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.role_values import role_variables, templated
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import compare


class ActionModule(Action):
    ARGUMENTS = {
        "roles": {"type": "list", "elements": "str", "default": []},
        "probe": {"type": "dict", "default": {}},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        in_run = play_roles.in_run(self.vars)
        compared = [role for role in arguments["roles"] if role in in_run]
        comparisons, unknown, facts = self._comparisons(compared)
        probe = arguments["probe"]
        if probe:
            probe = {**probe, "links": compare.with_peers(probe.get("links") or [], self.vars.get("hostvars") or {})}
        outcome: dict[str, Any] = {
            "changed": False,
            "converged": list(dict.fromkeys(item["role"] for item in comparisons)),
            "drift": "",
        }
        if probe or any(item.get("module") for item in comparisons):
            outcome = self.execute("host_compare", {"probe": probe, "comparisons": comparisons})
        outcome["compared"] = compared
        if "drift" in outcome and not outcome["drift"]:
            outcome["drift"] = unknown
        if facts and "engine" in (outcome.get("converged") or []):
            outcome["ansible_facts"] = facts
        return outcome

    def _comparisons(self, roles: list[str]) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
        """Comparisons up to the first role of which it is not known what it wants, why that is not known, and the
        facts that the role engine would set."""
        comparisons: list[dict[str, Any]] = []
        variables, facts = dict(self.vars), {}
        for role in roles:
            variables = role_variables(variables, role)
            try:
                for name in variables.get(f"__{role}_shared_values") or ():
                    variables[name] = self._value(name, variables)
                wanted = self._value(f"__{role}_comparisons", variables)
                comparisons += compare.prepare(role, wanted, self.host, variables)
            except Exception as error:
                # the role will meet it again, and says what it is
                return comparisons, f"{role}: {error}", facts
            if role == "engine":
                facts = {
                    key: value
                    for key, value in variables["ansible_facts"].items()
                    if key == "sparkthor_engine" and value is not self.vars["ansible_facts"].get(key)
                }
        return comparisons, "", facts

    def _value(self, name: str, variables: dict[str, Any]) -> Any:
        """A role's variable, templated among the variables as the role's own tasks have them."""
        if name not in variables:
            raise compare.Unknown(f"the variable {name} is not defined")
        return templated(self._templar, name, variables)
