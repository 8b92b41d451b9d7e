# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever stands in an inventory, the fabric's planner plans it or refuses it with the variable's name."""

from __future__ import annotations

import json
import os
import random
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import fabric_plan, trusted_sources
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_values import TOPOLOGIES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.ring import PATCHES

#: calls of a run; FABRIC_FUZZ=100000 for a long one
COUNT = int(os.environ.get("FABRIC_FUZZ", "1500"))
NONSENSE: tuple[Any, ...] = (
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    [[]],
    {"a": None},
    "x" * 300,
    "\x00",
    "10.0.0.0/8",
    b"b",
)
NETDEVS = ("enp1s0f0np0", "enP2p1s0f1np1", "enP7s7", "tailscale0", "wlan0", "mgbe0_0", "..", "a" * 16)


def call(draw: random.Random) -> dict[str, Any]:
    """Mostly sensible arguments, and often one or more that are not."""
    topology = draw.choice(TOPOLOGIES)
    count = draw.choice({"direct": (2, 2, 2, 3), "ring": (3, 4, 5, 17, 2)}.get(topology, (1, 2, 3, 4, 5, 17, 0)))
    hosts = [f"n{number}" for number in range(count)]
    odd = draw.random() < 0.4
    thors = topology in ("direct", "switch") and draw.random() < 0.3
    kind = "thor" if thors else "spark"

    def some(usual: Any, *others: Any) -> dict[str, Any]:
        return {
            host: draw.choice(others) if odd and draw.random() < 0.2 else usual(number)
            for number, host in enumerate(hosts)
        }

    given: dict[str, Any] = {
        "hosts": hosts,
        "topology": topology,
        "cidr": f"10.{draw.randrange(3)}.{16 * (odd and draw.randrange(9))}.0/{draw.randrange(16, 33 if odd else 25)}",
        "lanes": draw.choice((None, [0, 1], "2", *([4, [0, 0]] if odd else []))) if thors else None,
        "cage": draw.choice(
            (
                1 if thors else 0,
                1,
                "1",
                some(lambda _n: 1, 0, "0"),
                *([2, [0, 1], [1, 0], [0, 0], some(lambda _n: [0, 1], 1)] if odd else []),
            )
        ),
        "mtu": draw.choice((None, 1500, "9000", *([9217] if odd else []))),
        "management": some(
            lambda number: f"192.168.1.{number + 1}/24", "192.168.1.1/24", "192.168.2.9/24", "fd00::1/64", ""
        ),
        "kinds": some(lambda _n: kind, "spark", "thor", "generic"),
        "nics": some(lambda _n: "enP7s7", *NETDEVS),
        "overrides": draw.choice(({}, {"n0": {draw.choice(NETDEVS): f"10.1.{draw.randrange(256)}.1/24"}}))
        if odd
        else {},
        "reserved": draw.choice((None, [], [2], "1,3") if odd or topology in ("direct", "switch") else (None, [])),
        "nccl_patch": draw.choice((None, *PATCHES) if odd or topology == "ring" else (None,)),
        "control_nics": draw.choice(((), (), hosts[:1])),
    }
    for name in draw.sample(sorted(set(given) - {"control_nics"}), draw.choice((0, 1, 2)) if odd else 0):
        given[name] = draw.choice(NONSENSE)
    return given


def test_every_call_is_planned_or_refused_by_name() -> None:
    planned, named = 0, set()
    for seed in range(COUNT):
        given = call(random.Random(seed))
        try:
            plan = fabric_plan(**given)
        except FabricError as error:
            named.add(bool(error.finding.where))
        else:
            planned += 1
            json.dumps(plan)
            for host in plan:
                assert set(trusted_sources(plan, host)) == set(plan[host]["trusted_netdevs"])
        for finding in fabric_problems(
            given["topology"],
            given["hosts"],
            *(given[name] for name in ("cidr", "cage", "mtu", "overrides")),
            management=given["management"] if isinstance(given["management"], dict) else None,
            reserved=given["reserved"],
            nccl_patch=given["nccl_patch"],
            lanes=given["lanes"],
        ):
            assert finding.fix, (seed, given)
    assert named == {True}
    assert planned > COUNT // 3, "too few calls made sense"
