# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A role's variables, read by an action that runs outside of the role, whether its play has the role or not."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader

# Roles' variables look their plans up.  Imported here, before the process of each host is forked, the planners are
# compiled once: Ansible keeps no bytecode of a collection's Python.
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import role_specs
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import roles as _planners  # noqa: F401

# what the variables are declared as is read once, too
role_specs.of_collection()

ROLES = Path(__file__).parents[3] / "roles"


@cache
def own_variables(roles: Path) -> dict[str, Any]:
    """Defaults and variables of all roles, not yet templated."""
    loader = DataLoader()
    found: dict[str, Any] = {}
    for part in ("defaults", "vars"):
        for path in sorted(roles.glob(f"*/{part}/main.yml")):
            found.update(loader.load_from_file(str(path), unsafe=True, trusted_as_template=True) or {})
    return found


def role_variables(variables: Mapping[str, Any], role: str, roles: Path = ROLES) -> dict[str, Any]:
    """The variables as the role's own tasks have them: with its own, its path, and where Ansible looks for templates.

    ``roles``: the folder that holds the role.
    """
    path = str(roles / role)
    search = [path, f"{path}/tasks", *([variables["playbook_dir"]] if "playbook_dir" in variables else [])]
    name = f"sparkthor.cluster.{role}"
    return {
        **own_variables(roles),
        **variables,
        "role_path": path,
        "role_name": name,
        "ansible_role_name": name,
        "ansible_search_path": search,
    }


def templated(templar: Any, name: str, variables: dict[str, Any]) -> Any:
    """A variable's value, templated among ``variables``.  KeyError if there is none of that name."""
    raw = variables[name]
    former = templar.available_variables
    templar.available_variables = variables
    try:
        return templar.template(raw)
    finally:
        templar.available_variables = former


def typed(templar: Any, variables: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The role's own variables by their declared types, whichever way they were written; a wrong one is as given."""
    known = role_specs.Declared(role_specs.Templated(variables, templar), strict=False)
    return {name: known[name] for name in role_specs.of_collection().names_of(role) if name in known}


# and so are the variables themselves
own_variables(ROLES)
