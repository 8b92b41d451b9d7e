# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a playbook of the collection has to itself."""

from __future__ import annotations

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
