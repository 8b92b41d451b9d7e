# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer of any module may carry facts, which outrank the inventory; the actions of the collection drop them.

So no task of ours asks a host by another action.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
PLAYBOOKS = sorted((TOP / "playbooks").glob("*.yml"))
TASKS = sorted([*(TOP / "playbooks" / "tasks").glob("*.yml"), *(TOP / "roles").glob("*/tasks/*.yml")])
OURS = {f"sparkthor.cluster.{path.stem}" for path in (TOP / "plugins" / "action").glob("*.py")}
#: actions that ask no host; what they set comes from the playbook
ON_CONTROLLER = {
    f"ansible.builtin.{name}"
    for name in (
        *("add_host", "assert", "debug", "fail", "meta", "pause", "set_fact"),
        *("import_playbook", "import_role", "import_tasks", "include_role", "include_tasks"),
    )
}


def actions(tasks: list[dict[str, Any]], local: bool) -> Iterator[tuple[str, bool]]:
    """The action of every task, and whether it is done on the controller."""
    for task in tasks:
        here = local or task.get("delegate_to") == "localhost"
        for part in ("block", "rescue", "always"):
            yield from actions(task.get(part) or [], here)
        for name in task:
            if "." in name:
                yield name, here


@pytest.mark.parametrize("path", TASKS, ids=lambda path: str(path.relative_to(TOP)))
def test_tasks_ask_hosts_by_our_actions_alone(path: Path) -> None:
    tasks = yaml.safe_load(path.read_text(encoding="utf-8")) or []
    assert {name for name, here in actions(tasks, False) if not here} <= OURS | ON_CONTROLLER


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.name)
def test_plays_ask_hosts_by_our_actions_alone(path: Path) -> None:
    for play in yaml.safe_load(path.read_text(encoding="utf-8")):
        if "ansible.builtin.import_playbook" in play:
            continue
        # otherwise Ansible's own setup asks for facts first
        assert play["gather_facts"] is False
        assert not {"roles", "pre_tasks", "post_tasks", "handlers"} & set(play)
        local = play["hosts"] == "localhost"
        # an inventory's connection outranks a play's
        assert "connection" not in play or local
        asked = {name for name, here in actions(play["tasks"], local) if not here}
        assert asked <= OURS | ON_CONTROLLER
