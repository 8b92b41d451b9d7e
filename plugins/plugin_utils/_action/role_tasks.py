# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a role's own tasks declare, for those who only read them: the comparison and the rendered files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleUndefinedVariable
from ansible.parsing.dataloader import DataLoader
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import declared_state, module_files
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.compared import COMPARED
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.role_values import (
    ROLES,
    role_variables,
    templated,
    typed,
)

#: modules whose task brings files, as host_state takes them
MODULES = ("sparkthor.cluster.host_state", "sparkthor.cluster.firewall_apply")
_OWN = "sparkthor.cluster."
_FILES = ("configure.yml", "main.yml")
_NAME = "__declared_by_the_task"


def _tasks(role: Path) -> list[dict[str, Any]]:
    """The role's tasks, not yet templated: those of ``configure.yml`` if there is one, or of ``main.yml``."""
    path = next((path for name in _FILES if (path := role / "tasks" / name).exists()), None)
    return list(read(path)) if path else []


def declared(role: Path) -> dict[str, Any] | None:
    """The role's one task that brings files.

    None where the role has no such task. Raises ValueError where it has several: which one is meant is not known.
    """
    found = [task for task in _tasks(role) if isinstance(own := arguments_of(task), dict) and "files" in own]
    if len(found) > 1:
        raise ValueError(f"{role} has {len(found)} tasks of {' or '.join(MODULES)} with files; one is read")
    return dict(found[0]) if found else None


def arguments_of(task: Mapping[str, Any]) -> Any:
    """What such a task tells its module, not yet templated; None for another task."""
    return next((task[name] for name in MODULES if name in task), None)


def state(
    role: str, loader: DataLoader, templar: Any, variables: dict[str, Any], *, secrets: bool = True
) -> dict[str, Any] | None:
    """What the role's task tells its module on this host; None where the role has no such task.

    It is empty where the task's condition does not hold; of a task with a loop it is what all its runs say. Without
    ``secrets`` files that hold one are left out. ``variables`` are the host's, with the role's own or without.
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


def calls_that_make_files(role: str, templar: Any, variables: dict[str, Any]) -> list[dict[str, Any]]:
    """What the role's tasks tell modules that make their files themselves: each ``module`` and its ``arguments``.

    Of a module that the role calls several times it is the first call: the later ones only bring what that one lacked.
    """
    own = role_variables(variables, role, ROLES)
    found: dict[str, dict[str, Any]] = {}
    for task, conditions, known in _leaves(ROLES / role / "tasks", "main.yml", [], templar, own):
        module = next((name for name in module_files.FILES if f"{_OWN}{name}" in task), "")
        if module and module not in found:
            task = {**task, "when": conditions}
            for arguments, _own in runs(task, task[f"{_OWN}{module}"], templar, known, ahead=True):
                found.setdefault(module, {"module": module, "arguments": arguments})
    return list(found.values())


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


#: the files of a role that a run has imported when it has run the role, where there are others than main.yml
ENTRIES = {"vllm_serve": ("check.yml", "declare.yml", "main.yml")}
#: what asks no host
_CONTROLLER = frozenset(("assert", "debug", "fail", "meta", "set_fact", "cluster_plan"))
_INCLUDES = ("ansible.builtin.import_tasks", "ansible.builtin.include_tasks")


class NotCompared(Exception):
    """A task that would run, and of which only a run can tell what it does; the message names it."""


def calls(role: str, templar: Any, variables: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Module, arguments and variables of each call that the role's tasks make on this host, as a run would.

    What depends on the result of another task is left out: that result is compared.
    Raises NotCompared for a task that cannot be compared, and what templating raises.
    """
    own = role_variables(variables, role, ROLES)
    for name in ENTRIES.get(role, ("main.yml",)):
        for task, conditions, known in _leaves(ROLES / role / "tasks", name, [], templar, own):
            module = next((key for key in task if "." in key), "")
            if (short := module.rpartition(".")[2]) in COMPARED and module.startswith(_OWN):
                for arguments, seen in runs({**task, "when": conditions}, task[module], templar, known, ahead=True):
                    yield short, arguments, seen
            elif task.get("changed_when") is False:
                continue  # a question: nothing to do follows from it
            elif short not in _CONTROLLER and _holds(conditions, templar, known):
                raise NotCompared(str(task.get("name", module)))


def _leaves(
    folder: Path, given: Any, conditions: list[Any], templar: Any, variables: dict[str, Any]
) -> Iterator[tuple[dict[str, Any], list[Any], dict[str, Any]]]:
    """Each task, its conditions and its variables, through blocks and the files that a run would include."""
    for task in read(folder / given) if isinstance(given, str) else given:
        every = [*conditions, *_listed(task.get("when"))]
        known = {**variables, **(task.get("vars") or {})}
        included = next((task[name] for name in _INCLUDES if name in task), None)
        if "block" in task:
            yield from _leaves(folder, task["block"], every, templar, known)
        elif included is None:
            yield task, every, known
        elif _holds(every, templar, known):
            yield from _leaves(folder, included, every, templar, known)


@cache
def read(path: Path) -> Any:
    """The tasks of a file, not yet templated."""
    # "unsafe" is Ansible's word for its own copy: nobody changes what is read here
    return DataLoader().load_from_file(str(path), unsafe=True, trusted_as_template=True)


def _holds(conditions: list[Any], templar: Any, variables: Mapping[str, Any]) -> bool:
    """Whether all hold; one that reads what no task has registered yet does not."""
    former = templar.available_variables
    templar.available_variables = variables
    try:
        return all(map(templar.evaluate_conditional, conditions))
    except AnsibleUndefinedVariable:
        return False
    finally:
        templar.available_variables = former


def runs(
    task: Mapping[str, Any], arguments: Any, templar: Any, variables: Mapping[str, Any], *, ahead: bool = False
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """The arguments of each run of the task whose condition holds, templated, and the variables that it has.

    ``ahead`` of a run a condition that reads what a task will register does not hold.
    """
    former = templar.available_variables
    with_item = {**variables, _NAME: task.get("loop", [None])}
    loop_variable = (task.get("loop_control") or {}).get("loop_var", "item")
    try:
        for item in templated(templar, _NAME, with_item):
            with_item = {**variables, _NAME: arguments, **({loop_variable: item} if "loop" in task else {})}
            templar.available_variables = with_item
            conditions = _listed(task.get("when"))
            if _holds(conditions, templar, with_item) if ahead else all(map(templar.evaluate_conditional, conditions)):
                yield templated(templar, _NAME, with_item), with_item
    finally:
        templar.available_variables = former


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else [] if given is None else [given]


# read once for all hosts, before the process of each is forked
for _path in sorted(ROLES.glob("*/tasks/*.yml")):
    read(_path)
