# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would end a molecule scenario before its first test: the names and places in its molecule.yml."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from sparklab.plan import check_lab_name

TOP = Path(__file__).parents[3]
SCENARIOS = {path.parent.name: yaml.safe_load(path.read_text()) for path in TOP.glob("molecule/*/molecule.yml")}
#: labs that a scenario's tests make by themselves are named after it
MADE_BY_TESTS = {"ray": "-8", "ray_short": "-3"}


def environment(name: str) -> dict[str, str]:
    return SCENARIOS[name].get("ansible", {}).get("env", {})


@pytest.mark.parametrize("name", sorted(name for name in SCENARIOS if environment(name)))
def test_a_lab_can_have_the_name(name):
    check_lab_name(environment(name)["SPARKLAB_NAME"] + MADE_BY_TESTS.get(name, ""))


def test_scenarios_can_run_beside_one_another():
    given = [environment(name) for name in SCENARIOS if environment(name)]
    labs = {each["SPARKLAB_NAME"]: each["SPARKLAB_SUBNET"] for each in given}
    assert len(set(labs.values())) == len(labs)


def test_labs_that_tests_and_tools_make_have_subnets_of_their_own():
    """Labs of one subnet cannot stand beside one another: the second is refused when it runs, which few see."""
    owners: dict[str, set[str]] = {}
    for folder in ("molecule", "tests/integration", "tools", "inventories"):
        for path in (TOP / folder).rglob("*.[py][ym]*"):
            for subnet in re.findall(r"\b10\.(?:7[789]|8[2345])\.\d+\.0/24\b", path.read_text()):
                owners.setdefault(subnet, set()).add(owner(path))
    assert not {subnet: names for subnet, names in owners.items() if len(names) > 1}


def owner(path: Path) -> str:
    """Whose lab it is: a scenario's with its tests, a tool's, or one that an owner may have made of an inventory."""
    place = path.relative_to(TOP)
    if place.parts[0] == "inventories":
        return "an owner"
    scenario = place.parts[1] if place.parts[0] == "molecule" else place.parts[-2]
    given = next((name for name in SCENARIOS if environment(name).get("SPARKLAB_TESTS") == scenario), scenario)
    return {"model_store_short": "model_store", "border_lab": "border"}.get(given, given)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_its_inventory_and_tests_exist(name):
    given = environment(name)
    assert (TOP / "tests/integration" / given.get("SPARKLAB_TESTS", name)).exists()
    if "SPARKLAB_INVENTORY" in given:
        assert (TOP / "inventories" / given["SPARKLAB_INVENTORY"]).is_dir()


@pytest.mark.parametrize("name", sorted(name for name in SCENARIOS if "/.lab/" in str(SCENARIOS[name])))
def test_the_play_reads_the_overlay_of_its_own_lab(name):
    words = [word for word in SCENARIOS[name]["ansible"]["executor"]["args"]["ansible_playbook"] if "/.lab/" in word]
    assert [Path(word).parent.name for word in words] == [environment(name)["SPARKLAB_NAME"]]
