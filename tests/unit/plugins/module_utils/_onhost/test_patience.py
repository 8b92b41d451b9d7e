# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import patience
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.patience import Signs

SPARK = 30.0
COMPUTES = Signs(cores=1.0, utilization=96, power=45)
WAITS = Signs(cores=1.0, utilization=96, power=20)
IDLE = Signs(cores=0.003, utilization=0, power=12)
SPINS = Signs(cores=1.0)


@pytest.mark.parametrize(
    ("signs", "power", "kind"),
    [
        ({"a": COMPUTES, "b": WAITS}, SPARK, patience.WORKING),
        ({"a": WAITS, "b": WAITS}, SPARK, patience.WEDGED),
        # who cannot tell might be the one that computes
        ({"a": WAITS, "b": Signs()}, SPARK, patience.BUSY),
        # watts are known of one platform only
        ({"a": WAITS, "b": WAITS}, 0.0, patience.BUSY),
        ({"a": COMPUTES}, 0.0, patience.BUSY),
        ({"a": SPINS, "b": SPINS}, SPARK, patience.BUSY),
        ({"a": IDLE, "b": IDLE}, SPARK, patience.STILL),
        ({"a": IDLE, "b": Signs()}, SPARK, patience.UNKNOWN),
        ({"a": SPINS, "b": Signs(cores=0.0)}, SPARK, patience.STILL),
        # blocked on a GPU that computes a kernel of a minute
        ({"a": Signs(cores=0.0, utilization=99)}, SPARK, patience.BUSY),
        ({"a": SPINS, "b": Signs(cores=0.0, utilization=96, power=45)}, SPARK, patience.WORKING),
        # stopped while its GPU waited for the other one's, as two H200s showed it
        ({"a": WAITS, "b": Signs(cores=0.0, stopped=None, utilization=100, power=119)}, 0.0, patience.STILL),
        # the same of a rank that its host knows not to be stopped: it may be in a kernel of a minute
        ({"a": WAITS, "b": Signs(cores=0.0, utilization=100, power=119)}, 0.0, patience.BUSY),
        ({"a": WAITS, "b": Signs(cores=0.5, compilers=2)}, SPARK, patience.WORKING),
        ({"a": WAITS, "b": Signs(spoke=True)}, SPARK, patience.WORKING),
        ({"a": COMPUTES, "b": Signs(cores=0.0, stopped=True)}, SPARK, patience.STOPPED),
        ({"a": COMPUTES, "b": Signs(ended=True)}, SPARK, patience.ENDED),
        ({"a": Signs(stopped=True), "b": Signs(ended=True)}, SPARK, patience.ENDED),
        ({"a": Signs(), "b": Signs()}, SPARK, patience.UNKNOWN),
        ({}, SPARK, patience.UNKNOWN),
    ],
)
def test_what_the_hosts_show_together(signs: dict[str, Signs], power: float, kind: str) -> None:
    found = patience.judge(signs, power)
    assert found.kind == kind
    assert found.text


def test_the_text_names_the_host_that_decides() -> None:
    assert patience.judge({"a": WAITS, "b": COMPUTES}, SPARK).text == "b computes (96 % of the GPU at 45 W)"
    assert patience.judge({"a": SPINS, "b": Signs(stopped=True)}).text == "a process of the rank on b is stopped"
    assert patience.judge({"a": SPINS, "b": Signs(ended=True)}).text == "the rank on b has ended"


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        (patience.WORKING, 500),
        (patience.BUSY, 100),
        (patience.UNKNOWN, 100),
        (patience.WEDGED, 60),
        (patience.STILL, 60),
        (patience.STOPPED, 60),
        (patience.ENDED, 60),
    ],
)
def test_what_an_engine_is_given(kind: str, seconds: float) -> None:
    assert patience.allowed(kind, 100, 60) == seconds


@pytest.mark.parametrize("data", [None, [], "x", {"cores": "1", "stopped": 1, "power": True}, {"cores": -1}])
def test_what_another_host_sends_may_be_anything(data: Any) -> None:
    assert not patience.Signs.from_dict(data).known


def test_signs_survive_the_way_to_the_head() -> None:
    data = {"cores": 0.5, "stopped": True, "utilization": 96, "power": 17.5, "compilers": 3, "spoke": True}
    assert patience.Signs.from_dict(data) == Signs(0.5, True, 96.0, 17.5, 3, True)


def test_work_is_remembered_until_the_counters_move() -> None:
    stall = patience.Stall()
    stall.note(10, 1, False)
    assert stall.work_since is None  # one round may have met somebody who only asked for the metrics
    stall.note(12, 1, False)
    stall.note(14, 0, False)  # the client gave up, the engine did not
    assert stall.seconds(40, 5.0) == 30  # since the first look
    assert stall.seconds(40, 5.0, 30.0) == 10
    stall.note(42, 0, True)
    assert (stall.work_since, stall.seconds(60, 42.0)) == (None, 0.0)


def test_work_whose_counters_moved_at_the_first_look_counts_from_there() -> None:
    stall = patience.Stall()
    for now, advanced in ((10, True), (12, False)):
        stall.note(now, 1, advanced)
    assert stall.work_since == 10


def test_two_who_only_asked_for_the_metrics_are_no_work() -> None:
    stall = patience.Stall()
    for now, in_flight in ((10, 1), (12, 0), (14, 1), (16, 0)):
        stall.note(now, in_flight, False)
    assert stall.work_since is None


def test_only_a_probe_that_came_after_the_work_had_to_queue() -> None:
    stall = patience.Stall()
    assert not stall.covers(10, 5)
    stall.note(18, 2, False)
    stall.note(20, 2, False)
    assert stall.covers(14, 5)
    assert not stall.covers(12, 5)
