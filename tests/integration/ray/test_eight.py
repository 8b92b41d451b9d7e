# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Eight hosts: all are members on their control addresses and nowhere else, and what they cost in time."""

from __future__ import annotations

from tests.integration.ray.conftest import assert_members, show, start_table


def test_eight_nodes_join_on_their_control_addresses(eight, results):
    answer = eight.healthy()
    assert_members(eight, answer)
    assert len(answer["alive"]) == 8
    rows = start_table(eight, answer)
    show(rows)
    results.put("start of 8 hosts", {"rows": rows, "site seconds": round(eight.first.seconds, 1)})


def test_a_second_run_changes_nothing_on_eight(eight):
    before = eight.units()
    again = eight.ray()
    assert again.rc == 0, again.output
    assert set(again.changed.values()) == {0}, again.output
    assert len(again.changed) == 8
    assert eight.units() == before


def test_health_of_eight_is_quick(eight, results):
    answers = [eight.health(eight.head) for _unused in range(5)] + [
        eight.health(eight.workers[-1]) for _unused in range(5)
    ]
    for answer in answers:
        assert_members(eight, answer)
    seconds = [answer["seconds"] for answer in answers]
    results.put("ray_info on eight healthy hosts", {"head": seconds[:5], "worker": seconds[5:], "limit": 1})
    assert min(seconds[:5]) < 1
    assert min(seconds[5:]) < 1
