# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import ev, found, world


@pytest.mark.parametrize(
    ("names", "topology", "kinds"),
    [
        (("a", "b"), "direct", ()),
        (("a", "b", "c"), "ring", ()),
        (("a", "b", "c", "d"), "switch", ()),
        (("a", "b", "c", "d"), "lan", ("spark", "spark", "thor", "thor")),
    ],
)
def test_nothing_is_wrong_with_a_sound_cluster(names: tuple[str, ...], topology: str, kinds: tuple[str, ...]) -> None:
    assert found(world(names, topology, kinds)) == []


def test_a_dead_host_explains_its_cables_and_ray_but_not_the_neighbour_s_own_trouble() -> None:
    case = world(("a", "b", "c"), "ring")
    del case.evidence["c"]
    case.unreachable["c"] = "ssh: connect to host 192.168.1.13 port 22: No route to host"
    for host in ("a", "b"):
        towards = {link["netdev"] for link in case.links(host) if link["peer"] == "c"}
        for nic in ev(case, host)["node"]["interfaces"]:
            if nic["name"] in towards:
                nic["carrier"] = False
    ev(case, "a")["ray"] = {
        "problems": [{"code": "node_missing", "node": "c", "cause": "node c is not a member", "fix": "see c"}]
    }
    ev(case, "b")["nccl"] = {"/etc/nccl.conf": {"settings": {"NCCL_IB_DISABLE": "1"}, "ineffective": []}}
    assert found(case) == [("host-unreachable", ("c",)), ("nccl-ib-disabled", ("b",))]


@pytest.mark.parametrize("part", ["node", "rdma", "files", "processes", "units", "memory", "disks", "pings", "models"])
def test_a_part_that_could_not_be_read_trips_nothing(part: str) -> None:
    case = world()
    for host in case.hosts:
        empty: Any = [] if isinstance(ev(case, host)[part], list) else {}
        ev(case, host)[part] = empty
    for _rule, hosts in found(case):
        assert set(hosts) <= set(case.hosts)
