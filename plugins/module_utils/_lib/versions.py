# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of Ray, engines, NCCL and drivers, as far as "at least" needs them."""

from __future__ import annotations

import re

_RELEASE = re.compile(r"\s*v?(\d+(?:\.\d+)*)")


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, three at least: ``v0.20.1rc2+cu130`` -> ``(0, 20, 1)``.

    A shorter version is the same as one with zeros (``2.54`` -> ``(2, 54, 0)``).  What does not begin with a number
    is ``()``, which is less than every version.
    """
    found = _RELEASE.match(version)
    if found is None:
        return ()
    numbers = [int(number) for number in found[1].split(".")]
    return tuple(numbers + [0] * (3 - len(numbers)))
