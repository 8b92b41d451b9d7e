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
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import cabling_check, compare, values

#: roles that own a folder which a variable names
_GIVEN_FOLDERS = frozenset(("engine", "model_store", "ray_node", "vllm_serve"))

#: all that are compared, in the order in which site.yml runs them
ORDER = (
    *("os_hardening", "roce_network", "nccl_conf", "firewall", "engine", "model_store", "ray_node", "vllm_serve"),
    *("monitoring", "console"),
)
ALL = "all"

#: roles that may take a port or a way in from somebody
_TAKE = frozenset(("firewall", "os_hardening"))


class ActionModule(Action):
    ARGUMENTS = {
        "roles": {"type": "list", "elements": "str", "default": []},
        "probe": {"type": "dict", "default": {}},
    }

    def act(self, arguments: dict[str, Any]) -> dict[str, Any]:
        in_play = play_roles.in_play(self.vars)
        wanted = [role for role in ORDER if role in in_play] if arguments["roles"] == [ALL] else arguments["roles"]
        compared = [role for role in wanted if play_roles.selected(role, self.vars)]
        self._refused: list[str] = []
        self._unknown = ""
        comparisons, facts = self._comparisons(compared)
        folders = self._folders() if _GIVEN_FOLDERS & set(compared) else {}
        probe = arguments["probe"]
        if probe:
            fabric = self.vars.get("sparkthor_fabric") or {}
            # hosts that go one after the other hear nobody, so nothing follows from that
            together = [host for host in self.vars.get("ansible_play_hosts") or () if host in fabric]
            if int(self.vars.get("ansible_forks") or 5) < len(together):
                together = []
            links = probe.get("links") or []
            hostvars = self.vars.get("hostvars") or {}
            probe = {**probe, "links": cabling_check.with_peers(links, hostvars, self.host, fabric, together)}
        outcome: dict[str, Any] = {
            "changed": False,
            "converged": list(dict.fromkeys(item["role"] for item in comparisons)),
            "drift": "",
        }
        room = self._room(folders) if "model_store" in compared else {}
        exposure = self._way_in() if _TAKE.intersection(compared) else ""
        if probe or folders or room or exposure or any(item.get("module") for item in comparisons):
            given = {"probe": probe, "folders": folders, "comparisons": comparisons}
            given |= {name: value for name, value in (("exposure", exposure), ("room", room)) if value}
            outcome = self.execute("host_compare", given)
        outcome["compared"] = compared
        outcome["refused"] = [*self._refused, *(outcome.get("refused") or [])]
        outcome["unknown"] = self._unknown
        if "drift" in outcome:
            outcome["drift"] = outcome["drift"] or self._unknown
        if told := host_name.told((self.vars.get("ansible_facts") or {}).get("sparkthor_node") or {}):
            outcome["renamed"] = told
        if facts and "engine" in (outcome.get("converged") or []):
            outcome["ansible_facts"] = facts
        return outcome

    def _folders(self) -> dict[str, str]:
        """By variable, the folders that roles give to the serving user."""
        known = Declared(Templated(self.vars, self._templar), strict=False)
        return {name: str(known[name]) for name in values.FOLDERS if name in known}

    def _room(self, folders: dict[str, str]) -> dict[str, Any]:
        """By the store's folder, the bytes of each model that this host is to have."""
        sizes = (self.vars.get("sparkthor_cluster") or {}).get("store_bytes") or {}
        root = folders.get("model_store_root")
        return {root: dict(sizes)} if root and sizes else {}

    def _way_in(self) -> str:
        """The NIC by which the controller reaches this host."""
        node = (self.vars.get("ansible_facts") or {}).get("sparkthor_node") or {}
        return str((node.get("management") or {}).get("netdev") or "")

    def _comparisons(self, compared: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Comparisons, up to the first role of which it is not known what it wants, and the facts that ``engine`` sets.

        What a role would refuse after others have changed the host is refused now, whatever is known of it.
        """
        comparisons: list[dict[str, Any]] = []
        variables, facts = dict(self.vars), {}
        for role in compared:
            variables = role_variables(variables, role)
            self._plan(role, variables)
            if self._unknown:
                continue
            try:
                comparisons += compare.prepare(role, self._wanted(role, variables), variables)
            except Exception as error:
                # the role will meet it again, and says what it is
                self._unknown = f"{role}: {error}"
                if isinstance(error, AnsibleActionFail):
                    self._refused.append(str(error))
                continue
            if role == "engine":
                facts = {
                    key: value
                    for key, value in variables["ansible_facts"].items()
                    if key == "sparkthor_engine" and value is not self.vars["ansible_facts"].get(key)
                }
        return comparisons, facts

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

    def _plan(self, role: str, variables: dict[str, Any]) -> None:
        """The role's plan where it has one, made once for everything that the comparison reads of it."""
        if role not in roles.ROLES:
            return
        try:
            plan = roles.plan(role, Declared(Templated(variables, self._templar)))
        except (ValueError, KeyError) as error:
            self._refused.append(roles.explained(error))
        else:
            self._refused += plan.get("problems") or []
            variables[f"__{role}_plan"] = plan
