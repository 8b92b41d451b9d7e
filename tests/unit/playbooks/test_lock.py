# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every playbook that changes the cluster locks it before its first change; those that only read do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = (
    next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "playbooks"
)
#: they change nothing on the hosts of a cluster; verify measures, and installs perftest if asked
READ_ONLY = {
    *("backup", "bench", "capture", "discover", "doctor", "drift", "recipe", "render", "report", "status", "verify"),
    # before there is a cluster
    "first_contact",
    # contacts nobody
    "switch",
    # chooses what upgrade.yml serves, which has the lock
    "switch_model",
}
#: what may come before the lock: it changes nothing, but for the secrets that preflight keeps on the controller
BEFORE = (
    *("sparkthor.cluster.preflight", "ansible.builtin.meta", "ansible.builtin.assert", "tasks/read_status.yml"),
    "tasks/every_group.yml",
)
NAMES = sorted(path.stem for path in PLAYBOOKS.glob("*.yml"))


def plays(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / f"{name}.yml").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_playbook_that_changes_something_locks_first(name: str) -> None:
    # one that only imports others leaves it to them
    tasks = [task for play in plays(name) for task in play.get("tasks") or ()]
    places = [number for number, task in enumerate(tasks) if "tasks/lock.yml" in str(task)]
    if name in READ_ONLY or not tasks:
        assert places == []
        return
    assert places, f"{name}.yml changes the cluster without its lock"
    for task in tasks[: places[0]]:
        assert any(word in str(task) for word in BEFORE), task["name"]


def test_the_lock_is_taken_on_the_head_by_one_task() -> None:
    (task,) = yaml.safe_load((PLAYBOOKS / "tasks/lock.yml").read_text(encoding="utf-8"))
    assert task["delegate_to"] == "{{ groups['ray_head'][0] }}"
    assert task["run_once"] is True
