# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run compares first, and no role or playbook has to know of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import compared, role_tasks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles

from tests.unit.plays import plays

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
PREFIX = "sparkthor.cluster."


def imports(playbook: str) -> list[dict[str, Any]]:
    """The tasks of a playbook's play of roles that import them."""
    [play] = [play for play in plays(playbook) if len(play["tasks"]) > 4]
    return [task for task in play["tasks"] if "ansible.builtin.import_role" in task]


@pytest.mark.parametrize("playbook", ["site", "host_layer"])
def test_roles_are_compared_in_the_order_in_which_they_run(playbook: str) -> None:
    preflight, *others = imports(playbook)
    assert preflight["vars"] == {"preflight_compare": True}
    roles = [task["ansible.builtin.import_role"]["name"].removeprefix(PREFIX) for task in others]
    # the last import of a role is the one that acts
    last = sorted(set(roles), key=lambda role: len(roles) - roles[::-1].index(role))
    assert last == [role for role in play_roles.IMPORTS if role in roles]


def test_no_role_and_no_playbook_skips_what_is_converged() -> None:
    for path in [*TOP.glob("roles/*/tasks/*.yml"), *TOP.glob("playbooks/**/*.yml")]:
        text = path.read_text(encoding="utf-8")
        assert "preflight_found.converged" not in text, path
        assert "preflight_found | default" not in text, path


@pytest.mark.parametrize("role", play_roles.IMPORTS)
def test_what_a_comparison_reads_is_there(role: str) -> None:
    """A run imports these files, so a comparison that reads fewer would leave a task unasked."""
    entries = role_tasks.ENTRIES.get(role, ("main.yml",))
    assert {path.name for path in (TOP / "roles" / role / "tasks").glob("*.yml")} >= set(entries)
    used = {
        task["ansible.builtin.import_role"].get("tasks_from", "main.yml")
        for task in imports("site")
        if task["ansible.builtin.import_role"]["name"] == f"{PREFIX}{role}"
    }
    # main.yml includes prepare.yml; what waits for Ray is asked of the head; the engine's main.yml finds as much
    assert used - set(entries) <= {"prepare.yml", "wait.yml", "preflight.yml"}


def test_every_module_that_answers_is_compared_on_the_host() -> None:
    from ansible_collections.sparkthor.cluster.plugins.module_utils._drift import compare

    # the options of vLLM are checked on the controller, and for an image Docker has to be asked
    for module in compared.COMPARED - {"vllm_options", "engine_image"} | {"ray_info"}:
        assert callable(compare.difference_of(module))
    with pytest.raises(KeyError):
        compare.difference_of("engine_image")


def test_the_play_ends_where_nothing_differs() -> None:
    last = yaml.safe_load((TOP / "roles/preflight/tasks/main.yml").read_text(encoding="utf-8"))[-1]
    assert (last["ansible.builtin.meta"], last["when"]) == ("end_play", "preflight_found.nothing_to_do")
