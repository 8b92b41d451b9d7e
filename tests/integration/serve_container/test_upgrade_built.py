# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recipe's steps become an image: refused, failed, built once and served, unchanged, and back again."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import image_steps

from tests.integration.conftest import TOP
from tests.integration.lifecycle.conftest import Lifecycle
from tests.integration.serve.conftest import Serving
from tests.integration.serve_container.test_upgrade import PROOF, images

#: what every model that a server lists says of its owner
WORDS = 'owned_by: str = "vllm"'
BUILT = "docker images --quiet --no-trunc --filter label=sparkthor.build"


@pytest.fixture(scope="module")
def lifecycle(serving: Serving) -> Lifecycle:
    found = Lifecycle(serving.cluster)
    found.site(whole=True)
    found.assert_answers_as_one_host()
    return found


@dataclass
class Recipe:
    """The lab's recipe with a patch of vLLM and a script, and what the inventory says of them."""

    folder: Path
    acknowledged: dict[str, str] = field(default_factory=dict)

    def write(self, patch: str) -> None:
        (self.folder / "mod").mkdir(exist_ok=True)
        # without a capability, and without a network
        script = "#!/bin/sh\nset -e\ngrep -q '^CapEff:\\s*0*$' /proc/self/status\n"
        script += 'test "$(tail -n +2 /proc/net/route | wc -l)" = 0\necho built >/etc/lab-image\n'
        (self.folder / "mod/run.sh").write_text(script)
        (self.folder / "owner.patch").write_text(patch)
        said = {"source": "https://example.org/lab", "commit": "0" * 40, "licence": "GPL-3.0-or-later"}
        steps: list[dict[str, str]] = [
            {"kind": "patch", "name": "owner", "file": "owner.patch", "what": "Names another owner.", **said},
            {"kind": "mod", "name": "lab-mod", "file": "mod"},
        ]
        for step in steps:
            step["sha256"] = image_steps.step_digest(str(self.folder / step["file"]))
        self.acknowledged = {step["name"]: f"sha256:{step['sha256']}" for step in steps}
        recipe = yaml.safe_load((TOP / "recipes/tiny-qwen3.yml").read_text())
        recipe |= {"runtime": "container", "build": steps}
        (self.folder / "tiny-qwen3.yml").write_text(yaml.safe_dump(recipe))

    def variables(self) -> dict[str, Any]:
        path = str(self.folder / "tiny-qwen3.yml")
        return {"vllm_serve_recipe": path, "engine_build_acknowledged": dict(self.acknowledged)}


@pytest.fixture
def recipe(lifecycle: Lifecycle, tmp_path: Path) -> Recipe:
    """With a patch that is made of the file that the image has."""
    found = Recipe(tmp_path)
    cluster = lifecycle.cluster
    program = "import vllm, os; print(os.path.dirname(vllm.__path__[0]))"
    root = cluster.run(cluster.head, f"docker exec sparkthor-ray python3 -c '{program}'").strip().splitlines()[-1]
    search = f"cd {root} && grep -rlF --include=*.py {shlex.quote(WORDS)} vllm"
    name = cluster.run(cluster.head, f"docker exec sparkthor-ray sh -c {shlex.quote(search)}").split()[0]
    text = cluster.run(cluster.head, f"docker exec sparkthor-ray cat {root}/{name}")
    number, line = next((at, line) for at, line in enumerate(text.splitlines(), 1) if WORDS in line)
    found.write(
        f"--- a/{name}\n+++ b/{name}\n@@ -{number} +{number} @@\n-{line}\n+{line.replace('vllm', 'patched')}\n"
        "--- /dev/null\n+++ b/vllm/lab_patch.py\n@@ -0,0 +1 @@\n+PATCHED = True\n"
    )
    return found


def nobody(recipe: Recipe) -> str:
    recipe.acknowledged = {}
    return "patch owner (sha256:"


def another(recipe: Recipe) -> str:
    (recipe.folder / "mod/more.sh").write_text("echo more\n")
    return "sha256 is "


def unfit(recipe: Recipe) -> str:
    recipe.write("--- a/vllm/version.py\n+++ b/vllm/version.py\n@@ -1 +1 @@\n-no such line\n+another\n")
    return "it was made for another version"


@pytest.mark.parametrize("spoil", [nobody, another, unfit])
def test_an_image_that_is_not_built_changes_nothing(
    lifecycle: Lifecycle, recipe: Recipe, spoil: Callable[[Recipe], str]
) -> None:
    words = spoil(recipe)
    units, files = lifecycle.units(), lifecycle.files()
    outcome = lifecycle.play("site.yml", **recipe.variables())
    assert outcome.rc != 0
    assert words in outcome.output, outcome.failures
    assert (lifecycle.units(), lifecycle.files()) == (units, files)
    for host in lifecycle.cluster.hosts:
        assert lifecycle.cluster.run(host, f"{BUILT}; docker ps --all | grep engine-build", check=False) == "", host
        assert lifecycle.cluster.run(host, "ls /opt/sparkthor/images/build", check=False) == "", host
    assert images(lifecycle) == {"first"}
    assert lifecycle.complete(20)


def owner(lifecycle: Lifecycle) -> str:
    return lifecycle.api.models.list().data[0].owned_by


def test_an_image_is_built_once_served_and_left_again(lifecycle: Lifecycle, recipe: Recipe) -> None:
    assert owner(lifecycle) == "vllm"
    outcome = lifecycle.play("playbooks/upgrade.yml", **PROOF, **recipe.variables())
    assert outcome.rc == 0, outcome.failures
    cluster = lifecycle.cluster
    assert outcome.output.count("is being built: owner, lab-mod") == 1
    assert f"{cluster.head}: sparkthor/engine:built-" in outcome.output
    assert images(lifecycle) == {"built"}
    assert owner(lifecycle) == "patched"
    label = (
        "docker images --quiet --no-trunc --filter label=sparkthor.build --filter reference='sparkthor/engine:built-*'"
    )
    found = {host: cluster.run(host, label).split() for host in cluster.hosts}
    assert {len(ids) for ids in found.values()} == {1}, found
    assert len({ids[0] for ids in found.values()}) == 1, found
    for host in cluster.hosts:
        assert cluster.run(host, "ls /opt/sparkthor/images/archive", check=False) == "", host
    lifecycle.assert_answers_as_one_host()
    again = lifecycle.play("site.yml", **recipe.variables())
    assert (again.rc, again.changes) == (0, []), again.changed
    back = lifecycle.play("playbooks/rollback.yml", roll_back_to="previous")
    assert back.rc == 0, back.failures
    assert images(lifecycle) == {"first"}
    assert owner(lifecycle) == "vllm"
    lifecycle.assert_answers_as_one_host()
