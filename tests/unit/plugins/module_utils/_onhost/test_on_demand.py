# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.on_demand import (
    DemandSeen,
    Policy,
    Switch,
    decide,
    hours,
    obstacle,
)

NOW = 100_000.0
POLICIES = {"night": Policy(1800, 600, (480, 1080)), "any": Policy(60, 600, None, 3600.0)}
AWAKE = {"serves": "any", "since": NOW - 700, "used": NOW - 1}


def seen(**more: Any) -> DemandSeen:
    return DemandSeen(**{"now": NOW, "minute": 1200.0, "used": NOW - 7200, **more})


@pytest.mark.parametrize(
    ("more", "to", "failed"),
    [
        ({}, None, False),
        ({"wishes": {"any": NOW - 1}}, "any", False),
        ({"wishes": {"any": NOW - 61}}, None, False),
        ({"wishes": {"any": NOW + 5}}, None, False),
        ({"wishes": {"": NOW}}, None, False),
        ({"wishes": {"any": NOW}, "used": NOW - 59}, None, False),
        ({"wishes": {"any": NOW}, "used": NOW - 60}, "any", False),
        ({"wishes": {"any": NOW}, "in_flight": 1}, None, False),
        ({"wishes": {"any": NOW}, "ready": False}, None, False),
        ({"wishes": {"any": NOW}, "since": NOW - 599}, None, False),
        ({"wishes": {"any": NOW}, "paused": NOW + 1}, None, False),
        ({"wishes": {"any": NOW}, "held": {"": "drained"}}, None, False),
        ({"wishes": {"any": NOW}, "held": {"any": "stopped"}}, None, False),
        ({"wishes": {"any": NOW}, "held": {"night": "stopped"}}, "any", False),
        ({"wishes": {"night": NOW}}, "night", False),
        ({"wishes": {"night": NOW}, "minute": 480.0}, None, False),
        ({"wishes": {"night": NOW, "any": NOW - 1}}, "any", False),
        (AWAKE, None, False),
        ({**AWAKE, "wishes": {"": NOW}}, "", False),
        ({**AWAKE, "wishes": {"": NOW}, "since": NOW - 599}, None, False),
        ({**AWAKE, "wishes": {"": NOW}, "held": {"": "stopped"}}, None, False),
        ({**AWAKE, "used": NOW - 60}, "", False),
        ({**AWAKE, "used": NOW - 60, "in_flight": 1}, None, False),
        ({**AWAKE, "used": NOW - 60, "paused": NOW + 1}, None, False),
        ({**AWAKE, "running": False}, "", False),
        ({**AWAKE, "running": False, "served": False}, "", True),
        ({**AWAKE, "running": False, "held": {"": "stopped"}}, None, False),
        ({**AWAKE, "served": False, "restarts": 1}, None, False),
        ({**AWAKE, "served": False, "restarts": 2}, "", True),
        # the start of a large model takes as long as its group is allowed
        ({**AWAKE, "served": False, "since": NOW - 2701}, None, False),
        ({**AWAKE, "served": False, "since": NOW - 3601}, "", True),
        ({**AWAKE, "serves": "night", "served": False, "since": NOW - 86400}, None, False),
        ({**AWAKE, "serves": "night", "minute": 480.0}, "", False),
        ({**AWAKE, "wishes": {"": NOW, "night": NOW - 9}, "used": NOW - 50}, "", False),
    ],
)
def test_who_serves_next(more: dict[str, Any], to: str | None, failed: bool) -> None:
    found = decide(POLICIES, seen(**more))
    assert (found.to if found else None) == to
    assert failed == (found is not None and found.failed)


def test_the_reason_that_lasts_longest_is_told_with_its_end() -> None:
    found = obstacle(POLICIES, seen(used=NOW - 100, since=NOW - 100), "any")
    assert found is not None
    assert (found.why, found.seconds) == ("the last switch was a short time ago", 500)
    found = obstacle(POLICIES, seen(minute=1079.5, used=NOW - 7200), "night")
    assert found is not None
    assert (found.why, found.seconds) == ("it does not serve at this hour", 30)
    assert decide(POLICIES, seen(wishes={"any": NOW})) == Switch("any", "it was asked for")


@pytest.mark.parametrize(
    ("minute", "seconds"), [(1319.0, 0), (1320.0, 8 * 3600), (0.0, 6 * 3600), (359.5, 30), (360.0, 0)]
)
def test_hours_may_reach_into_the_next_day(minute: float, seconds: float) -> None:
    assert Policy(closed=hours("22:00-06:00")).closed_for(minute) == seconds


def test_hours_are_two_times_of_a_day() -> None:
    assert (hours(""), hours("08:00-18:30")) == (None, (480, 1110))
    for wrong in ("8-18", "08:00-24:00", "08:00", "08:60-18:00", "08:00-08:00"):
        with pytest.raises(ValueError, match=wrong):
            hours(wrong)
