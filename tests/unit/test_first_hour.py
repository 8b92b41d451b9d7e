# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What docs/first-hour.md names is there: recipes with plans for that many machines, playbooks, units of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/first-hour.md").read_text()
#: inventory and recipe of each planned row of the page on recipes, which has a test of its own
PLANNED = set(re.findall(r"^\| `(\S+)` \| `(\S+)` \|", (TOP / "docs/recipes.md").read_text(), re.MULTILINE))
CHOICES = [
    (inventory, recipe)
    for inventory, recipes in re.findall(r"^\| \d[^|]* \| `(\S+)` \| (.*) \|$", PAGE, re.MULTILINE)
    for recipe in re.findall(r"`(\S+?)`", recipes)
]


@pytest.mark.parametrize(("inventory", "recipe"), CHOICES)
def test_a_recipe_of_the_table_is_planned_for_those_machines(inventory: str, recipe: str) -> None:
    assert (recipe, inventory) in PLANNED


def test_every_inventory_that_the_page_names_has_a_choice() -> None:
    named = {name for name in re.findall(r"`(\d\w+)`", PAGE) if (TOP / "inventories" / name).is_dir()}
    assert named == {inventory for inventory, _recipe in CHOICES}
    assert len(named) == 7


def test_playbooks_and_units_of_the_page_exist() -> None:
    playbooks = set(re.findall(r"playbooks/(\w+\.yml)", PAGE))
    assert playbooks
    assert {name for name in playbooks if not (TOP / "playbooks" / name).is_file()} == set()
    units = {name.rstrip("-*'") for name in re.findall(r"journalctl -u '?(sparkthor-[\w*-]+)", PAGE)}
    sources = "".join(
        path.read_text()
        for folder in ("plugins", "roles")
        for path in (TOP / folder).rglob("*")
        if path.suffix in (".py", ".yml", ".j2")
    )
    assert len(units) > 4
    assert {unit for unit in units if unit not in sources} == set()
