# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks before a run read of plan and facts."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

Node = Mapping[str, t.Any]
Plan = Mapping[str, t.Any]


def interfaces_of(node: Node) -> dict[str, Mapping[str, t.Any]]:
    return {link["name"]: link for link in node.get("interfaces", ())}
