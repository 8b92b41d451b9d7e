# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run of site.yml with some of its tags takes along: units are written for the engine that its role finds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
BUILDS = "engine : Install Ray and vLLM"
FETCHES = "engine : Find wheels and image on the controller"
#: a task that writes Ray's files, and one that writes vLLM's
RAY, VLLM = "ray_node : ", "vllm_serve : "


def tasks(*selected: str) -> str:
    program = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [str(program), "site.yml", "--inventory=inventories/lab", "--list-tasks", *selected],
        cwd=TOP,
        env={**os.environ, "ANSIBLE_CONFIG": str(TOP / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


@pytest.mark.parametrize(
    ("selected", "ray", "vllm"),
    [
        ("--tags=ray", True, True),  # whether what is to be served suits the engine is checked with Ray
        ("--tags=vllm_serve", False, True),
        ("--skip-tags=vllm_serve", True, False),
        ("--skip-tags=vllm_serve,model_store", True, False),
        ("--skip-tags=ray", False, True),
    ],
)
def test_neither_ray_nor_vllm_comes_without_the_engine(selected: str, ray: bool, vllm: bool) -> None:
    listed = tasks(selected)
    assert (RAY in listed, VLLM in listed) == (ray, vllm)
    for task in (FETCHES, BUILDS):
        assert task in listed, f"{selected}: {task}"


@pytest.mark.parametrize("selected", ["--tags=network", "--skip-tags=engine", "--skip-tags=ray,vllm_serve"])
def test_a_run_that_has_no_use_for_the_engine_leaves_it_alone(selected: str) -> None:
    listed = tasks(selected)
    for task in (FETCHES, BUILDS):
        assert task not in listed, f"{selected}: {task}"
