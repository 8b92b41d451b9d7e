# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role's own task tells ``host_state``, templated by Ansible from the role's defaults, vars and templates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state, role_tasks, role_values

ROLES = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "roles"


def variables_of(role: str, **given: Any) -> dict[str, Any]:
    """Defaults, then what is given, then the role's vars, as Ansible ranks them."""
    own = {"inventory_hostname": "one", "ansible_facts": {}}
    return {**own, **_part(role, "defaults"), **given, **_part(role, "vars")}


@cache
def _part(role: str, part: str) -> dict[str, Any]:
    path = ROLES / role / part / "main.yml"
    return dict(DataLoader().load_from_file(str(path), trusted_as_template=True)) if path.exists() else {}


def state(role: str, *, secrets: bool = True, **given: Any) -> dict[str, Any]:
    """The arguments of the module on a host with these variables."""
    return dict(_state(role, secrets, json.dumps(given)))


@cache
def _state(role: str, secrets: bool, written: str) -> dict[str, Any]:
    return uncached(role, secrets=secrets, **json.loads(written))


def uncached(role: str, *, secrets: bool, **given: Any) -> dict[str, Any]:
    """The same for a test that has replaced what it is made of."""
    loader = DataLoader()
    templar = Templar(loader=loader, variables={})
    wanted = role_tasks.state(role, loader, templar, variables_of(role, **given), secrets=secrets)
    assert wanted is not None, f"{role} has no task that brings files"
    return wanted


def value(role: str, name: str, **given: Any) -> Any:
    """A variable of the role's own, as its tasks have it."""
    loader = DataLoader()
    variables = role_values.role_variables(variables_of(role, **given), role)
    return role_values.templated(Templar(loader=loader, variables=variables), name, variables)


def undone(role: str, **given: Any) -> dict[str, Any]:
    """The arguments that take the role back."""
    [only] = undone_runs(role, **given)
    return only


def undone_runs(role: str, **given: Any) -> list[dict[str, Any]]:
    """The same of a task with a loop, whatever its condition; what is given counts before the role's own."""
    loader = DataLoader()
    task = role_tasks.declared(ROLES / role)
    assert task is not None
    variables = role_values.role_variables({**variables_of(role, **given), **given}, role)
    templar = Templar(loader=loader, variables=variables)
    runs = role_tasks.runs({**task, "when": None}, role_tasks.arguments_of(task), templar, variables)
    return [declared_state.undone(arguments) for arguments, _own in runs]


STATE = "sparkthor.cluster.host_state"


def states_of(role: str, file: str, *, absent: bool = False, **given: Any) -> list[dict[str, Any]]:
    """What each task of the file tells ``host_state`` on this host, with what it imports; files have no texts."""
    loader = DataLoader()
    variables = role_values.role_variables({**variables_of(role, **given), **given}, role)
    return list(_states(ROLES / role / "tasks", file, absent, Templar(loader=loader, variables=variables), variables))


def _states(
    folder: Path, given: Any, absent: bool, templar: Templar, variables: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    for task in role_tasks.read(folder / given) if isinstance(given, str) else given:
        known = {**variables, **(task.get("vars") or {})}
        back = absent or "module_defaults" in task
        inner = task.get("block") or task.get("ansible.builtin.import_tasks")
        if inner:
            yield from _states(folder, inner, back, templar, known)
        elif STATE in task:
            for arguments, _own in role_tasks.runs({**task, "when": None}, task[STATE], templar, known):
                yield declared_state.undone(arguments) if back else declared_state.present(arguments, lambda *_: "")
