# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status document as one screen of text."""

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import screen

from tests.unit.plugins.plugin_utils._report.captured_status import made


def test_the_screen_is_one_screen(outcomes):
    lines = screen.render(made(outcomes)).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 120


def test_security_updates_that_wait_are_told_and_are_no_fault(outcomes):
    status = made(outcomes)
    assert "security updates" not in screen.render(status)
    first, second = list(status["hosts"])[:2]
    status["hosts"][first]["security_updates"] = 14
    status["hosts"][second]["security_updates"] = 0
    assert f"security updates: {first} 14 (install them" in screen.render(status)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (3700, "1 h 1 min"), (90000, "1 d 1 h"), (86400, "1 d")],
)
def test_durations(seconds, text):
    assert screen.duration(seconds) == text
