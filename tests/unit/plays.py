# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a playbook of the collection has to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

PLAYBOOKS = (
    next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()) / "playbooks"
)
IMPORT = "ansible.builtin.import_playbook"
CHECK = "plays/inventory.yml"


def plays(name: str) -> list[dict[str, Any]]:
    """The plays of a playbook, and the other playbooks that it imports, without the check of the inventory."""
    found: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / f"{name}.yml").read_text(encoding="utf-8"))
    return [play for play in found if play.get(IMPORT) != CHECK]


def played(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``play.yml`` of a folder on this machine, with the variables of its ``vars.yml``."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-c", "local", "-e", "@vars.yml", *arguments]
    return subprocess.run(
        [*command, "play.yml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
    )
