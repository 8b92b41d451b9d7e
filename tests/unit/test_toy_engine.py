# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A new engine is one file on each side and one template, as docs/developers-design.md says.

A copy of the collection gets the toy engine of tests/fixtures/toy_engine; the suites that hold for every engine run
there, and the toy is served, counted and ended by the programs of hosts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
TOY = TOP / "tests" / "fixtures" / "toy_engine"
ON_HOST = "plugins/module_utils/_onhost/engines"
PLANNED = "plugins/plugin_utils/_plan/engines"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection with the toy: two files, one template, and a name in each registry."""
    top = tmp_path_factory.mktemp("toy") / "ansible_collections" / "sparkthor" / "cluster"
    for part in ("plugins", "roles", "recipes", "tests/unit", "tests/fixtures", "meta"):
        shutil.copytree(TOP / part, top / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("galaxy.yml", "conftest.py", "pyproject.toml"):
        shutil.copy(TOP / name, top / name)
    shutil.copy(TOY / "on_host.py", top / ON_HOST / "toy.py")
    shutil.copy(TOY / "planned.py", top / PLANNED / "toy.py")
    shutil.copy(TOY / "toy.yaml.j2", top / "roles/vllm_serve/templates/toy.yaml.j2")
    package = "ansible_collections.sparkthor.cluster." + PLANNED.replace("/", ".")
    for path, imported, entry in (
        (f"{ON_HOST}/registry.py", "from .toy import TOY", "TOY"),
        (f"{PLANNED}/registry.py", f"from {package}.toy import PlannedToy", "PlannedToy()"),
    ):
        text = (top / path).read_text(encoding="utf-8")
        text = text.replace("\n#: ", f"\n{imported}\n\n#: ", 1) if "\n#: " in text else text
        text = text if imported in text else text.replace("\nVARIABLE = ", f"\n{imported}\n\nVARIABLE = ", 1)
        text, number = re.subn(r"(for one in \()(?=\w)", rf"\g<1>{entry}, ", text, count=1)
        assert number == 1
        (top / path).write_text(text, encoding="utf-8")
    shutil.copy(TOY / "suite.py", top / "tests/unit/test_toy_suite.py")
    return top


@pytest.mark.parametrize(
    "suite",
    [
        "tests/unit/plugins/module_utils/_onhost/engines/test_interface.py",
        "tests/unit/plugins/plugin_utils/_plan/engines/test_interface.py",
        "tests/unit/test_toy_suite.py",
    ],
)
def test_the_toy_is_an_engine_like_any_other(collection: Path, suite: str) -> None:
    only = [] if suite.endswith("suite.py") else ["-k", "toy"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *only, suite],
        cwd=collection,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(collection.parents[2]), "PYTHONPATH": str(collection)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
