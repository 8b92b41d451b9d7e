# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sparks of eight makers in one cluster, as the lab names them: all known as Sparks, and no difference told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._facts import node
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import update
from sparklab import identity
from sparklab.plan import Wish, allot

from tests.unit.plugins.plugin_utils._doctor import sound_cluster
from tests.unit.plugins.plugin_utils._preflight.planned_world import World

NAMES = tuple(f"spark-0{number}" for number in range(1, 9))
HOSTS = allot([Wish(name) for name in NAMES], "10.77.0.0/24")


@pytest.fixture
def nodes(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """What the fact module reads of each; the GPU's driver does not answer, and PCI is not there."""
    read = {}
    for host in HOSTS:
        root = tmp_path / host.name
        files = {f"sys/class/dmi/id/{name}": text for name, text in identity.firmware_says(host).items()}
        for name, text in {**files, "etc/dgx-release": identity.dgx_release(host), "var/lib/x": ""}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        read[host.name] = node.NodeReader(lambda argv: (127, "", ""), str(root)).read()
    return read


def test_all_are_known_as_sparks(nodes: dict[str, dict[str, Any]]) -> None:
    assert {one["kind"] for one in nodes.values()} == {"spark"}
    assert len({one["product"] for one in nodes.values()}) == len(NAMES)


def test_preflight_and_doctor_find_no_difference(nodes: dict[str, dict[str, Any]]) -> None:
    world = World("switch", list(NAMES))
    case = sound_cluster.world(NAMES, "switch")
    for name, one in nodes.items():
        for told in (world.nodes[name], case.node(name)):
            told.update(product=one["product"], os={**told["os"], "dgx": one["os"]["dgx"]})
    assert world.check() == []
    assert sound_cluster.found(case) == []
    # the same comparison does see another release
    world.nodes["spark-03"]["os"]["dgx"] += "\nDGX_OTA_VERSION=7.5.0"
    assert [finding.id for finding in world.check()] == ["parity"]


def test_an_update_compares_no_maker_s_own_numbers(nodes: dict[str, dict[str, Any]]) -> None:
    plans = {host.name: {"firmware": {"BIOS": identity.maker(host).bios_version or "1"}} for host in HOSTS}
    before = {name: {"node": one} for name, one in nodes.items()}
    assert update.firmware_lines(plans, before) == []
    alike = {name: {"node": {**one, "product": "GX10"}} for name, one in nodes.items()}
    assert len(update.firmware_lines(plans, alike)) == 1
