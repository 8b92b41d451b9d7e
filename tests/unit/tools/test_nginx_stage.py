# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``make nginx`` leaves of the machine's nginx.service where it installs nginx."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
MASKED = ["systemctl --quiet mask nginx.service", "apt-get", "apt-get", "systemctl --quiet unmask nginx.service"]
DISABLED = "systemctl --quiet disable nginx.service"


def staged(folder: Path, state: str, installed: bool, apt: int) -> tuple[int, list[str]]:
    """The exit code, and which programs the stage calls to change something."""
    (folder / "tools").mkdir()
    words = (TOP / "tools/test.sh").read_text(encoding="utf-8")
    own = words.replace("/usr/sbin/nginx", f"{folder}/nginx").replace("/usr/lib/nginx", f"{folder}/none")
    (folder / "tools/test.sh").write_text(own, encoding="utf-8")
    log = folder / "called"
    programs = folder / ".venv/bin"
    programs.mkdir(parents=True)
    stubs = {
        "systemctl": f'[ "$1" != is-enabled ] || {{ echo {state}; exit 1; }}\necho systemctl "$@" >>{log}',
        "apt-get": f"echo apt-get >>{log}; exit {apt}",
        "pytest": f"echo pytest >>{log}",
    }
    if installed:
        (folder / "nginx").symlink_to("/bin/true")
    for name, lines in stubs.items():
        (programs / name).write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    command = ["env", "-u", "NGINX_ROOT", f"SPARKTHOR_RESULTS={folder}/results", "bash", "tools/test.sh", "nginx"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, log.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("state", "installed", "calls"),
    [
        ("not-found", False, [*MASKED, DISABLED, "pytest"]),
        ("masked", False, ["apt-get", "apt-get", "pytest"]),
        # nginx serves here, and its module for JavaScript is missing
        ("enabled", True, ["apt-get", "apt-get", "pytest"]),
    ],
)
def test_nothing_stays_masked_that_was_not(tmp_path: Path, state: str, installed: bool, calls: list[str]) -> None:
    assert staged(tmp_path, state, installed, apt=0) == (0, calls)


def test_nothing_stays_masked_where_nothing_was_installed(tmp_path: Path) -> None:
    rc, calls = staged(tmp_path, "not-found", installed=False, apt=7)
    assert rc == 7
    assert calls == [call for number, call in enumerate(MASKED) if number != 2]
