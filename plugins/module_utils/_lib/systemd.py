# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``systemctl show`` answers, as every reader of it takes it apart."""

from __future__ import annotations

import re


def parse_show(text: str) -> list[dict[str, str]]:
    """Properties of each unit, in the order asked for: a block of KEY=VALUE lines each, with empty lines between."""
    blocks = (block for block in re.split(r"\n\s*\n", text.strip()) if block.strip())
    return [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks]


def down(active: str, sub: str, enabled: str, result: str, restarts: int) -> str:
    """How a unit is that should run and does not; empty where all is well. A unit with ``Restart=always`` is seldom
    failed: systemd waits to start it again."""
    if enabled not in ("enabled", "static", "linked"):
        return ""
    stuck = active == "activating" and (sub == "auto-restart" or restarts > 2)
    if active not in ("failed", "inactive") and not stuck:
        return ""
    return f"{active} ({sub}), result {result}, {restarts} restarts"
