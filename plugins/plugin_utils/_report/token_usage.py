# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a head says its API keys used of their limits; runs on the controller."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign

#: of each key: tokens of the last minute and of this month, and answers of this month that said none
COUNTS = ("minute", "month", "unseen")


def read(text: str) -> dict[str, dict[str, int]]:
    """By name of the key, whole numbers alone; an empty text counts nothing. Raises ForeignError for anything else."""
    found = foreign.parse_object(text or "{}")
    return {name: _counts(own) for name, own in found.items()}


def _counts(own: object) -> dict[str, int]:
    if not isinstance(own, Mapping):
        raise foreign.ForeignError("the counts of a key are no object")
    return {name: foreign.whole(own.get(name, 0)) for name in COUNTS}
