# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role's own task declares, for those who only read it: the comparison and the rendered files."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.role_values import (
    ROLES,
    role_variables,
    templated,
    typed,
)

MODULE = "sparkthor.cluster.host_state"
_FILES = ("configure.yml", "main.yml")
_NAME = "__declared_by_the_task"


@cache
def declared(role: Path) -> dict[str, Any] | None:
    """The role's one task that brings files, not yet templated: ``configure.yml`` if there is one, or ``main.yml``.

    None where the role has no such task. Raises ValueError where the file has several: which one is meant is not known.
    """
    path = next((path for name in _FILES if (path := role / "tasks" / name).exists()), None)
    document = DataLoader().load_from_file(str(path), trusted_as_template=True) if path else []
    found = [task for task in document if isinstance(own := task.get(MODULE), dict) and "files" in own]
    if len(found) > 1:
        raise ValueError(f"{path} has {len(found)} tasks of {MODULE} with files; one is read")
    return dict(found[0]) if found else None


def state(role: str, loader: DataLoader, templar: Any, variables: dict[str, Any]) -> dict[str, Any] | None:
    """What the role's task tells the module ``host_state`` on this host; None where the role has no such task.

    It is empty where the task's condition does not hold. ``variables`` hold the role's own, because the play imports
    the role. Raises what templating raises, and DeclarationError.
    """
    task = declared(ROLES / role)
    if task is None:
        return None
    own = {**role_variables(variables, role, ROLES), _NAME: task[MODULE]}
    former, templar.available_variables = templar.available_variables, own
    try:
        if not all(map(templar.evaluate_conditional, _listed(task.get("when")))):
            return {"files": []}
        arguments = templated(templar, _NAME, own)
        own = {**own, **typed(templar, own, role)}
        return declared_state.present(arguments, declared_state.text_by(loader, templar, own))
    finally:
        templar.available_variables = former


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]
