# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible as well:
# pylint: disable=ansible-bad-function
"""Generations as others tell them: the higher one wins, so nobody is believed further than somebody else confirms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .._lib import foreign

#: generations that all others can have missed; whoever says more than that is alone with it
MOST_MISSED = 1000


def known(value: Any) -> int:
    """A generation as a file or a peer tells it; 0, which is lower than any, for what is none."""
    try:
        return foreign.whole(value)
    except foreign.ForeignError:
        return 0


def believed(claims: Iterable[Any]) -> int:
    """The highest of these that is at most MOST_MISSED above another one; nothing is below 0.

    Each claim is another host's: one alone can push the others up by so many at most, and two have to agree on more.
    """
    ordered = sorted((known(one) for one in claims), reverse=True)
    return next((one for one, lower in zip(ordered, [*ordered[1:], 0]) if one - lower <= MOST_MISSED), 0)  # noqa: B905
