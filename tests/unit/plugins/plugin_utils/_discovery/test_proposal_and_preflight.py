# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What discovery proposes of any cabling, preflight finds cabled as planned."""

from __future__ import annotations

import random

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Proposal

from tests.unit.plugins.plugin_utils._discovery.test_proposal import Lan, names
from tests.unit.plugins.plugin_utils._preflight.planned_world import A0, A1, B0, B1, World

#: cables of two ends, and switches of more
Cabling = list[list[tuple[str, int]]]


def cabled(draw: random.Random) -> Cabling:
    hosts = list("abcdefgh"[: draw.randrange(2, 9)])
    draw.shuffle(hosts)
    count = len(hosts)
    shape = draw.choice(["pair", "chain", "chain", "one cage", "two cages", "two cages"])
    if shape == "pair" or count == 2:
        cages = {host: draw.choice([[0, 1], [1, 0]]) for host in hosts[:2]}
        return [[(host, cages[host][rail]) for host in cages] for rail in range(draw.choice([1, 2]))]
    if shape == "chain":
        return [[(hosts[at], 0), (hosts[(at + 1) % count], 1)] for at in range(count - draw.choice([0, 1]))]
    rails = 1 if shape == "one cage" else 2
    cages = {host: draw.choice([[0, 1], [1, 0]]) for host in hosts}
    # of a second switch some hosts may have no cable
    whole = draw.choice([True, False])
    return [
        [(host, cages[host][rail]) for host in hosts if not rail or whole or draw.random() < 0.5]
        for rail in range(rails)
    ]


def world(found: Proposal, cabling: Cabling) -> World:
    """Hosts as proposed, whose ports hear what hangs on the same cable or switch."""
    made = World(found.topology, names(found), cage=found.both or found.cages or 1)
    lit = {end for ends in cabling for end in ends}
    for host in names(found):
        made.probes[host]["neighbours"] = {}
        for cage, netdevs in enumerate(((A0, A1), (B0, B1))):
            if (host, cage) not in lit:
                made.cut(host, *netdevs)
    for ends in cabling:
        for host, cage in ends:
            for half, netdev in enumerate(((A0, A1), (B0, B1))[cage]):
                made.probes[host]["neighbours"][netdev] = [
                    {"host": other, "netdev": ((A0, A1), (B0, B1))[far][half]} for other, far in ends if other != host
                ]
    return made


@pytest.mark.parametrize("seed", range(100))
def test_a_proposal_stands_before_preflight(seed: int) -> None:
    cabling = cabled(random.Random(seed))
    hosts = sorted({host for ends in cabling for host, _cage in ends})
    lan = Lan("".join(hosts))
    for ends in cabling:
        lan.join(*ends)
    found = lan.propose()
    assert found.findings == []
    assert set(names(found)) == set(hosts)
    assert world(found, cabling).errors() == []
