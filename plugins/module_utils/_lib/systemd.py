# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``systemctl show`` answers, as every reader of it takes it apart."""

from __future__ import annotations

import re


def parse_show(text: str) -> list[dict[str, str]]:
    """Properties of each unit, in the order asked for: a block of KEY=VALUE lines each, with empty lines between."""
    blocks = (block for block in re.split(r"\n\s*\n", text.strip()) if block.strip())
    return [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks]
