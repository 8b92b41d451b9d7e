# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A number that wins over lower ones is believed as far as somebody else confirms it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import generation


@pytest.mark.parametrize(
    ("claims", "believed"),
    [
        ([], 0),
        ([7], 7),
        ([1000], 1000),
        # alone with it
        ([1001], 0),
        ([3, 3, 2**40], 3),
        ([3, 3, 1003], 1003),
        ([3, 3, 1004], 3),
        # two agree
        ([0, 5000, 5000], 5000),
        ([0, 5000, 5900, 10**30], 5900),
        (["9", None, True, -4, 2.0, [], 2], 2),
    ],
)
def test_the_highest_that_is_not_alone(claims: list[Any], believed: int) -> None:
    assert generation.believed(claims) == generation.believed(reversed(claims)) == believed
