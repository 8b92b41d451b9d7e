# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import play_roles

from tests.unit.plays import plays

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


def run(run_tags: list[str], skip_tags: list[str]) -> dict[str, Any]:
    names = [f"sparkthor.cluster.{role}" for role in ("preflight", "engine", "os_hardening", "firewall", "vllm_serve")]
    return {"ansible_play_role_names": names, "ansible_run_tags": run_tags, "ansible_skip_tags": skip_tags}


EVERY = {"preflight", "engine", "os_hardening", "firewall", "vllm_serve"}


@pytest.mark.parametrize(
    ("run_tags", "skip_tags", "left_out"),
    [
        (["all"], [], set()),
        (["network"], [], {"engine", "os_hardening", "vllm_serve"}),
        (["vllm_serve"], [], {"os_hardening", "firewall"}),
        (["all"], ["engine"], {"engine"}),
        # one import of the role is left
        (["all"], ["vllm_serve"], {"vllm_serve"}),
        (["all"], ["ray_head"], set()),
        # a tag of a task, or one that a user gave: it may select anything
        (["os_hardening_swap"], [], set()),
        (["mine"], ["firewall"], {"firewall"}),
    ],
)
def test_the_roles_of_a_run_are_those_that_its_tags_select(
    run_tags: list[str], skip_tags: list[str], left_out: set[str]
) -> None:
    variables = run(run_tags, skip_tags)
    assert play_roles.in_run(variables) == EVERY - left_out
    assert play_roles.in_play(variables) == EVERY


def test_a_run_without_ansibles_variables_comes_to_no_role() -> None:
    assert play_roles.in_run({}) == set()


@pytest.mark.parametrize("playbook", ["site", "host_layer"])
def test_the_tags_are_those_of_the_playbooks(playbook: str) -> None:
    found: dict[str, set[frozenset[str]]] = {}
    for play in plays(playbook):
        for task in play["tasks"]:
            # vLLM's own start and usage; its first import says as much and more
            later = task["name"] in ("Serve the model", "Show how to use the API")
            if "ansible.builtin.import_role" in task and not later:
                role = task["ansible.builtin.import_role"]["name"].rpartition(".")[2]
                found.setdefault(role, set()).add(frozenset(task["tags"]))
    del found["preflight"]
    assert found == {role: set(play_roles.IMPORTS[role]) for role in found}


@pytest.mark.parametrize(
    ("run_tags", "skip_tags", "expected"),
    [
        (["all"], [], True),
        (["vllm_serve"], [], True),
        (["network", "something_of_the_users"], [], True),
        (["ray"], [], False),
        (["ray_head", "ray_worker"], [], False),
        (["engine"], [], False),
        (["all"], ["vllm_serve"], False),
    ],
)
def test_a_run_that_starts_ray_alone_serves_nothing(run_tags: list[str], skip_tags: list[str], expected: bool) -> None:
    assert play_roles.serves(run(run_tags, skip_tags)) is expected


def test_a_play_without_the_role_serves_nothing() -> None:
    assert not play_roles.serves({"ansible_play_role_names": ["firewall"], "ansible_run_tags": ["all"]})
