# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is at the other ends of a host's cables, without a plan."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import survey

from tests.unit.plugins.module_utils._network.test_neighbors import Wires

A0, A1 = "enp1s0f0np0", "enP2p1s0f0np0"
B0, B1 = "enp1s0f1np1", "enP2p1s0f1np1"

#: the form that lldpd 1.0 documents for json0: every element is a list
LLDP = {
    "lldp": [
        {
            "interface": [
                {
                    "name": B0,
                    "via": "LLDP",
                    "chassis": [
                        {
                            "id": [{"type": "mac", "value": "48:a9:8a:00:00:01"}],
                            "name": [{"value": "crs812"}],
                            "capability": [{"type": "Bridge", "enabled": True}, {"type": "Router", "enabled": False}],
                        }
                    ],
                    "port": [{"id": [{"type": "ifname", "value": "qsfp56-1"}], "descr": [{"value": "port 1"}]}],
                },
                {"name": "enP7s7", "chassis": [{"id": [{"value": "x"}], "capability": []}], "port": []},
                {"name": "lo"},
            ]
        }
    ]
}


def test_lldp() -> None:
    assert survey.parse_lldp(json.dumps(LLDP)) == {
        B0: {"name": "crs812", "port": "port 1", "bridge": True},
        "enP7s7": {"name": "x", "port": "", "bridge": False},
    }


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", '{"lldp": []}', '{"lldp": [{}]}', '{"lldp": {"interface": 1}}', "null"),
        '{"lldp": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_lldp_of_another_form_is_nothing(text: str) -> None:
    assert survey.parse_lldp(text) == {}


class Host:
    """A host whose ports are wires."""

    def __init__(self, name: str, wires: Wires, up: dict[str, bool], root: Path) -> None:
        self.name, self.wires, self.root = name, wires, root
        self.up = dict(up)
        self.calls: list[list[str]] = []

    def states(self) -> dict[str, dict[str, Any]]:
        return {
            netdev: {"up": up, "carrier": up and (self.name, netdev) in self.wires.ends, "mtu": 1500}
            for netdev, up in self.up.items()
        }

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        self.calls.append(argv)
        if argv[:4] == ["ip", "link", "set", "dev"]:
            self.up[argv[4]] = argv[5] == "up"
            return 0, "", ""
        return 127, "", "not installed"

    def look(self, change_nothing: bool = False) -> dict[str, Any]:
        return survey.survey(
            self.name,
            self.states,
            self.run,
            seconds=0.5,
            training=0.5,
            change_nothing=change_nothing,
            open_netdev=self.wires.opener(self.name),
            root=str(self.root),
        )


def together(*hosts: Host) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    threads = [threading.Thread(target=lambda host=host: found.update({host.name: host.look()})) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_two_hosts_see_each_other_on_ports_that_were_set_down_and_are_again(tmp_path: Path) -> None:
    wires = Wires([(("a", B0), ("b", A0)), (("a", B1), ("b", A1))])
    down = dict.fromkeys((A0, A1, B0, B1), False)
    first, two = (Host(name, wires, {"enP7s7": True, **down}, tmp_path) for name in "ab")
    try:
        found = together(first, two)
    finally:
        wires.close()
    assert found["a"]["neighbours"][B0] == [{"host": "b", "netdev": A0}]
    assert found["b"]["neighbours"][A1] == [{"host": "a", "netdev": B1}]
    assert sorted(found["a"]["raised"]) == sorted(down)
    assert first.up == {"enP7s7": True, **down}
    ports = found["a"]["ports"]
    assert set(ports) == set(down)
    assert (ports[B0]["cage"], ports[B1]["half"], ports[B0]["plugged"], ports[A0]["plugged"]) == (1, 1, True, False)


def test_in_check_mode_a_port_stays_down(tmp_path: Path) -> None:
    wires = Wires([(("a", A0), ("b", A0))])
    host = Host("a", wires, {A0: False}, tmp_path)
    try:
        found = host.look(change_nothing=True)
    finally:
        wires.close()
    assert (found["raised"], found["ports"][A0]["carrier"]) == ([], False)
    assert not any(call[:3] == ["ip", "link", "set"] for call in host.calls)


def test_a_port_that_is_down_with_its_cable_trained_counts_as_plugged(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/infiniband/rocep1s0f0/ports/1"
    (port / "gid_attrs/ndevs").mkdir(parents=True)
    (port / "gid_attrs/ndevs/0").write_text(f"{A0}\n")
    (port / "state").write_text("1: DOWN\n")
    (port / "phys_state").write_text("5: LinkUp\n")
    host = Host("a", Wires([]), {A0: False}, tmp_path)
    assert host.look(change_nothing=True)["ports"][A0]["plugged"] is True
