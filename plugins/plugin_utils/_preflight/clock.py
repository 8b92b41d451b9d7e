# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a host's clock is from the controller's.

The host read its clock between the start and the end of the call, so whatever lies outside of that span is wrong by at
least the distance to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any


def offset(clock: float, before: float, after: float) -> float:
    """Seconds that a clock is ahead (or, negative, behind) at least; 0 where it may be right."""
    if clock < before:
        return round(clock - before, 1)
    return round(max(0.0, clock - after), 1)


def add_offset(result: Mapping[str, Any], before: float) -> None:
    """To what a call that began at ``before`` and has just ended found of the host."""
    node = (result.get("ansible_facts") or {}).get("sparkthor_node")
    if node:
        node["clock_offset"] = offset(float(node["clock"]), before, time.time())
