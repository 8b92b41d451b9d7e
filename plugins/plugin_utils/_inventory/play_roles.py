# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which roles a play has, and which of them a run comes to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def _tasks(blocks: Any) -> Iterator[Any]:
    for item in blocks:
        if hasattr(item, "block"):
            yield from _tasks([*item.block, *item.rescue, *item.always])
        else:
            yield item


def role_of(task: Any) -> str:
    """The role's name without the collection's; the task that ends a role is ansible-core's own."""
    return task._role.get_name().rpartition(".")[2] if task._role and not task.implicit else ""


def role_tasks(play: Any, variables: Mapping[str, Any]) -> dict[str, Any]:
    """By role, the first of its tasks in this play that the run's tags select."""
    found: dict[str, Any] = {}
    for task in _tasks(play.tasks):
        name = role_of(task)
        if name and name not in found and task.evaluate_tags(play.only_tags, play.skip_tags, variables):
            found[name] = task
    return found


def in_play(play: Any) -> set[str]:
    """All its roles, whatever the run's tags."""
    return {role_of(task) for task in _tasks(play.tasks)} - {""}
