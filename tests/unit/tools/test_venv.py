# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which programs ``make`` asks for: a controller of real machines has to have none of the lab's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
READ = ("requirements/dev.txt", "lab/pyproject.toml", "tools/venv.sh")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One whose .venv is made, on a machine of a user who may install nothing."""
    for name in READ:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(TOP / name, tmp_path / name)
    digest = hashlib.sha256(b"".join((TOP / name).read_bytes() for name in READ)).hexdigest()[:16]
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to("/bin/true")
    (tmp_path / ".venv/.sparkthor-requirements").write_text(f"{digest} {tmp_path}\n", encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "dirname", "cat", "sha256sum", "cut"):
        (programs / name).symlink_to(str(shutil.which(name)))
    for name in ("id", "ssh", "git"):
        (programs / name).write_text("#!/bin/sh\necho 1000\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    return tmp_path


def made(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(checkout / "bin/bash"), "tools/venv.sh", *arguments],
        cwd=checkout,
        env={"PATH": str(checkout / "bin"), "HOME": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_controller_goes_on_without_the_labs_programs(checkout: Path) -> None:
    done = made(checkout)
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    assert line.startswith("venv: make up and the tests also need these Debian packages: rsync ")
    for program in ("ssh", "git"):
        (checkout / "bin" / program).rename(checkout / program)
        assert made(checkout).returncode == 2
        (checkout / program).rename(checkout / "bin" / program)


def test_lab_and_tests_insist(checkout: Path) -> None:
    done = made(checkout, "all")
    assert done.returncode == 2
    assert "missing: rsync " in done.stderr


@pytest.mark.parametrize(("target", "arguments"), [("venv", ""), ("up", " all"), ("test", " all")])
def test_only_make_venv_is_for_a_controller_alone(target: str, arguments: str) -> None:
    shown = subprocess.run(["make", "-n", target], cwd=TOP, capture_output=True, text=True, check=True).stdout
    assert f"tools/venv.sh{arguments}" in [line.strip() for line in shown.splitlines()]
