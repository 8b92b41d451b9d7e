# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import deadline

from tests.unit.clock import Clock


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(deadline, "time", clock)


def test_a_deadline_is_one_for_all(clock: Clock) -> None:
    one = deadline.Deadline(3)
    clock.sleep(2.5)
    assert one.left() == 0.5
    clock.sleep(0.5)
    with pytest.raises(TimeoutError, match="no answer in time"):
        one.left()


@pytest.mark.parametrize(
    ("seconds", "asked_at"),
    [(0.0, [0.0]), (-1.0, [0.0]), (0.2, [0.0, 0.2]), (1.0, [0.0, 0.4, 0.8, 1.0]), (9.0, [0.0, 0.4, 0.8, 1.2, 1.6])],
)
def test_it_is_asked_at_once_and_when_the_time_is_over(clock: Clock, seconds: float, asked_at: list[float]) -> None:
    asked: list[float] = []

    def ask() -> float:
        asked.append(clock.now)
        return clock.now

    found = deadline.ask_until(ask, lambda now: now >= 1.5, seconds, 0.4)
    assert asked == pytest.approx(asked_at)
    assert found == asked[-1]


def test_a_question_that_takes_all_the_time_is_not_asked_again(clock: Clock) -> None:
    asked: list[None] = []
    assert deadline.wait_until(lambda: (asked.append(None), clock.sleep(9))[0], 5) is False
    assert len(asked) == 1


def test_a_lock_is_waited_for_and_taken(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first, path.open("w") as second:
        assert deadline.lock(first, 0)
        assert clock.now == 0
        assert not deadline.lock(second, 1)
        assert clock.now == pytest.approx(1)
        first.close()
        assert deadline.lock(second, 1)
        assert clock.now == pytest.approx(1)
