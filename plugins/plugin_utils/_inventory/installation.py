# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this controller has more than one copy of the collection."""

from __future__ import annotations

import os
from collections.abc import Iterable

COLLECTION = os.path.join("ansible_collections", "sparkthor", "cluster")


def copies(paths: Iterable[str]) -> list[str]:
    """Folders of the collection below ``paths``, in the order in which Ansible searches them; links count once."""
    folders: list[str] = []
    for path in paths:
        # Ansible takes a path with and without its last part
        tail = COLLECTION.partition(os.sep)[2] if os.path.basename(path) == "ansible_collections" else COLLECTION
        folder = os.path.realpath(os.path.join(path, tail))
        if os.path.isdir(os.path.join(folder, "plugins")) and folder not in folders:
            folders.append(folder)
    return folders


def warning(found: list[str]) -> str:
    """What to say of several copies; empty for one."""
    if len(found) < 2:
        return ""
    return (
        f"sparkthor.cluster is installed {len(found)} times: {found[0]} (used), {', '.join(found[1:])}; "
        "remove all but one, or the versions of roles and documentation may differ from what you read"
    )
