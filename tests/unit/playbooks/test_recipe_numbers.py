# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``recipe.yml`` by numbers of machines alone, for somebody who has no inventory yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())


def recipe(*words: str) -> tuple[int, str]:
    program = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "playbooks/recipe.yml", *(word for given in words for word in ("-e", given))],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (["recipe_sparks=2"], "qwen3-30b-a3b-thinking-fp8"),
        (["recipe_sparks=2", "recipe_thors=2"], "nemotron-3-super-120b-a12b-nvfp4"),
        (["recipe_sparks=3", "fabric_topology=ring"], "qwen3.5-397b-a17b-nvfp4"),
    ],
)
def test_numbers_are_enough_for_the_table(given: list[str], name: str) -> None:
    status, said = recipe(*given)
    assert status == 0, said
    table = said.partition("RECIPE ")[2].partition("Not on these hosts")[0]
    assert name in [line.split()[0] for line in table.splitlines() if line.strip()]


def test_what_is_no_number_is_refused() -> None:
    status, said = recipe("recipe_sparks=two")
    assert status != 0
    assert "recipe_sparks=two is not a number of machines; give one, as recipe_sparks=2" in said
