# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import series


@pytest.mark.parametrize(
    ("starts", "delay"),
    [
        ([], 0),
        ([990.0], 0),
        ([970.0, 980.0, 990.0], 0),
        ([960.0, 970.0, 980.0, 990.0], 2),
        ([950.0, 960.0, 970.0, 980.0, 990.0], 4),
        ([float(number) for number in range(900, 1000, 5)], 30),
        # a year of single failures is no series
        ([float(number) for number in range(0, 1000, 200)], 0),
        # four quick ones, long ago
        ([100.0, 101.0, 102.0, 103.0], 0),
    ],
)
def test_only_starts_shortly_after_one_another_delay(starts, delay):
    assert series.series_delay(starts, 1000.0) == delay


def test_starts_are_remembered(tmp_path):
    now, delays = 1000.0, []
    for _unused in range(9):
        delays.append(series.note_series_start(str(tmp_path), now))
        now += delays[-1] + 1
    assert delays == [0, 0, 0, 0, 2, 4, 8, 16, 30]
    assert series.note_series_start(str(tmp_path), 5000.0) == 0


def test_a_clock_set_back_or_a_damaged_file_delays_nobody(tmp_path):
    for number in range(6):
        series.note_series_start(str(tmp_path), 9000.0 + number)
    assert series.note_series_start(str(tmp_path), 100.0) == 0
    (tmp_path / "starts").write_text("rubbish\n")
    assert series.note_series_start(str(tmp_path), 200.0) == 0
    assert series.note_series_start(str(tmp_path / "absent"), 200.0) == 0
