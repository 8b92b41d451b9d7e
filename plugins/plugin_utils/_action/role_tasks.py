# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role's own task declares, for those who only read it: the comparison and the rendered files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state, module_files
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.role_values import (
    ROLES,
    role_variables,
    templated,
    typed,
)

#: modules whose task brings files, as host_state takes them
MODULES = ("sparkthor.cluster.host_state", "sparkthor.cluster.firewall_apply")
_COLLECTION = "sparkthor.cluster."
_FILES = ("configure.yml", "main.yml")
_NAME = "__declared_by_the_task"


@cache
def _tasks(role: Path) -> list[dict[str, Any]]:
    """The role's tasks, not yet templated: those of ``configure.yml`` if there is one, or of ``main.yml``."""
    path = next((path for name in _FILES if (path := role / "tasks" / name).exists()), None)
    return list(DataLoader().load_from_file(str(path), trusted_as_template=True)) if path else []


def declared(role: Path) -> dict[str, Any] | None:
    """The role's one task that brings files.

    None where the role has no such task. Raises ValueError where it has several: which one is meant is not known.
    """
    found = [task for task in _tasks(role) if isinstance(own := arguments_of(task), dict) and "files" in own]
    if len(found) > 1:
        raise ValueError(f"{role} has {len(found)} tasks of {' or '.join(MODULES)} with files; one is read")
    return dict(found[0]) if found else None


def module_of(task: Mapping[str, Any]) -> str:
    """The module of a task that brings files, without the collection's name; empty for another task."""
    return next((name.rpartition(".")[2] for name in MODULES if name in task), "")


def arguments_of(task: Mapping[str, Any]) -> Any:
    """What such a task tells its module, not yet templated; None for another task."""
    return next((task[name] for name in MODULES if name in task), None)


def state(
    role: str, loader: DataLoader, templar: Any, variables: dict[str, Any], *, secrets: bool = True
) -> dict[str, Any] | None:
    """What the role's task tells its module on this host; None where the role has no such task.

    It is empty where the task's condition does not hold; of a task with a loop it is what all its runs say. Without
    ``secrets`` files that hold one are left out. ``variables`` hold the role's own, because the play imports the role.
    Raises what templating raises, and DeclarationError.
    """
    task = declared(ROLES / role)
    if task is None:
        return None
    found: list[dict[str, Any]] = [{"files": []}]
    for arguments, own in runs(task, arguments_of(task), templar, role_variables(variables, role, ROLES)):
        own |= typed(templar, own, role)
        text = declared_state.text_by(loader, templar, own)
        found.append(declared_state.present(arguments, text, secrets=secrets))
    return declared_state.merged(found)


def other_tasks(role: Path) -> dict[str, dict[str, Any]]:
    """By module, the role's task of a module that makes its files itself."""
    return {name: task for task in _tasks(role) for name in module_files.FILES if f"{_COLLECTION}{name}" in task}


def calls(role: str, templar: Any, variables: dict[str, Any]) -> list[dict[str, Any]] | None:
    """What the role's tasks tell modules that make their files themselves: each ``module`` and its ``arguments``.

    None where the role has no such task.
    """
    tasks = other_tasks(ROLES / role)
    own = role_variables(variables, role, ROLES)
    found = [
        {"module": name, "arguments": arguments}
        for name, task in tasks.items()
        for arguments, _own in runs(task, task[f"{_COLLECTION}{name}"], templar, own)
    ]
    return found if tasks else None


def flagged(role: str, flag: str, templar: Any, variables: dict[str, Any], item: Any = None) -> list[str]:
    """Paths of the files that the role's task flags so, by their switches; with ``item`` of that run of its loop."""
    task = declared(ROLES / role) or {MODULES[0]: {"files": []}}
    wanted = [
        {key: value for key, value in file.items() if key in ("path", "when")}
        for file in arguments_of(task)["files"]
        if flag in file
    ]
    task = {**task, **({} if item is None else {"loop": [item]})}
    return [
        file["path"]
        for arguments, _own in runs(task, {"files": wanted}, templar, role_variables(variables, role, ROLES))
        for file in declared_state.chosen("files", arguments["files"])
    ]


def runs(
    task: Mapping[str, Any], arguments: Any, templar: Any, variables: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The arguments of each run of the task whose condition holds, templated, and the variables that it has."""
    former = templar.available_variables
    own = {**variables, _NAME: task.get("loop", [None])}
    loop_variable = (task.get("loop_control") or {}).get("loop_var", "item")
    try:
        for item in templated(templar, _NAME, own):
            own = {**variables, _NAME: arguments, **({loop_variable: item} if "loop" in task else {})}
            templar.available_variables = own
            if all(map(templar.evaluate_conditional, _listed(task.get("when")))):
                yield templated(templar, _NAME, own), own
    finally:
        templar.available_variables = former


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]
