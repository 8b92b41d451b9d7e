# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ray's and vLLM's units are written for the engine of the host, so no playbook writes them without knowing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
WRITERS = {"ray_node", "vllm_serve"}
#: entry points of the roles that write no unit
HARMLESS = {"front.yml", "check.yml", "teardown"}


class Import(NamedTuple):
    role: str
    file: str
    variables: dict[str, Any]


def steps(playbook: Path) -> list[str | Import]:
    """Imported roles of all plays, in their order; other tasks by the name of their module."""
    found: list[str | Import] = []
    for play in yaml.safe_load(playbook.read_text(encoding="utf-8")):
        tasks = [inner for task in play.get("tasks", []) for inner in task.get("block", [task])]
        for task in tasks:
            told = task.get("ansible.builtin.import_role")
            if told is None:
                found += [key for key in task if key.startswith("sparkthor.cluster.")]
                continue
            name = told["name"].removeprefix("sparkthor.cluster.")
            found.append(Import(name, told.get("tasks_from", "main.yml"), task.get("vars", {})))
    return found


def writers(playbook: Path) -> list[Import]:
    imports = [step for step in steps(playbook) if isinstance(step, Import)]
    return [step for step in imports if step.role in WRITERS and step.file not in HARMLESS]


PLAYBOOKS = [playbook for playbook in sorted((TOP / "playbooks").glob("*.yml")) if writers(playbook)]


def test_the_playbooks_that_write_units_are_found() -> None:
    assert {"site", "rotate_ray_token"} <= {playbook.stem for playbook in PLAYBOOKS}


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda playbook: playbook.stem)
def test_the_engine_is_known_before_units_are_written_for_it(playbook: Path) -> None:
    imports = [step for step in steps(playbook) if isinstance(step, Import)]
    knows = next(number for number, step in enumerate(imports) if step.role == "engine" and step.file == "main.yml")
    first = imports.index(writers(playbook)[0])
    assert knows < first


def test_no_token_is_replaced_before_the_engine_is_known() -> None:
    found = steps(TOP / "playbooks/rotate_ray_token.yml")
    knows = next(n for n, step in enumerate(found) if isinstance(step, Import) and step.role == "engine")
    assert knows < found.index("sparkthor.cluster.cluster_secrets")


@pytest.mark.parametrize("playbook", ["rotate_api_key", "keys"])
def test_a_new_api_key_reaches_the_front_proxy_alone(playbook: str) -> None:
    """Neither skipped, because preflight found it converged with the old key, nor with anything else that waits."""
    preflight, *others = (step for step in steps(TOP / f"playbooks/{playbook}.yml") if isinstance(step, Import))
    assert (preflight.role, preflight.variables) == ("preflight", {})
    assert [(step.role, step.file) for step in others] == [("vllm_serve", "front.yml")]
    [task] = yaml.safe_load((TOP / "roles/vllm_serve/tasks/front.yml").read_text(encoding="utf-8"))
    assert task["ansible.builtin.import_tasks"] == "configure.yml"
    brought = Templar(loader=DataLoader()).template(trust_as_template(task["vars"]["__vllm_serve_only"]))
    elsewhere = {name for name in brought if not name.startswith("/etc/sparkthor/front/")}
    assert elsewhere == {"/etc/sparkthor/secrets/api_key", "sparkthor-front.service"} < set(brought)
