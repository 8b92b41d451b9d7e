# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether models that a host does not have would fit its disk, asked before anything is changed or fetched.

Standard library only: this runs on the hosts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._store.content import free_bytes, human, measure
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import RESERVE


def refused(root: str, sizes: Mapping[str, int]) -> list[str]:
    """``sizes`` are bytes by the model's name in the store ``root``. A sentence where there is no room, else nothing.

    A folder that is there is compared by the role later; what a broken copy left counts as room.
    """
    absent = {name: int(size) for name, size in sizes.items() if not os.path.isdir(os.path.join(root, name))}
    if not absent:
        return []
    arrived, _count = measure(os.path.join(root, ".incoming"))
    wanted = int(max(0, sum(absent.values()) - arrived) * (1 + RESERVE))
    free = free_bytes(root)
    if wanted <= free:
        return []
    return [
        f"model_store_models: {', '.join(absent)} needs {human(wanted)} more under {root} (5 % reserve included), but "
        f"only {human(free)} are free there; free {human(wanted - free)}, or set model_store_root to a folder on "
        "another disk"
    ]
