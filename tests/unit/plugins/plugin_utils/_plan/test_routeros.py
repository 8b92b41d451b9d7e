# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a recorded configuration of a switch lacks for the fabric, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.routeros import (
    SwitchError,
    SwitchWish,
    commands,
    parse,
)

EXPORT = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists()).joinpath(
    "tests/fixtures/routeros/crs812.rsc"
)
PORTS = ["qsfp56-dd-1-1", "spark-02"]


def told(**given: Any) -> list[str]:
    return commands(EXPORT.read_text(), SwitchWish(**{"ports": PORTS, **given}))


def test_a_recorded_configuration_is_read_with_its_broken_lines_and_names() -> None:
    rows = parse(EXPORT.read_text())
    first, second = rows["/interface ethernet"]
    assert first.values == {"auto-negotiation": "no", "l2mtu": "9216", "mtu": "9000", "speed": "200G-baseCR4"}
    assert (second.selector, second.values["name"]) == ("default-name=qsfp56-dd-1-5", "spark-02")
    assert parse("/interface ethernet switch set 0 qos-hw-offloading=yes\n")["/interface ethernet switch"]


def test_only_what_is_lacking_is_said_and_a_backup_comes_first() -> None:
    assert told(speed=200) == [
        "/export file=before-sparkthor",
        "/interface ethernet set [find name=spark-02] l2mtu=9216 mtu=9000 auto-negotiation=no speed=200G-baseCR4",
        "/interface bridge port set [find interface=spark-02] edge=yes",
    ]
    assert commands(EXPORT.read_text(), SwitchWish(ports=PORTS[:1])) == []


def test_a_vlan_of_the_fabric_and_no_detour_by_the_uplink() -> None:
    lines = told(vlan=100, links=["qsfp56-1-1"], uplinks=["ether1"])
    assert "/interface bridge port set [find interface=qsfp56-1-1] pvid=100" in lines
    assert "/interface bridge port set [find interface=ether1] path-cost=200000000" in lines
    assert lines[-2:] == [
        "/interface bridge vlan add bridge=bridge untagged=qsfp56-dd-1-1,spark-02,qsfp56-1-1 vlan-ids=100",
        "/interface bridge set [find name=bridge] vlan-filtering=yes",
    ]


def test_qos_is_defined_first_and_switched_on_last() -> None:
    lines = told(qos=True)
    assert lines[-1] == "/interface ethernet switch set switch1 qos-hw-offloading=yes"
    assert "/interface ethernet switch qos profile add name=roce traffic-class=3" in lines
    assert "/interface ethernet switch qos map ip add dscp=48 profile=cnp" in lines
    assert (
        "/interface ethernet switch qos tx-manager queue set [find traffic-class=3] schedule=high-priority-group"
        in (" ".join(lines))
    )
    assert "/interface ethernet switch qos port set [find name=spark-02] trust-l3=keep pfc=pfc-tc3" in lines


def test_a_switch_that_is_ready_needs_none() -> None:
    ready = EXPORT.with_name("crs812-ready.rsc").read_text()
    given = {"vlan": 100, "links": ["qsfp56-1-1"], "uplinks": ["ether1"], "qos": True, "speed": 200}
    assert commands(ready, SwitchWish(ports=PORTS, **given)) == []
    for line in ready.splitlines():
        # without any one of its rows, that one is said again
        if line.startswith(("add", "set")) and not re.search("l3-hw|admin-mac|comment=house", line):
            assert commands(ready.replace(f"{line}\n", ""), SwitchWish(ports=PORTS, **given)), line


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ports": []}, "switch_ports is empty"),
        ({"ports": ["a b"]}, "switch_ports: 'a b' is not a name"),
        ({"ports": ["x", "x"]}, "named twice"),
        ({"uplinks": ["spark-02"]}, "one purpose"),
        ({"ports": ["x; /system reset-configuration"]}, "is not a name"),
        ({"ports": ["spark-2"]}, r"switch_ports: spark-2 is nowhere in the export \(did you mean spark-02\?\)"),
        ({"links": ["sfp1"]}, "switch_links: sfp1 is nowhere in the export; names are those of /interface print"),
        ({"uplinks": ["qsfp56-dd-1-5"]}, "switch_uplinks: qsfp56-dd-1-5 is called spark-02 on the switch"),
        ({"vlan": 4095}, "switch_vlan: 4095"),
        ({"mtu": True}, "switch_mtu: True"),
        ({"speed": 400}, "switch_speed: 400"),
        ({"bridge": "other"}, "forwards for one bridge alone"),
    ],
)
def test_what_cannot_be_rendered_names_the_variable(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SwitchError, match=words):
        told(**given)


@pytest.mark.parametrize("text", ["", "# nothing", "hostname switch1"])
def test_what_is_no_export_is_refused(text: str) -> None:
    with pytest.raises(SwitchError, match="/export printed"):
        commands(text, SwitchWish(ports=PORTS))
