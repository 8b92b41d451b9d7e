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
_NAME = "__declared_by_the_task"


@cache
def declared(role: Path, tasks: str = "main.yml") -> dict[str, Any] | None:
    """The arguments of the role's one task that brings files, not yet templated; None where it has none.

    Raises ValueError where the file has several such tasks: then which one is meant is not known.
    """
    path = role / "tasks" / tasks
    if not path.exists():
        return None
    document = DataLoader().load_from_file(str(path), trusted_as_template=True) or []
    found = [own for task in document if isinstance(own := task.get(MODULE), dict) and "files" in own]
    if len(found) > 1:
        raise ValueError(f"{role.name}/tasks/{tasks} has {len(found)} tasks of {MODULE}; one is read")
    return dict(found[0]) if found else None


def state(role: str, loader: DataLoader, templar: Any, variables: dict[str, Any]) -> dict[str, Any] | None:
    """What the role's task tells the module ``host_state`` on this host; None where the role has no such task.

    ``variables`` hold the role's own, because the play imports the role. Raises what templating raises, and
    DeclarationError.
    """
    raw = declared(ROLES / role)
    if raw is None:
        return None
    own = {**role_variables(variables, role), _NAME: raw}
    arguments = templated(templar, _NAME, own)
    former, templar.available_variables = templar.available_variables, own
    try:
        own = {**own, **typed(templar, own, role)}
        return declared_state.present(arguments, declared_state.text_by(loader, templar, own))
    finally:
        templar.available_variables = former
