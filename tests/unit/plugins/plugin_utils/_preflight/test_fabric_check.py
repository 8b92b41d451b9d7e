# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import time
import typing as t

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding, errors_and_others
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric, fabric_ports
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import fabric_check
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.fabric_check import check_facts

CIDR = "10.100.0.0/24"
A0, A1 = "enp1s0f0np0", "enP2p1s0f0np0"
B0, B1 = "enp1s0f1np1", "enP2p1s0f1np1"
DEVICES = {A0: "rocep1s0f0", A1: "roceP2p1s0f0", B0: "rocep1s0f1", B1: "roceP2p1s0f1"}


class World:
    """A cluster whose hosts are exactly as planned; tests break one thing at a time."""

    def __init__(self, topology: str, hosts: list[str], kinds: dict[str, str] | None = None, mtu: int | None = None):
        management = {host: f"192.168.1.{11 + index}/24" for index, host in enumerate(hosts)}
        self.plan = fabric.fabric_plan(
            hosts, topology, CIDR, mtu=mtu, management=management, nics=dict.fromkeys(hosts, "enP7s7"), kinds=kinds
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


@pytest.mark.parametrize(("topology", "count"), [("direct", 2), ("ring", 3), ("switch", 4), ("lan", 3)])
def test_hosts_as_planned_have_no_problem(topology: str, count: int) -> None:
    world = World(topology, list("abcd")[:count])
    assert world.check() == []
    # a converged host: the planned addresses and their routes are there, which is no overlap with the plan
    for host, entry in world.plan.items():
        for link in entry["links"]:
            if topology != "lan":
                world.interface(host, link["netdev"])["addresses"].append(
                    {"address": link["address"], "family": "inet", "scope": "global"}
                )
                world.nodes[host]["routes"].append(world.route(link["subnet"], "", link["netdev"], "kernel"))
    assert world.check() == []


def test_a_cable_in_the_other_cage() -> None:
    world = World("direct", ["a", "b"])
    world.cut("b", B0, B1)
    for name in (A0, A1):
        world.interface("b", name)["carrier"] = True
    error, *rest = world.errors()
    assert error == (
        f"host b: NIC {B0} has no carrier, but {A0} has: the cable is in cage 0 (next to the RJ45 port), the plan uses "
        "cage 1 (away from the RJ45 port); move the cable, or set fabric_cage: 0 if it is in that cage on every host"
    )
    assert all("NIC enp1s0f1np1 has a carrier" in item or "enP2p1s0f1np1" in item for item in rest)


def test_no_cable_at_all_names_every_nic_and_the_other_end() -> None:
    world = World("ring", ["a", "b", "c"])
    world.cut("a", A0, A1)
    world.cut("b", B0, B1)
    errors = world.errors()
    assert len(errors) == 4
    assert f"host a: NIC {A0} has no carrier; plug the cable to b {B0} into cage 0" in errors[0]
    assert f"host b: NIC {B1} has no carrier; plug the cable to a {A1} into cage 1" in errors[3]


def test_one_half_down() -> None:
    world = World("switch", ["a", "b", "c"])
    world.cut("c", B1)
    (error,) = world.errors()
    assert f"host c: NIC {B1} has no carrier though {B0}, the other half of the same cage, has" in error
    assert "half its speed; reseat the cable" in error


def test_a_half_that_left_the_bus() -> None:
    world = World("switch", ["a", "b"])
    world.nodes["a"]["interfaces"] = [link for link in world.nodes["a"]["interfaces"] if link["name"] not in (B0, B1)]
    for name in (B0, B1):
        world.probes["a"]["ports"][name] = {"present": False, "up": False, "carrier": None, "mtu": 0}
    errors = world.errors()
    assert len(errors) == 2
    assert all("is not there; an uncabled ConnectX-7 leaves the PCI bus" in error for error in errors)


def test_two_cables_swapped_at_one_host_are_one_message() -> None:
    world = World("ring", ["a", "b", "c"])
    world.cable(("a", 1), ("b", 1))
    world.cable(("a", 0), ("c", 0))
    assert world.errors() == [
        f"host a: its two cables are swapped: NIC {A0} is cabled to c {A0}, NIC {B0} to b {B0}, the plan wants it the "
        "other way; swap the two cables at a: the one from c belongs in cage 1 (away from the RJ45 port), the one from "
        "b in cage 0 (next to the RJ45 port)"
    ]


def test_ends_of_two_cables_swapped_between_hosts_name_the_ends_to_move() -> None:
    world = World("ring", ["a", "b", "c"])
    # a0-b1 and b0-c1 became a0-c1 and b0-b1: nobody counts frames of its own
    world.cable(("a", 0), ("c", 1))
    for name in (A0, A1, B0, B1):
        world.probes["b"]["neighbours"].pop(name)
    errors = world.errors()
    assert errors[0] == (
        f"host a: NIC {A0} is cabled to c {B0}, the plan wants b {B0} there; move the end that is in cage 1 (away from "
        "the RJ45 port) of c to cage 1 (away from the RJ45 port) of b"
    )
    assert f"host c: NIC {B0} is cabled to a {A0}, the plan wants b {A0} there" in errors[1]
    assert all(f"host b: NIC {name} has a carrier, but nobody" in " ".join(errors) for name in (A0, A1, B0, B1))


def test_a_ring_the_other_way_round_asks_for_the_hosts_in_another_order() -> None:
    world = World("ring", ["a", "b", "c"])
    world.cable(("a", 0), ("c", 1))
    world.cable(("c", 0), ("b", 1))
    world.cable(("b", 0), ("a", 1))
    errors = world.errors()
    assert len(errors) == 6
    assert all("the ring runs the other way round: list the hosts as a, c, b" in error for error in errors)


def test_a_nic_may_hear_both_halves_of_the_right_cage() -> None:
    world = World("direct", ["a", "b"])
    for host, other in (("a", "b"), ("b", "a")):
        for name in (B0, B1):
            world.probes[host]["neighbours"][name] = [{"host": other, "netdev": B1}, {"host": other, "netdev": B0}]
    assert world.check() == []


def test_a_carrier_behind_which_nobody_answers() -> None:
    world = World("direct", ["a", "b"])
    for host in "ab":
        world.probes[host]["neighbours"] = {}
    errors = world.errors()
    assert len(errors) == 4
    assert f"host a: NIC {B0} has a carrier, but nobody of this cluster answers on it" in errors[0]


def test_check_mode_reports_ports_that_are_down_as_unknown() -> None:
    world = World("direct", ["a", "b"])
    for name in (B0, B1):
        world.probes["b"]["ports"][name] = {"present": True, "up": False, "carrier": None, "mtu": 1500}
        world.interface("b", name).update(up=False, carrier=False)
        world.probes["a"]["neighbours"].pop(name)
    world.probes["b"]["neighbours"] = {}
    problems = world.check()
    assert {problem.severity for problem in problems} == {"unknown"}
    assert {(problem.host, problem.where) for problem in problems} == {("a", B0), ("a", B1), ("b", B0), ("b", B1)}


def test_a_port_facing_one_that_is_down_is_unknown_too() -> None:
    world = World("direct", ["a", "b"])
    for name in (B0, B1):
        world.probes["b"]["ports"][name] = {"present": True, "up": False, "carrier": None, "mtu": 1500}
    world.probes["b"]["neighbours"] = {}
    world.cut("a", B0, B1)
    errors, others = errors_and_others(world.check())
    assert errors == []
    assert f"host a: NIC {B0} has no carrier, but b {B0} at its other end is administratively down" in others[0]


def test_without_a_probe_the_facts_alone_are_judged() -> None:
    world = World("direct", ["a", "b"])
    world.cut("a", B1)
    problems = check_facts(world.plan, world.nodes)
    assert [(problem.id, problem.host, problem.where) for problem in problems] == [("half", "a", B1)]


def test_mtu_beyond_the_nic() -> None:
    world = World("direct", ["a", "b"])
    world.interface("a", B0)["max_mtu"] = 4000
    (error,) = world.errors()
    assert (
        error
        == f"host a: NIC {B0} can do an MTU of 4000 at most, fabric_mtu asks for 9000; set fabric_mtu: 4000 or less"
    )


OVERLAPS = [
    (
        "interface",
        lambda w: w.nodes["b"]["interfaces"].append(w.nic("docker0", "10.100.0.1/16")),
        "docker0 has 10.100.0.1/16",
    ),
    (
        "route",
        lambda w: w.nodes["b"]["routes"].append(w.route("10.0.0.0/8", "192.168.1.254", "enP7s7", "static")),
        "route 10.0.0.0/8 via 192.168.1.254 dev enP7s7 overlaps the planned 10.100.0.0/25",
    ),
    (
        "gateway",
        lambda w: w.nodes["b"]["routes"].append(w.route("172.30.0.0/16", "10.100.0.200", "wlP9s9", "static")),
        "the gateway of route 172.30.0.0/16 via 10.100.0.200 dev wlP9s9 is in the planned 10.100.0.128/25",
    ),
    (
        "route on a fabric NIC",
        lambda w: w.nodes["b"]["routes"].append(w.route("10.100.0.64/26", "", B0, "static")),
        "route 10.100.0.64/26 dev enp1s0f1np1 overlaps",
    ),
    (
        "other cage",
        lambda w: w.interface("b", A0)["addresses"].append({"address": "10.100.0.9/25", "scope": "global"}),
        f"NIC {A0} has 10.100.0.9/25",
    ),
]


@pytest.mark.parametrize(("breaks", "words"), [case[1:] for case in OVERLAPS], ids=[case[0] for case in OVERLAPS])
def test_overlap_with_anything_there(breaks: t.Callable[[World], None], words: str) -> None:
    world = World("switch", ["a", "b"])
    breaks(world)
    (error,) = world.errors()
    assert error.startswith("host b: ")
    assert words in error
    assert "choose a fabric_cidr" in error


def test_a_connected_route_is_not_told_twice() -> None:
    world = World("switch", ["a", "b"])
    world.nodes["b"]["interfaces"].append(world.nic("wg0", "10.100.0.77/24"))
    world.nodes["b"]["routes"].append(world.route("10.100.0.0/24", "", "wg0", "kernel"))
    assert len(world.errors()) == 1


def test_what_our_own_file_set_before_is_no_overlap() -> None:
    world = World("switch", ["a", "b"])
    world.interface("b", A0)["addresses"].append({"address": "10.100.0.2/25", "scope": "global"})
    world.nodes["b"]["routes"].append(world.route("10.100.0.0/25", "", A0, "kernel"))
    world.probes["b"]["netplan"]["own"] = [A0, A1]
    assert world.check() == []


def test_halves_in_one_subnet() -> None:
    world = World("direct", ["a", "b"])
    world.interface("a", B0)["addresses"].append({"address": "192.168.100.10/24", "scope": "global"})
    world.interface("a", B1)["addresses"].append({"address": "192.168.100.11/24", "scope": "global"})
    (error,) = world.errors()
    assert f"host a: NICs {B0} (192.168.100.10/24) and {B1} (192.168.100.11/24) are in one subnet" in error
    (replaced,) = world.check(replace_foreign=True)
    assert replaced.severity == "warning"


def test_link_local_halves_are_left_to_the_netplan_findings() -> None:
    world = World("direct", ["a", "b"])
    for name, last in ((B0, 1), (B1, 2)):
        world.interface("a", name)["addresses"].append({"address": f"169.254.3.{last}/16", "scope": "link"})
    assert world.check() == []


def test_no_rdma_where_the_plan_needs_it() -> None:
    world = World("ring", ["a", "b", "c"])
    world.probes["c"]["rdma"]["links"] = []
    (error,) = world.errors()
    assert "host c: it has no RDMA device, which a ring fabric needs" in error


@pytest.mark.parametrize("state", ["DOWN", "INIT"])
def test_a_port_with_a_carrier_whose_rdma_is_not_active(state: str) -> None:
    """Up and Down of ibdev2netdev are the carrier; the RDMA port has a state of its own."""
    world = World("direct", ["a", "b"])
    for link in world.probes["a"]["rdma"]["links"]:
        link["port_state"] = "ACTIVE" if link["netdev"] == B1 else state
    (error,) = world.errors()  # the other cage has no cable and is none of the plan's
    assert f"host a: RDMA device rocep1s0f1 is {state} although its NIC {B0} has a carrier; reload the driver" in error
    world.probes["a"]["raised"] = [B0]
    assert world.errors() == [], "a port that has just been set up may still be training"


def test_rdma_faults_of_one_nic() -> None:
    world = World("direct", ["a", "b"])
    links = world.probes["a"]["rdma"]["links"]
    world.probes["a"]["rdma"]["links"] = [link for link in links if link["netdev"] != B1]
    world.probes["b"]["rdma"]["links"][2]["link_layer"] = "InfiniBand"
    world.probes["b"]["rdma"]["links"][3]["rate"] = 100
    errors, others = errors_and_others(world.check())
    assert [error.split(";")[0] for error in errors] == [
        f"host a: NIC {B1} has no RDMA device",
        f"host b: RDMA device rocep1s0f1 of NIC {B0} is in InfiniBand mode, the plan is RoCE",
    ]
    assert len(others) == 1
    assert f"NIC {B1} has negotiated 100 Gb/s of 200" in others[0]


def finding(kind: str, where: str = "/etc/netplan/50-x.yaml") -> dict[str, t.Any]:
    return Finding(kind, f"{where} is {kind}", "fix it", where=where).to_dict()


def test_netplan_findings_stop_unless_accepted_or_replaced() -> None:
    world = World("direct", ["a", "b"])
    world.probes["b"]["netplan"]["findings"] = [
        finding("pending_edit"),
        finding("invalid_yaml"),
        finding("foreign_file", B0),
        finding("foreign_settings", B1),
    ]
    assert world.errors()[0] == "host b: /etc/netplan/50-x.yaml is pending_edit; fix it"
    assert len(world.errors()) == 4
    left = [
        problem.id
        for problem in world.check(accept=["pending_edit"], replace_foreign=True)
        if problem.severity == "error"
    ]
    assert left == ["invalid_yaml", "foreign_settings"]
    assert len(world.errors(accept=["invalid_yaml"])) == 4, "broken YAML cannot be accepted"


def test_parity_names_the_odd_host() -> None:
    world = World("switch", ["a", "b", "c"])
    world.nodes["c"]["kernel"] = "6.17.0-1026-nvidia"
    world.nodes["b"]["os"]["dgx"] = world.nodes["b"]["os"]["dgx"].replace("7.5.0", "7.4.0")
    for link in world.probes["a"]["rdma"]["links"]:
        link["firmware"] = "28.45.4000"
    errors = world.errors()
    assert [error.split(":")[0] for error in errors] == ["host c", "host b", "host a"]
    assert "kernel is 6.17.0-1026-nvidia, but 6.17.0-1031-nvidia on a, b" in errors[0]
    assert "OS image is Ubuntu 24.04.3 LTS DGX OS 7.4.0" in errors[1]
    assert "ConnectX firmware is 28.45.4000" in errors[2]
    assert world.errors(accept=["parity"]) == []


def test_hosts_of_different_kinds_may_differ() -> None:
    world = World("lan", ["a", "b"], kinds={"a": "spark", "b": "thor"})
    world.nodes["b"].update(kernel="6.8.12-tegra", driver="")
    assert world.check() == []


def test_known_bad_kernels_come_with_a_reason() -> None:
    world = World("direct", ["a", "b"])
    for host in "ab":
        world.nodes[host]["kernel"] = "7.0.0-1019-nvidia"
    errors = world.errors()
    assert len(errors) == 2
    assert "kernel 7.0.0-1019-nvidia is known bad: it reserves no contiguous memory (CmaTotal is 0)" in errors[0]
    assert world.errors(accept=["known_bad"]) == []
    own = [{"fact": "os.pretty", "match": "Ubuntu 24.04*", "reason": "tested", "fix": "nothing"}]
    assert "os.pretty Ubuntu 24.04.3 LTS is known bad" in world.errors(known_bad=own)[0]


@pytest.mark.parametrize(("offset", "words"), [(31.0, "31 s ahead of"), (-86400.0, "86400 s behind"), (30.0, "")])
def test_a_clock_that_is_off_is_named(offset: float, words: str) -> None:
    world = World("lan", ["a", "b"])
    world.nodes["b"]["clock_offset"] = offset
    errors = world.errors()
    assert [words in error and error.startswith("host b: its clock") for error in errors] == ([True] if words else [])
    assert world.errors(accept=["clock"]) == []


def test_a_lan_is_taken_as_it_is() -> None:
    world = World("lan", ["a", "b"], mtu=9000)
    world.interface("a", "enP7s7")["carrier"] = False
    errors = world.errors()
    assert "host a: NIC enP7s7 has no carrier" in errors[0]
    assert sum("has an MTU of 1500, fabric_mtu asks for 9000; on a lan nothing is configured" in e for e in errors) == 2
    world = World("lan", ["a", "b"])
    world.interface("b", "enP7s7")["mtu"] = 9000
    (problem,) = world.check()
    assert (problem.severity, problem.host) == ("warning", "b")
    world.interface("b", "enP7s7")["addresses"] = []
    assert "does not have 192.168.1.12/24" in world.errors()[0]


def test_device_names_for_the_plan() -> None:
    world = World("direct", ["a", "b"])
    assert fabric_check.devices(world.probes)["b"] == DEVICES
    assert fabric_check.devices({"a": {}}) == {"a": {}}


def test_256_hosts_are_judged_within_two_seconds() -> None:
    base = World("switch", ["a", "b"])
    hosts = [f"h{index:03d}" for index in range(256)]
    plan = fabric.fabric_plan(hosts, "switch", "10.96.0.0/16")
    nodes = {host: copy.deepcopy(base.nodes["a"]) for host in hosts}
    started = time.process_time()
    assert check_facts(plan, nodes, dict.fromkeys(hosts, base.probes["a"])) == []
    assert time.process_time() - started < 2


def test_probe_and_check_agree_on_what_a_neighbour_is() -> None:
    assert neighbors.port_of(A0) == neighbors.port_of(A1) == "np0"
    assert neighbors.port_of("eth7") == "eth7"


def test_an_end_that_the_peer_has_set_down_again_is_no_fault_of_rdma() -> None:
    """Heard while the peer had its port up for the probe; the state was read after that, with the carrier gone."""
    world = World("direct", ["a", "b"])
    for link in world.probes["a"]["rdma"]["links"]:
        link.update(port_state="DOWN", state="down")
    world.probes["b"]["raised"] = [B0, B1]
    assert world.errors() == []
    for link in world.probes["a"]["rdma"]["links"]:
        link.update(port_state="DOWN", state="up")
    assert len(world.errors()) == 2
