# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A state file that another user wrote has the form that readers rely on, whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts.watchdog_state import believed
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action import shape, told

WRONG: list[Any] = [[], {"a": []}, "x", 1e300, float("inf"), -1, True, None, 10**20]
SOUND: dict[str, Any] = {
    **{"state": "serving", "line": "l", "detail": "d", "healthy": True, "since": 1.5, "updated": 2.5, "version": 9},
    **{"completion": {"latency": 0.5}, "answers": {"asked": 4, "right": 3, "wrong": None}, "restarts": {"stall": 1}},
}


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("name", [*SOUND, "completion/latency", "answers/right", "restarts/stall"])
def test_what_is_of_a_wrong_type_is_unknown_and_nothing_else(name: str, value: Any) -> None:
    outer, _slash, inner = name.partition("/")
    found = believed({**SOUND, outer: {**SOUND[outer], inner: value} if inner else value})
    shape.check(found, told.STATE)
    assert {key: found[key] for key in SOUND if key != outer} == {
        key: item for key, item in SOUND.items() if key != outer
    }


def test_what_is_sound_is_told_as_it_is() -> None:
    assert believed(SOUND) == SOUND
    assert believed({}) == {}


def test_a_part_of_the_answers_is_no_result() -> None:
    """Without the right ones it would be said that none was right."""
    assert "answers" not in believed({"answers": {"asked": 4, "right": "3"}})
