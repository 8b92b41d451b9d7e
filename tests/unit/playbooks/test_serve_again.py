# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each playbook that serves again undoes all that stop.yml does, before it waits for a completion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


def tasks(playbook: str) -> list[tuple[str, dict[str, Any]]]:
    """(hosts of its play, task), in the order in which they run."""
    plays = yaml.safe_load((TOP / "playbooks" / f"{playbook}.yml").read_text(encoding="utf-8"))
    return [(play["hosts"], task) for play in plays for task in play["tasks"]]


def place(playbook: str, module: str, *states: str) -> int:
    """Where a module's only task stands, or the only one of these states."""
    found = [
        number
        for number, (_hosts, task) in enumerate(tasks(playbook))
        if f"sparkthor.cluster.{module}" in task
        and (not states or task[f"sparkthor.cluster.{module}"].get("state") in states)
    ]
    assert len(found) == 1, f"{playbook}: {module}"
    return found[0]


@pytest.mark.parametrize(
    ("playbook", "state"), [("start", "started"), ("restart", "restarted"), ("rollback", "started")]
)
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
    assert place("rollback", "vllm_service", "rolled_back") < place("rollback", "host_state")
