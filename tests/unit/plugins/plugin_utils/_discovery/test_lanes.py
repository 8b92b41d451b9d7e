# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import lanes
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling

from tests.unit.plugins.plugin_utils._discovery.test_proposal import Lan, by_lane


def test_a_pair_is_drawn_lane_by_lane_and_told_in_the_table() -> None:
    lan = by_lane(by_lane(Lan(thors="tu"), ("t", 0), ("u", 0)), ("t", 1), ("u", 1))
    thors = list(lan.machines.values())
    ends = lanes.ends(thors)
    assert cabling.sketch_lanes(ends) == ["t lane 0 = lane 0 u", "t lane 1 = lane 1 u"]
    assert lanes.words(thors[0], ends) == "lanes 0, 1: to u"
    assert (lanes.joined(thors, ends), lanes.topology(thors, ends)) == ([0, 1], "direct")


def test_a_switch_and_a_lane_that_nobody_answers_on() -> None:
    lan = by_lane(by_lane(Lan(thors="tuv"), ("t", 0), ("u", 0), ("v", 0)), ("t", 3))
    thors = list(lan.machines.values())
    ends = lanes.ends(thors)
    assert cabling.sketch_lanes(ends) == ["t lane 0 = switch", "u lane 0 = switch", "v lane 0 = switch"]
    assert (lanes.joined(thors, ends), lanes.topology(thors, ends)) == ([0], "switch")
    alone = by_lane(Lan(thors="t"), ("t", 3)).machines["t"]
    assert lanes.words(alone, lanes.ends([alone])) == "lanes 3: nobody answers"


def test_lanes_without_frames_are_a_lan() -> None:
    thors = list(Lan(thors="tu").machines.values())
    assert (lanes.joined(thors, {}), lanes.topology(thors, {}), lanes.words(thors[0], {})) == ([], "lan", "-")


def test_the_network_that_lanes_of_all_have() -> None:
    nics = {"t": [("mgbe0_0", "10.7.0.0/24"), ("mgbe1_0", "")], "u": [("mgbe1_0", "10.7.0.0/24")]}
    assert lanes.network_of_all(nics) == "10.7.0.0/24"
    assert lanes.network_of_all({**nics, "v": []}) == lanes.network_of_all({}) == ""
