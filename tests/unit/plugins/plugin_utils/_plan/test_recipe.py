# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes as files: by name and by path, and those that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.sparkthor.cluster.plugins.filter.recipe import FilterModule
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe import load
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

from tests.unit.plugins.plugin_utils._plan.minimal_recipe import MINIMAL


def test_an_unknown_recipe_names_the_closest() -> None:
    with pytest.raises(RecipeError, match=r"Did you mean qwen3\.5-397b-a17b-fp8 or qwen3\.5-397b-a17b-nvfp4\?$"):
        load("qwen3.5-397b")
    with pytest.raises(RecipeError, match=r"Did you mean qwen3\.5-397b-a17b-nvfp4 or qwen3\.5-397b-a17b-fp8\?$"):
        load("qwen3.5-397b", hosts=3)
    with pytest.raises(RecipeError, match="There are: deepseek"):
        load("zzzzzz")
    with pytest.raises(RecipeError, match="is not a name"):
        load("  ")


def test_a_number_sign_in_a_folder_is_no_variant(tmp_path: Path) -> None:
    folder = tmp_path / "my#recipes"
    folder.mkdir()
    (folder / "a#1.yml").write_text(json.dumps(MINIMAL))
    assert load(str(folder / "a#1.yml"))["name"] == MINIMAL["name"]
    with pytest.raises(RecipeError, match=r"has no variants\. Leave out #x"):
        load(str(folder / "a#1.yml#x"))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="cannot be read: No such file"):
        load(str(tmp_path / "x.yml"))
    (tmp_path / "x.yml").write_text("- a")
    with pytest.raises(RecipeError, match="does not hold a dictionary"):
        load(str(tmp_path / "x.yml"))


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))
LEVELS = "".join(f"l{n}: &l{n} {{a: {f'*l{n - 1}' if n else 1}}}\n" for n in range(60))
LONG = f"long: &long {'x' * 100_000}\nlist: [{', '.join(['*long'] * 100)}]\n"


@pytest.mark.parametrize("text", [f"{BOMB}image: *a29\n", LEVELS, LONG], ids=["values", "levels", "characters"])
def test_no_recipe_takes_the_controller_s_memory(tmp_path: Path, text: str) -> None:
    """Aliases are one object for Python, and as many as they say for whoever shows or copies them."""
    (tmp_path / "x.yml").write_text(f"name: x\n{text}")
    with pytest.raises(RecipeError, match=r"x\.yml' has more than 100000 values") as caught:
        load(str(tmp_path / "x.yml"))
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: x\nargs:\n  foo: bar: baz\n", "line 3, key 'foo': mapping values are not allowed"),
        ("args:\n  a: 1\n  - x\n", "line 3, key 'a': "),
        ("name: x\nenv:\n  HF_TOKEN: 'hf_secret\nb: 2\n", "line 3, key 'HF_TOKEN': while scanning a quoted scalar"),
        ("list: [1, 2\nb: 3\n", "line 1, key 'list': while parsing a flow sequence"),
        ("{a: [", "line 1, key 'a': while parsing a flow"),
        ("a: 1\nb: \x07\n", "line 2, key 'b': "),
        ("a: *x\n", "line 1, key 'a': found undefined alias"),
        ("- *x\n", "line 1: found undefined alias"),
    ],
)
def test_broken_yaml_names_file_line_and_key_and_no_value(tmp_path: Path, text: str, place: str) -> None:
    path = tmp_path / "x.yml"
    path.write_text(text)
    with pytest.raises(RecipeError, match="is not YAML") as caught:
        load(str(path))
    assert f"{path}, {place}" in str(caught.value)
    assert "Correct it there" in str(caught.value)
    assert "hf_secret" not in str(caught.value)


def test_a_recipe_in_another_encoding_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "x.yml").write_bytes(b"name: x\nmodel: caf\xe9\n")
    with pytest.raises(RecipeError, match=r"x\.yml, line 2: not UTF-8\. Save the file as UTF-8"):
        load(str(tmp_path / "x.yml"))


def test_the_filter() -> None:
    door = FilterModule().filters()["recipe"]
    assert door("tiny-qwen3", hosts=["a"], topology="lan")["tensor_parallel"] == 1
    with pytest.raises(AnsibleFilterError, match="recipe: vllm_serve_recipe='nope' is unknown"):
        door("nope", hosts=["a"])
