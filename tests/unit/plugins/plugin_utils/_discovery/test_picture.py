# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The picture of what is cabled shows what frames showed, and nothing else."""

from __future__ import annotations

import re

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import picture

from tests.unit.plugins.plugin_utils._discovery.test_proposal import Lan
from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, A1, B0, B1

RING = [(("a", 0), ("b", 1)), (("b", 0), ("c", 1)), (("c", 0), ("d", 1))]


def titles(lan: Lan) -> list[str]:
    found = lan.propose()
    assert found.findings == []
    return re.findall(r"<title>([^<]*)</title></line>", picture.drawn(found))


@pytest.mark.parametrize("closing", [[], [(("d", 0), ("a", 1))]], ids=["line", "ring"])
def test_a_chain_has_both_halves_of_each_cable(closing: list[tuple[tuple[str, int], tuple[str, int]]]) -> None:
    lan = Lan("abcd")
    for cable in [*RING, *closing]:
        lan.join(*cable)
    found = titles(lan)
    assert len(found) == 2 * (len(RING) + len(closing))
    assert f"a {A0}, half 0, to b {B0}: cage 0 to cage 1" in found
    assert f"a {A1}, half 1, to b {B1}: cage 0 to cage 1" in found


def test_two_cables_between_a_pair_are_four_lines() -> None:
    found = titles(Lan("ab").join(("a", 0), ("b", 1)).join(("a", 1), ("b", 0)))
    assert [f"a {one}, " in line for one, line in zip((A0, A1, B0, B1), found, strict=True)] == [True] * 4
    assert found[2].endswith(f"to b {A0}: cage 1 to cage 0")


def test_a_cage_of_a_switch_that_nobody_answers_is_marked() -> None:
    lan = Lan("abc").join(("a", 1), ("b", 1), ("c", 1))
    lan.plug("c", 0)
    found = titles(lan)
    assert sum(line.endswith(": cage 1") for line in found) == 6
    assert [line for line in found if "nobody answers" in line] == [
        f"c {netdev}, half {half}, to the network: cage 0, nobody answers" for half, netdev in enumerate((A0, A1))
    ]
    assert picture.drawn(lan.propose()).count('class="broken"') == 2


def test_on_a_lan_each_machine_has_the_port_that_it_answers_on() -> None:
    assert titles(Lan(thors="ab")) == [f"{name} enP7s7, half 0, to the network: enP7s7" for name in "ab"]
