# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster whose hosts are exactly as planned, for tests that break one thing at a time."""

from __future__ import annotations

import typing as t

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding, errors_and_others
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric, fabric_ports
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.fabric_check import check_facts

CIDR = "10.100.0.0/24"
A0, A1 = "enp1s0f0np0", "enP2p1s0f0np0"
B0, B1 = "enp1s0f1np1", "enP2p1s0f1np1"
DEVICES = {A0: "rocep1s0f0", A1: "roceP2p1s0f0", B0: "rocep1s0f1", B1: "roceP2p1s0f1"}


class World:
    """A cluster whose hosts are exactly as planned; tests break one thing at a time."""

    def __init__(
        self,
        topology: str,
        hosts: list[str],
        kinds: dict[str, str] | None = None,
        mtu: int | None = None,
        cage: t.Any = 1,
    ):
        management = {host: f"192.168.1.{11 + index}/24" for index, host in enumerate(hosts)}
        self.plan = fabric.fabric_plan(
            hosts,
            topology,
            CIDR,
            cage,
            mtu=mtu,
            management=management,
            nics=dict.fromkeys(hosts, "enP7s7"),
            kinds=kinds,
        )
        self.nodes: dict[str, t.Any] = {}
        self.probes: dict[str, t.Any] = {}
        for host in hosts:
            cabled = {link["netdev"] for link in self.plan[host]["links"]}
            self.nodes[host] = {
                "kind": self.plan[host]["kind"],
                "kernel": "6.17.0-1031-nvidia",
                "driver": "580.95.05",
                "os": {
                    "pretty": "Ubuntu 24.04.3 LTS",
                    "dgx": f'DGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.5.0"\nDGX_SERIAL_NUMBER="{host}"',
                },
                "interfaces": [
                    self.nic("lo", "127.0.0.1/8"),
                    self.nic("enP7s7", management[host]),
                    *(self.nic(name, carrier=name in cabled) for name in DEVICES),
                ],
                "routes": [
                    self.route("default", "192.168.1.1", "enP7s7", "dhcp"),
                    self.route("192.168.1.0/24", "", "enP7s7", "kernel"),
                ],
            }
            self.probes[host] = {
                "ports": {
                    link["netdev"]: {"present": True, "up": True, "carrier": True, "mtu": 1500}
                    for link in self.plan[host]["links"]
                },
                "neighbours": {
                    link["netdev"]: [{"host": link["peer"], "netdev": link["peer_netdev"]}]
                    for link in self.plan[host]["links"]
                    if link["peer"]
                },
                "raised": [],
                "errors": {},
                "netplan": {"findings": [], "adoptable": False, "own": []},
                "rdma": {
                    "links": [
                        {
                            "netdev": name,
                            "device": device,
                            "link_layer": "Ethernet",
                            "rate": 200,
                            "firmware": "28.45.4028",
                        }
                        for name, device in DEVICES.items()
                    ],
                    "source": "sysfs",
                    "warnings": [],
                },
            }

    @staticmethod
    def nic(name: str, *addresses: str, carrier: bool = True, up: bool = True) -> dict[str, t.Any]:
        return {
            "name": name,
            "up": up,
            "carrier": carrier,
            "mtu": 1500,
            "max_mtu": 9978,
            "addresses": [{"address": address, "family": "inet", "scope": "global"} for address in addresses],
        }

    @staticmethod
    def route(dst: str, gateway: str, dev: str, protocol: str) -> dict[str, str]:
        return {"dst": dst, "gateway": gateway, "dev": dev, "prefsrc": "", "protocol": protocol}

    def interface(self, host: str, name: str) -> dict[str, t.Any]:
        return next(link for link in self.nodes[host]["interfaces"] if link["name"] == name)

    def cut(self, host: str, *names: str) -> None:
        for name in names:
            self.interface(host, name)["carrier"] = False
            if name in self.probes[host]["ports"]:
                self.probes[host]["ports"][name]["carrier"] = False
            self.probes[host]["neighbours"].pop(name, None)

    def cable(self, one: tuple[str, int], two: tuple[str, int]) -> None:
        """Put a cable between two cages: each half sees its counterpart."""
        for (host, cage), (other, other_cage) in ((one, two), (two, one)):
            for half in (0, 1):
                self.probes[host]["neighbours"][fabric_ports.spark_netdev(cage, half)] = [
                    {"host": other, "netdev": fabric_ports.spark_netdev(other_cage, half)}
                ]

    def check(self, **options: t.Any) -> list[Finding]:
        return check_facts(self.plan, self.nodes, self.probes, **options)

    def errors(self, **options: t.Any) -> list[str]:
        return errors_and_others(self.check(**options))[0]
