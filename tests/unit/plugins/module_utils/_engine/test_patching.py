# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A patch is applied as it stands or not at all; the program runs under another Python, as in an image."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._engine import patching

TEXT = "".join(f"line{number} = {number}\n" for number in range(1, 9))
CHANGE = """\
From 0123: a commit's words
--- a/engine/one.py
+++ b/engine/one.py
@@ -2,3 +2,4 @@ def somewhere():
 line2 = 2
-line3 = 3
+line3 = 30
+added = 1
 line4 = 4
"""
NEW = "--- /dev/null\n+++ b/engine/more/new.py\n@@ -0,0 +1 @@\n+NEW = True\n"
GONE = "--- a/engine/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-OLD = 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "engine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(TEXT)
    (package / "old.py").write_text("OLD = 1\n")
    return tmp_path


def run(root: Path, patch: str) -> subprocess.CompletedProcess[str]:
    """As the container runs it: the program's source alone."""
    (root / "program.py").write_text(inspect.getsource(patching))
    (root / "it.patch").write_text(patch)
    argv = [sys.executable, "program.py", "engine", "it.patch"]
    return subprocess.run(argv, cwd=root, env={"PYTHONPATH": str(root)}, capture_output=True, text=True, check=False)


def test_files_are_changed_made_and_removed(root: Path) -> None:
    done = run(root, CHANGE + NEW + GONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [
        *("patched", "engine/one.py", "patched", "engine/more/new.py", "patched", "engine/old.py")
    ]
    assert "line3 = 30\nadded = 1\nline4" in (root / "engine/one.py").read_text()
    assert (root / "engine/more/new.py").read_text() == "NEW = True\n"
    assert not (root / "engine/old.py").exists()


def test_a_hunk_may_have_moved_where_its_place_is_plain(root: Path) -> None:
    (root / "engine/one.py").write_text("first = 0\n" * 5 + TEXT)
    assert run(root, CHANGE).returncode == 0
    assert (root / "engine/one.py").read_text().count("line3 = 30") == 1


def test_a_last_line_without_an_end(root: Path) -> None:
    (root / "engine/one.py").write_text("a = 1\nb = 2")
    patch = "--- a/engine/one.py\n+++ b/engine/one.py\n@@ -1,2 +1,2 @@\n a = 1\n-b = 2\n"
    patch += "\\ No newline at end of file\n+b = 3\n"
    assert run(root, patch).returncode == 0
    assert (root / "engine/one.py").read_text() == "a = 1\nb = 3\n"


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        (CHANGE.replace("line4 = 4", "line4 = 5"), "engine/one.py: the hunk of line 2 fits no place"),
        (CHANGE.replace("engine/one.py", "engine/two.py"), "engine/two.py: there is no such file in the image"),
        (CHANGE.replace("a/engine/one.py", "a/../one.py"), "is no path below the package's folder"),
        (
            CHANGE.replace("a/engine/one.py", "/etc/passwd").replace("b/engine/one.py", "b//etc/passwd"),
            "is no path below",
        ),
        (CHANGE.replace("-2,3 +2,4", "-2,3 +2,9"), "the hunk has not the lines that its head says"),
        (NEW.replace("more/new.py", "one.py"), "the patch makes this file, and the image has it"),
        (CHANGE.replace("+added = 1", "+added = = 1"), "invalid syntax"),
        ("words alone\n", "it holds no hunk"),
        ("rename from a\nrename to b\n", "it renames, copies or holds binary files"),
        ("@@ -1 +1 @@\n-a\n+b\n", "a hunk stands before the name of its file"),
    ],
)
def test_a_patch_that_does_not_fit_changes_nothing(root: Path, patch: str, words: str) -> None:
    done = run(root, NEW + patch if "new.py" not in patch and patch.startswith("From") else patch)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert (root / "engine/one.py").read_text() == TEXT
    assert not (root / "engine/more").exists()


def test_two_places_are_none(root: Path) -> None:
    (root / "engine/one.py").write_text("x = 0\n" + TEXT + TEXT)
    assert "fits 2 places" in run(root, CHANGE).stderr


def test_a_package_that_the_image_lacks(root: Path) -> None:
    with pytest.raises(patching.PatchError, match="there is no Python package no_such_package"):
        patching.main("no_such_package", str(root / "it.patch"))
