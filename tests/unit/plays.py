# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of a play, as far as the plugins look at them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def task(role: str, selected: bool = True, implicit: bool = False) -> Any:
    """A task of that role, or of none; ``selected``: what the run's tags say of it."""
    named = SimpleNamespace(get_name=lambda: f"sparkthor.cluster.{role}", _role_path=f"/roles/{role}")
    return SimpleNamespace(
        _role=named if role else None,
        implicit=implicit,
        evaluate_tags=lambda only, skip, variables: selected,
        get_search_path=lambda: [f"/roles/{role}/tasks"],
    )
