# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions, as far as "at least" needs them."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.versions import release


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0.20.1+abc.nv26.05", (0, 20, 1)),
        ("v0.33", (0, 33, 0)),
        ("2", (2, 0, 0)),
        ("2.54.0rc1", (2, 54, 0)),
        ("580.95.05.01", (580, 95, 5, 1)),
        ("2.60.0", (2, 60, 0)),
        ("3.0.0.dev0", (3, 0, 0)),
        ("2.54.0rc1+cu1", (2, 54, 0)),
        ("", ()),
        ("x", ()),
        ("main", ()),
    ],
)
def test_leading_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers


def test_order() -> None:
    assert release("main") < release("2.9.0rc1") < release("2.54") == release("2.54.0") < release("2.60.0")
