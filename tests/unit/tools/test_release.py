# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tools import release

CHANGELOG = """\
=====
Notes
=====

v0.3.0
======

Bugfixes
--------

- third

v0.2.0
======

- second
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "galaxy.yml").write_text("version: 0.3.0\n")
    (tmp_path / "changelogs" / "fragments").mkdir(parents=True)
    (tmp_path / "changelogs" / "changelog.yaml").write_text("releases: {0.2.0: {}, 0.3.0: {}}\n")
    return tmp_path


def test_a_tag_that_agrees_has_no_problem(checkout: Path) -> None:
    assert release.problems("v0.3.0", checkout) == []


def test_every_disagreement_is_named_with_its_fix(checkout: Path) -> None:
    (checkout / "galaxy.yml").write_text("version: 0.4.0\n")
    (checkout / "changelogs" / "fragments" / "one.yml").write_text("bugfixes: [x]\n")
    found = release.problems("v0.3.0", checkout)
    assert [problem.partition(";")[0] for problem in found] == [
        "the tag is v0.3.0, but galaxy.yml has the version 0.4.0",
        "the changelog has no version 0.4.0",
        "changes were not released: one.yml",
    ]


def test_the_changelog_of_a_tagged_version_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = Path(release.TOP / "tools" / "changelog.sh").read_text(encoding="utf-8")
    (tmp_path / "tools" / "changelog.sh").write_text(script, encoding="utf-8")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(tmp_path)]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"], ["tag", "v0.2.0"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    done = subprocess.run(
        ["bash", "tools/changelog.sh", "0.2.0"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "make changelog: v0.2.0 is tagged, so its changes are told; name the next version\n"
    assert not (tmp_path / "CHANGELOG.rst").exists()


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes(CHANGELOG, "0.3.0") == "Bugfixes\n--------\n\n- third\n"
    assert release.notes(CHANGELOG, "0.2.0") == "- second\n"


def test_the_top_of_an_archive_is_counted() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as files:
        for name in ("docs/a.md", "docs/b.md", "README.md"):
            files.addfile(tarfile.TarInfo(name))
    assert release.folders(stream.getvalue()) == {"README.md": 1, "docs": 2}
