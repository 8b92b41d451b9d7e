# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Controller side of ``host_compare``: what the roles of this run want of the host, from their own variables.

The roles are imported into the play, so their variables are here; only where they look for files is set for each.
"""

from __future__ import annotations

import time
from typing import Any

from ansible import context
from ansible.plugins.action import ActionBase
from ansible.plugins.filter import core, mathstuff
from ansible.template import trust_as_template
from ansible_collections.sparkthor.cluster.plugins.filter import netplan_links
from ansible_collections.sparkthor.cluster.plugins.lookup import role_plan, secret
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import clock, compare, ports

#: What the roles' variables use.  A collection has no compiled modules, so each worker would compile these anew; the
#: process that all workers are forked from loads this file once.
LOADED_ONCE: tuple[Any, ...] = (core, mathstuff, netplan_links, role_plan, secret)
if "all" in (context.CLIARGS.get("tags") or ("all",)):
    # of roles that a run with tags may well leave out; where it does not, its workers load them
    from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import venv
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import (
        models,
        option_tables,
        wheels,
    )
    from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles

    LOADED_ONCE += (venv, models, option_tables, wheels, roles)


class ActionModule(ActionBase):
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        args = self._task.args
        looks, compared, unknown, facts = self._looks(list(args.get("roles") or []), task_vars)
        probe = dict(args.get("probe") or {})
        if probe:
            probe["links"] = ports.with_peers(probe.get("links") or [], task_vars.get("hostvars") or {})
        node = int(args.get("node") or 0)
        outcome: dict[str, Any] = {"changed": False, "settled": [look["role"] for look in looks], "differs": ""}
        if probe or node or any(look.get("module") for look in looks):
            before = time.time()
            outcome = self._execute_module(
                module_name="sparkthor.cluster.host_compare",
                module_args={"probe": probe, "looks": looks, **({"node": node} if node else {})},
                task_vars=task_vars,
            )
            clock.add_offset(outcome, before)
        outcome["compared"] = compared
        if "differs" in outcome and not outcome["differs"]:
            outcome["differs"] = unknown
        if facts and "engine" in (outcome.get("settled") or []):
            outcome["ansible_facts"] = {**(outcome.get("ansible_facts") or {}), **facts}
        result.update(outcome)
        return result

    def _looks(
        self, wanted: list[str], task_vars: dict[str, Any]
    ) -> tuple[list[dict[str, Any]], list[str], str, dict[str, Any]]:
        """Looks up to the first role of which it is not known what it wants, and why that is not known."""
        tasks = play_roles.role_tasks(self._task.get_play(), task_vars) if wanted else {}
        compared = [role for role in wanted if role in tasks]
        looks: list[dict[str, Any]] = []
        variables, facts = dict(task_vars), {}
        for role in compared:
            variables = compare.context(variables, tasks[role], self._loader.get_basedir())
            try:
                for name in variables.get(f"__{role}_once") or ():
                    variables[name] = self._evaluate(name, variables)
                declared = self._evaluate(f"__{role}_looks", variables)
                looks += compare.prepare(role, declared, str(task_vars["inventory_hostname"]), variables)
            except Exception as error:
                # the role will meet it again, and says what it is
                return looks, compared, f"{role}: {error}", facts
            if role == "engine":
                facts = {
                    key: value
                    for key, value in variables["ansible_facts"].items()
                    if key == "sparkthor_engine" and value is not task_vars["ansible_facts"].get(key)
                }
        return looks, compared, "", facts

    def _evaluate(self, name: str, variables: dict[str, Any]) -> Any:
        templar = self._templar.copy_with_new_env(available_variables=variables)
        return templar.evaluate_expression(trust_as_template(str(name)))
