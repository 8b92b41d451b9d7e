# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes of ours in the form of sparkrun, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.template import trust_as_template
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_export
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import load, names
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError, host_counts

from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL


@pytest.mark.parametrize("name", names())
def test_there_and_back(name: str, tmp_path: Path) -> None:
    recipe = load(name)
    hosts = host_counts(recipe)[0]
    path = tmp_path / "r.yaml"
    path.write_text(recipe_export.sparkrun(recipe, recipe["image"] or "o/i:1"))
    back = load(str(path))
    for key in ("model", "revision", "max_model_len", "args", "environment", "served_model_name", "summary"):
        assert back[key] == recipe[key], key
    assert back["image"] == (recipe["image"] or "o/i:1")
    assert hosts in host_counts(back)
    wanted = recipe["splits"].get(hosts) or recipe["split"]
    have = back["splits"].get(hosts, {})
    for key in ("tensor_parallel", "pipeline_parallel"):
        assert have.get(key, 1) == wanted.get(key, 1)


def test_an_image_of_the_inventory() -> None:
    """Ansible's own kind of text is text."""
    assert "container: o/i:1\n" in recipe_export.sparkrun(load("gpt-oss-120b"), trust_as_template("o/i:1"))


def test_another_number_of_hosts() -> None:
    text = recipe_export.sparkrun(load("deepseek-v4-flash"), hosts=4)
    assert "min_nodes: 4" in text
    assert "tensor_parallel: 4" in text
    with pytest.raises(RecipeError, match="not 3"):
        recipe_export.sparkrun(load("deepseek-v4-flash"), hosts=3)


def test_a_variable_that_is_taken_away_is_none_of_another_tools() -> None:
    for given, expected in (
        ({"OMP_NUM_THREADS": "1", "MAX_JOBS": None}, {"OMP_NUM_THREADS": "1"}),
        ({"MAX_JOBS": None}, None),
    ):
        text = recipe_export.sparkrun({**load("gpt-oss-120b"), "environment": given})
        assert yaml.safe_load(text).get("env") == expected


def test_values_survive_the_shell(tmp_path: Path) -> None:
    args = {"hf-overrides": {"a": {"b": "it's"}}, "enable-prefix-caching": False, "seed": 3}
    recipe = {**load("gpt-oss-120b"), "args": args}
    path = tmp_path / "r.yaml"
    path.write_text(recipe_export.sparkrun(recipe))
    assert load(str(path))["args"] == {
        "hf-overrides": {"a": {"b": "it's"}},
        "no-enable-prefix-caching": True,
        "seed": 3,
    }


def test_without_an_image() -> None:
    recipe = {**load("gpt-oss-120b"), "image": "", "name": MINIMAL["name"]}
    with pytest.raises(RecipeError, match="names no image"):
        recipe_export.sparkrun(recipe)
