# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recipe may do to its image: declared whole, acknowledged by digest, and refused before anything is fetched."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import image_steps
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError

PATCH = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n@@ -1 +1 @@\n-a\n+b\n"
SHA = hashlib.sha256(PATCH).hexdigest()


def step(**values: Any) -> dict[str, Any]:
    said = {"source": "https://example.org/x", "commit": "a" * 40, "licence": "Apache-2.0", "what": "Mends heads."}
    return {"kind": "patch", "name": "heads", "file": "heads.patch", "sha256": SHA, **said, **values}


def recipe(*steps: dict[str, Any], **values: Any) -> dict[str, Any]:
    return {"name": "mine", "image": "", "build": list(steps), **values}


@pytest.mark.parametrize(
    ("build", "words"),
    [
        ("a.patch", "build is no list of steps"),
        ([step(licence="")], "step 1 ('heads') has no licence"),
        ([step(licence=None)], "has no licence"),
        ([step(sha256="")], "has no sha256"),
        ([step(commit="")], "has no commit"),
        ([step(sha256="abc")], "sha256 is 'abc'"),
        ([step(commit="main")], "commit is 'main'"),
        ([step(kind="script")], "kind is 'script'"),
        ([step(file="../heads.patch")], "file is '../heads.patch'"),
        ([step(file="/etc/heads.patch")], "file is '/etc/heads.patch'"),
        ([step(file="heads.py")], "A patch ends with .patch or .diff"),
        ([step(kind="package", file="x.tar.gz")], "A package ends with .whl"),
        ([step(into="vllm; rm")], "into is 'vllm; rm'"),
        ([step(name="a b")], "name is 'a b'"),
        ([step(what="two\nlines")], "what is 'two\\nlines'"),
        ([step(run="x")], "has unknown fields run"),
        ([step(), step()], "two steps have this name"),
        ([{"kind": "mod", "name": "m", "file": "m"}], "has no sha256"),
    ],
)
def test_a_step_that_is_not_declared_whole(build: Any, words: str) -> None:
    what, fix = image_steps.problem_of_build(build)
    assert words in f"{what} {fix}"
    assert fix.endswith(".")
    with pytest.raises(RecipeError, match="build"):
        _recipe.load({**yaml.safe_load(Path(_recipe.SHIPPED, "tiny-qwen3.yml").read_text()), "build": build})


def test_a_step_that_is() -> None:
    package = step(kind="package", name="kernels", file="kernels-1.0-py3-none-any.whl", into="vllm")
    assert image_steps.problem_of_build([step(), package]) == ("", "")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, f"patch heads (sha256:{SHA}) is acknowledged by nobody"),
        (None, "is acknowledged by nobody"),
        ({"heads": "sha256:" + "0" * 64}, f"is not what was acknowledged, sha256:{'0' * 64}"),
        ({"heads": True}, "is not what was acknowledged, True"),
        ({"other": f"sha256:{SHA}"}, "is acknowledged by nobody"),
    ],
)
def test_nothing_is_done_that_the_inventory_does_not_acknowledge(given: Any, words: str) -> None:
    with pytest.raises(image_steps.StepError) as caught:
        image_steps.acknowledged(recipe(step()), given, True)
    assert words in str(caught.value)
    assert f"engine_build_acknowledged: {{heads: 'sha256:{SHA}'}}" in str(caught.value)
    assert str(caught.value).startswith("recipe mine: build: ")


def test_what_is_acknowledged_left_out_or_of_another_image() -> None:
    known = {"heads": f"sha256:{SHA}"}
    assert image_steps.acknowledged(recipe(step()), known, True) == ([step()], [])
    assert image_steps.acknowledged(recipe(), {}, False) == ([], [])
    assert image_steps.acknowledged(recipe(step()), {"heads": False}, False) == (
        [],
        ["recipe mine: heads is left out of its image"],
    )
    other = image_steps.acknowledged(recipe(step(), image="a:1"), {}, True, "b:1")
    assert other == ([], ["recipe mine: b:1 serves, so without its heads"])
    assert image_steps.acknowledged(recipe(step(), image="a:1"), known, True, "a:1") == ([step()], [])
    with pytest.raises(image_steps.StepError, match="engine_runtime is venv"):
        image_steps.acknowledged(recipe(step()), known, False)


def test_the_image_is_named_by_all_that_goes_into_it() -> None:
    first = image_steps.inputs("sha256:a", "script", [step()])
    assert first == image_steps.inputs("sha256:a", "script", [step(what="other words", path="/elsewhere")])
    others = {
        image_steps.inputs("sha256:b", "script", [step()]),
        image_steps.inputs("sha256:a", "another", [step()]),
        image_steps.inputs("sha256:a", "script", [step(sha256="0" * 64)]),
        image_steps.inputs("sha256:a", "script", [step(into="other")]),
    }
    assert len({first, *others}) == 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "heads.patch").write_bytes(PATCH)
    return tmp_path


def test_files_are_those_of_their_digest(folder: Path) -> None:
    assert image_steps.places([step()], str(folder), "mine") == [("00/heads.patch", str(folder / "heads.patch"))]
    (folder / "heads.patch").write_bytes(PATCH + b"\n")
    with pytest.raises(image_steps.StepError, match=f"recipe mine: build: heads: sha256 is {SHA}, but"):
        image_steps.places([step()], str(folder), "mine")
    (folder / "heads.patch").unlink()
    with pytest.raises(image_steps.StepError, match=r"neither beside the recipe nor in .*\. Put it there from https"):
        image_steps.places([step()], str(folder), "mine")


def checkout(folder: Path) -> Path:
    """A recipe of another tool with a mod, as they lie in its repository."""
    (folder / "mods/fix").mkdir(parents=True)
    (folder / "mods/fix/run.sh").write_text("echo fixed\n")
    (folder / "mods/fix/more.py").write_text("x = 1\n")
    (folder / "recipes").mkdir()
    text = (
        "recipe_version: 1\nname: theirs\nmodel: some/model\nruntime: vllm\ncontainer: own/image:1\nmods: [mods/fix]\n"
    )
    (folder / "recipes/theirs.yaml").write_text(text)
    return folder / "recipes/theirs.yaml"


def test_mods_of_a_checkout_are_steps_known_by_their_files(folder: Path) -> None:
    found = _recipe.load(str(checkout(folder)))
    (mod,) = found["build"]
    assert (mod["kind"], mod["name"], mod["path"]) == ("mod", "mods/fix", str(folder / "mods/fix"))
    assert not [note for note in found["untranslated"] if "mods" in note]
    known = {"mods/fix": f"sha256:{mod['sha256']}"}
    assert image_steps.acknowledged(found, known, True)[0] == [mod]
    assert [path for path, _whole in image_steps.places([mod], "", "theirs")] == ["00/more.py", "00/run.sh"]
    (folder / "mods/fix/more.py").write_text("x = 2\n")
    with pytest.raises(image_steps.StepError, match="is not what was acknowledged"):
        image_steps.acknowledged(_recipe.load(str(folder / "recipes/theirs.yaml")), known, True)
    with pytest.raises(image_steps.StepError, match="sha256 is"):
        image_steps.places([mod], "", "theirs")


def test_mods_that_are_not_there_stay_named_and_undone(folder: Path) -> None:
    path = checkout(folder)
    (folder / "mods/fix/run.sh").unlink()
    found = _recipe.load(str(path))
    assert found["build"] == []
    assert "mods mods/fix (patches of the image, which are not applied)" in found["untranslated"]


def test_a_mod_that_leads_elsewhere_is_refused(folder: Path) -> None:
    path = checkout(folder)
    (folder / "mods/fix/secret").symlink_to("/etc/passwd")
    with pytest.raises(RecipeError, match="is no plain file"):
        _recipe.load(str(path))


def test_a_step_finds_its_file_beside_the_recipe(folder: Path) -> None:
    data = {**yaml.safe_load(Path(_recipe.SHIPPED, "tiny-qwen3.yml").read_text()), "build": [step()]}
    (folder / "mine.yml").write_text(yaml.safe_dump(data))
    assert _recipe.load(str(folder / "mine.yml"))["build"][0]["path"] == str(folder / "heads.patch")
    (folder / "heads.patch").unlink()
    (folder / "heads.patch").symlink_to("/etc/hostname")
    assert "path" not in _recipe.load(str(folder / "mine.yml"))["build"][0]
