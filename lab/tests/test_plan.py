# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from sparklab.plan import (
    CAGES,
    DATA_NICS,
    LANES,
    Host,
    Plan,
    Segment,
    Wish,
    allot,
    disk_bytes,
    lab_tag,
    mac,
    parse_subnet,
    rewire,
    short_name,
    wire,
)
from sparklab.system import LabError

SUBNET = "10.77.0.0/24"


def sparks(count: int) -> tuple[Host, ...]:
    return allot([Wish(f"spark-{number:02}") for number in range(1, count + 1)], SUBNET)


def ends(segments: tuple[Segment, ...]) -> list[set[str]]:
    return [{f"{host}:{nic}" for host, nic in segment.ends} for segment in segments]


# --- addresses -------------------------------------------------------------------------------------------------------


def test_both_cages_of_each_host_are_cabled() -> None:
    pair = wire(sparks(2), "direct", 1, [0, 1])
    assert [segment.ends[0][1] for segment in pair] == [nic for cage in CAGES for nic in cage]
    joined = wire(sparks(4), "switch", 1, [0, 1])
    assert [len(segment.ends) for segment in joined] == [4] * 4
    assert len({segment.name for segment in joined}) == 4
    line = wire(sparks(3), "line")
    assert len(line) == 4


def test_addresses_follow_the_inventorys_order():
    assert [host.address for host in sparks(3)] == ["10.77.0.11", "10.77.0.12", "10.77.0.13"]


def test_an_address_inside_the_subnet_is_kept_and_not_given_twice():
    hosts = allot([Wish("a"), Wish("b", address="10.77.0.11"), Wish("c", address="192.168.1.7"), Wish("d")], SUBNET)
    assert {host.name: host.address for host in hosts} == {
        "a": "10.77.0.12",
        "b": "10.77.0.11",
        "c": "10.77.0.13",
        "d": "10.77.0.14",
    }


def test_a_host_added_at_the_end_moves_nobody():
    assert sparks(5)[:4] == sparks(4)


def test_a_name_as_ansible_host_is_no_address():
    assert allot([Wish("a", address="a.example.net")], SUBNET)[0].address == "10.77.0.11"


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ([], "no host in the group cluster"),
        ([Wish("a"), Wish("a")], "twice"),
        ([Wish("Host_1")], "lab host's name"),
        ([Wish("a", kind="orin")], "lab_kind 'orin'"),
        ([Wish("a", address="10.77.0.1")], "taken by the controller"),
        (
            [Wish("a", address="10.77.0.9"), Wish("b", address="10.77.0.9")],
            "host b: ansible_host 10.77.0.9 is taken by a",
        ),
        ([Wish("a", address="10.77.0.255")], "taken by the network"),
    ],
)
def test_bad_hosts_are_named(wishes, message):
    with pytest.raises(LabError, match=message):
        allot(wishes, SUBNET)


def test_a_small_subnet_is_filled_and_then_refused():
    hosts = allot([Wish(f"h{number}") for number in range(13)], "10.0.0.0/28")
    assert hosts[-1].address == "10.0.0.14"
    with pytest.raises(LabError, match="too small for 14 hosts"):
        allot([Wish(f"h{number}") for number in range(14)], "10.0.0.0/28")


@pytest.mark.parametrize("subnet", ["10.77.0.5/24", "fd00::/64", "10.0.0.0/30", "nonsense"])
def test_bad_subnets_are_refused(subnet):
    with pytest.raises(LabError, match="subnet"):
        parse_subnet(subnet)


# --- wiring ----------------------------------------------------------------------------------------------------------


def test_a_switch_joins_one_half_of_all_hosts():
    assert ends(wire(sparks(3), "switch", 1)) == [
        {"spark-01:enp1s0f1np1", "spark-02:enp1s0f1np1", "spark-03:enp1s0f1np1"},
        {"spark-01:enP2p1s0f1np1", "spark-02:enP2p1s0f1np1", "spark-03:enP2p1s0f1np1"},
    ]


def test_a_direct_cable_joins_both_halves_of_the_cage():
    segments = wire(sparks(2), "direct", 0)
    assert all(segment.kind == "cable" for segment in segments)
    assert ends(segments) == [
        {"spark-01:enp1s0f0np0", "spark-02:enp1s0f0np0"},
        {"spark-01:enP2p1s0f0np0", "spark-02:enP2p1s0f0np0"},
    ]


def test_a_ring_joins_p0_to_p1_of_the_next():
    first_halves = [segment for segment in wire(sparks(3), "ring") if segment.name.endswith("h0")]
    assert [segment.ends for segment in first_halves] == [
        (("spark-01", "enp1s0f0np0"), ("spark-02", "enp1s0f1np1")),
        (("spark-02", "enp1s0f0np0"), ("spark-03", "enp1s0f1np1")),
        (("spark-03", "enp1s0f0np0"), ("spark-01", "enp1s0f1np1")),
    ]


@pytest.mark.parametrize("count", [3, 4, 7])
def test_a_ring_uses_every_port_once(count):
    used = [end for segment in wire(sparks(count), "ring") for end in segment.ends]
    assert sorted(used) == sorted((host.name, nic) for host in sparks(count) for nic in DATA_NICS["spark"])


def test_lan_has_no_fabric_cables():
    assert wire(allot([Wish("a"), Wish("b", kind="thor")], SUBNET), "lan") == ()


@pytest.mark.parametrize(
    ("hosts", "topology", "cage", "message"),
    [
        (sparks(3), "direct", 1, "joins 2 hosts, the inventory has 3"),
        (sparks(2), "ring", 1, "needs 3 hosts"),
        (sparks(2), "star", 1, "fabric_topology 'star'"),
        (sparks(2), "direct", 2, "fabric_cage 2"),
        (allot([Wish("a"), Wish("t", kind="thor")], SUBNET), "direct", 1, "t has no ConnectX"),
    ],
)
def test_impossible_wirings_are_named(hosts, topology, cage, message):
    with pytest.raises(LabError, match=message):
        wire(hosts, topology, cage)


def test_swapped_ring_cables():
    hosts = sparks(3)
    swapped = rewire(hosts, wire(hosts, "ring"), {"swap": [["spark-02:enp1s0f1np1", "spark-03:enp1s0f1np1"]]})
    assert ("spark-01", "enp1s0f0np0") in swapped[0].ends
    assert ("spark-03", "enp1s0f1np1") in swapped[0].ends


def test_other_cage_and_a_missing_half():
    hosts = sparks(2)
    plan = wire(hosts, "direct", 1)
    moved = rewire(hosts, plan, {"cage": {"spark-02": 0}})
    assert [segment.ends[1] for segment in moved] == [("spark-02", nic) for nic in CAGES[0]]
    halved = rewire(hosts, plan, {"unplug": ["spark-01:enP2p1s0f1np1"]})
    assert ends(halved) == [{"spark-01:enp1s0f1np1", "spark-02:enp1s0f1np1"}]


def test_given_cables_replace_the_topology():
    hosts = sparks(2)
    given = rewire(hosts, wire(hosts, "direct"), {"cables": [["spark-01:enp1s0f0np0", "spark-02:enp1s0f1np1"]]})
    assert ends(given) == [{"spark-01:enp1s0f0np0", "spark-02:enp1s0f1np1"}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cabels": []}, "unknown key 'cabels'"),
        ({"unplug": ["spark-01:eth0"]}, "spark-01:eth0"),
        ({"unplug": ["nobody:enp1s0f0np0"]}, "nobody"),
        ({"cables": [["spark-01:enp1s0f0np0"]]}, "two ends, not 1"),
        ({"cage": {"spark-01": 3}}, "spark-01: 3"),
        (
            {"switches": [["spark-01:enp1s0f0np0", "spark-02:enp1s0f0np0"], ["spark-01:enp1s0f0np0"]]},
            "would hang on two cables",
        ),
    ],
)
def test_bad_wiring_files_are_named(changes, message):
    with pytest.raises(LabError, match=message):
        rewire(sparks(2), (), changes)


# --- the rest --------------------------------------------------------------------------------------------------------


def plan(**changes) -> Plan:
    hosts = sparks(3)
    values = {
        "name": "lab",
        "tag": "ab12",
        "subnet": SUBNET,
        "suite": "trixie",
        "disk": "4G",
        "layers": ("docker",),
        "hosts": hosts,
        "segments": wire(hosts, "ring"),
    }
    return Plan(**{**values, **changes})


def test_a_plan_survives_its_file():
    assert Plan.from_data(json.loads(json.dumps(plan().to_data()))) == plan()


def test_cable_peer():
    assert plan().cable_peer("spark-01", "enp1s0f0np0") == ("spark-02", "enp1s0f1np1")
    assert plan().cable_peer("spark-02", "enp1s0f1np1") == ("spark-01", "enp1s0f0np0")
    assert plan().cable_peer("spark-02", "enP7s7") is None
    switched = plan(segments=wire(sparks(3), "switch"))
    assert switched.cable_peer("spark-01", "enp1s0f1np1") is None


def test_unknown_hosts_and_nics_are_named():
    with pytest.raises(LabError, match="no host 'spark-09' in lab lab: it has spark-01, spark-02, spark-03"):
        plan().host("spark-09")
    with pytest.raises(LabError, match="spark-01 has no NIC 'eth0'"):
        plan().host("spark-01").port("eth0")


def test_ports_and_macs_are_unique_and_short():
    hosts = allot([Wish(f"h{number}") for number in range(200)], "10.0.0.0/16")
    ports = [host.port(nic) for host in hosts for nic in host.nics]
    addresses = [mac("ab12", host.index, number) for host in hosts for number in range(len(host.nics))]
    assert len(set(ports)) == len(ports)
    assert max(map(len, ports)) <= 14  # an i is put before it for the ifb device
    assert len(set(addresses)) == len(addresses)
    assert all(int(address[:2], 16) & 3 == 2 for address in addresses)  # locally administered, unicast


def test_labs_of_one_name_in_two_homes_differ():
    assert lab_tag("/a", "lab") != lab_tag("/b", "lab")


@pytest.mark.parametrize(
    ("folder", "name"), [("3spark_ring", "3spark_ring"), ("My Lab!", "my-lab"), ("a" * 20, "a" * 12)]
)
def test_a_lab_name_from_a_folder(folder, name):
    assert short_name(folder) == name


def test_disk_sizes():
    assert disk_bytes("12G") == 12 * 1024**3
    assert disk_bytes("512M") == 512 * 1024**2
    for bad in ("12", "G", "0G", "12T", "64M", "-1G"):
        with pytest.raises(LabError, match="disk size"):
            disk_bytes(bad)


def test_thors_alone_are_cabled_lane_to_lane_or_to_a_switch() -> None:
    thors = allot([Wish(f"thor-0{number}", "thor") for number in (1, 2, 3)], "10.79.0.0/24")
    pair = wire(thors[:2], "direct")
    assert [(one.kind, one.ends) for one in pair] == [("cable", (("thor-01", nic), ("thor-02", nic))) for nic in LANES]
    assert [(one.kind, len(one.ends)) for one in wire(thors, "switch")] == [("switch", 3)] * 4
    for hosts, topology in ((thors, "direct"), (thors, "ring")):
        with pytest.raises(LabError):
            wire(hosts, topology)
