# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each playbook that serves again undoes all that stop.yml does, before it waits for a completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.plays import plays

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


def tasks(playbook: str) -> list[tuple[str, dict[str, Any]]]:
    """(hosts of its play, task), in the order in which they run."""
    found = plays(playbook)
    return [(play["hosts"], task) for play in found for named in play["tasks"] for task in _imported(named)]


def _imported(task: dict[str, Any]) -> list[dict[str, Any]]:
    name = task.get("ansible.builtin.import_tasks")
    return yaml.safe_load((TOP / "playbooks" / name).read_text(encoding="utf-8")) if name else [task]


def place(playbook: str, module: str, *states: str) -> int:
    """Where a module's only task stands, or the only one of these states."""
    found = [
        number
        for number, (_hosts, task) in enumerate(tasks(playbook))
        if f"sparkthor.cluster.{module}" in task
        # of the groups beside a head's own one there is a task for any state
        and not isinstance(task[f"sparkthor.cluster.{module}"], str)
        and (not states or task[f"sparkthor.cluster.{module}"].get("state") in states)
    ]
    assert len(found) == 1, f"{playbook}: {module}"
    return found[0]


@pytest.mark.parametrize(("playbook", "state"), [("start", "started"), ("restart", "restarted")])
def test_ray_then_the_group_then_the_completion(playbook: str, state: str) -> None:
    ray = place(playbook, "host_state")
    service = place(playbook, "vllm_service", "started", "stopped", "restarted", "drained")
    ready = place(playbook, "vllm_service", "serving")
    assert ray < service < ready
    hosts, task = tasks(playbook)[ray]
    assert hosts == "cluster"
    unit = task["sparkthor.cluster.host_state"]["units"][0]
    assert (unit["name"], unit["enabled"], unit["state"]) == ("sparkthor-ray.service", True, "started")
    assert tasks(playbook)[service][1]["sparkthor.cluster.vllm_service"]["state"] == state


def test_nothing_is_started_before_there_is_something_to_go_back_to() -> None:
    found = [task["name"] for _hosts, task in tasks("rollback")]
    order = [
        *("Fail if there is nothing to go back to", "Check that every host still has it", "Restore the files"),
        *("Start and enable Ray on the head", "Start and enable Ray on the workers", "Start vLLM"),
        *("Wait for the first completion", "Keep it as what served last"),
    ]
    assert sorted(order, key=found.index) == order


def test_an_upgrade_that_fails_goes_back_by_the_same_tasks() -> None:
    found = plays("upgrade")
    stage, change, back = found
    assert not [task for task in stage["tasks"] if "drained" in str(task) or "host_state" in str(task)]
    (block,) = [task for task in change["tasks"] if "block" in task]
    (inner,) = block["block"]
    # a host that was away and is taken in again by the rescue has nothing left to do here
    assert "__upgrade_failed" in inner["when"]
    names = [task["name"] for task in inner["block"]]
    assert names.index("Let running requests end") < names.index("Switch the engine") < names.index("Serve the model")
    assert names[-4:] == [
        "Measure the new engine",
        "Measure the groups beside with the new engine",
        "Compare the new engine with the former one",
        "Keep what serves now",
    ]
    assert block["rescue"][-1]["ansible.builtin.meta"] == "clear_host_errors"
    assert {"tasks/roll_back.yml"} == {task.get("ansible.builtin.import_tasks") for task in back["tasks"]} - {None}
    assert "ansible.builtin.fail" in back["tasks"][-1]
    assert all(play["any_errors_fatal"] for play in found)
