# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import ipaddress
import json
import time
import typing as t
from ipaddress import IPv4Interface, IPv4Network

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric, fabric_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import (
    fabric_plan,
    trusted_sources,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_inventory import fabric_problems
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils._plan.fabric_cases import (
    AB,
    ABC,
    LAN_NICS,
    RING_MANAGEMENT,
    cases,
    check_refused,
    names,
)

LINK_KEYS = {"netdev", "device", "half", "address", "subnet", "peer", "peer_netdev", "mtu"}


@given(cases())
@settings(deadline=None, max_examples=150)
def test_plan_properties(case: dict[str, t.Any]) -> None:
    plan = fabric_plan(**case)
    assert list(plan) == case["hosts"]
    lan = case["topology"] == "lan"
    addresses = [IPv4Interface(link["address"]) for host in plan.values() for link in host["links"]]
    assert len({address.ip for address in addresses}) == len(addresses), "no address twice"
    for host, entry in plan.items():
        assert all(set(link) == LINK_KEYS for link in entry["links"])
        end = case["topology"] == "line" and host in (case["hosts"][0], case["hosts"][-1])
        wanted = {"direct": 2, "switch": 2, "ring": 4, "line": 2 if end else 4, "lan": 1}
        assert len(entry["links"]) == wanted[case["topology"]]
        networks = [IPv4Network(link["subnet"]) for link in entry["links"]]
        assert not any(a.overlaps(b) for i, a in enumerate(networks) for b in networks[:i]), "one NIC per subnet"
        assert len({link["netdev"] for link in entry["links"]}) == len(entry["links"])
        for link in entry["links"]:
            address = IPv4Interface(link["address"])
            assert address.network == IPv4Network(link["subnet"])
            assert address.ip not in (address.network.network_address, address.network.broadcast_address)
            if lan:
                continue
            assert address.network.subnet_of(IPv4Network(case["cidr"]))
            assert not any(address.network.overlaps(IPv4Interface(m).network) for m in case["management"].values())
            if case["topology"] == "switch":
                assert (link["peer"], link["peer_netdev"]) == ("", "")
                continue
            (back,) = [other for other in plan[link["peer"]]["links"] if other["netdev"] == link["peer_netdev"]]
            assert (back["peer"], back["peer_netdev"]) == (host, link["netdev"]), "a cable has two ends"
            assert (back["subnet"], back["half"]) == (link["subnet"], link["half"])
            ports = {link["netdev"][-2:], back["netdev"][-2:]}
            assert ports == ({"p0", "p1"} if case["topology"] in ("ring", "line") else {f"p{case['cage']}"})
    json.dumps(plan)


def test_a_cable_may_join_different_cages() -> None:
    plan = fabric_plan(["a", "b"], topology="direct", cidr="10.100.0.0/24", cage={"a": 1, "b": "0"})
    assert [(link["netdev"], link["device"], link["peer_netdev"], link["address"]) for link in plan["a"]["links"]] == [
        ("enp1s0f1np1", "rocep1s0f1", "enp1s0f0np0", "10.100.0.1/25"),
        ("enP2p1s0f1np1", "roceP2p1s0f1", "enP2p1s0f0np0", "10.100.0.129/25"),
    ]
    assert [(link["netdev"], link["peer_netdev"]) for link in plan["b"]["links"]] == [
        ("enp1s0f0np0", "enp1s0f1np1"),
        ("enP2p1s0f0np0", "enP2p1s0f1np1"),
    ]
    assert plan["b"]["control_netdev"] == "enp1s0f0np0"
    assert plan["b"]["env"]["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0"


def test_on_a_switch_a_host_without_a_cage_of_its_own_has_the_usual_one() -> None:
    plan = fabric_plan(["a", "b", "c"], topology="switch", cidr="10.100.0.0/24", cage={"b": 0})
    assert [plan[host]["links"][0]["netdev"] for host in "abc"] == ["enp1s0f1np1", "enp1s0f0np0", "enp1s0f1np1"]


def test_direct_plan_in_full() -> None:
    plan = fabric_plan(["a", "b"], topology="direct", cidr="10.100.0.0/24", management={"a": "192.168.1.11/24"})
    assert plan["a"]["links"] == [
        {
            "netdev": "enp1s0f1np1",
            "device": "rocep1s0f1",
            "half": 0,
            "address": "10.100.0.1/25",
            "subnet": "10.100.0.0/25",
            "peer": "b",
            "peer_netdev": "enp1s0f1np1",
            "mtu": 9000,
        },
        {
            "netdev": "enP2p1s0f1np1",
            "device": "roceP2p1s0f1",
            "half": 1,
            "address": "10.100.0.129/25",
            "subnet": "10.100.0.128/25",
            "peer": "b",
            "peer_netdev": "enP2p1s0f1np1",
            "mtu": 9000,
        },
    ]
    assert plan["b"]["control_address"] == "10.100.0.2"
    assert plan["b"]["env"] == {
        "NCCL_SOCKET_IFNAME": "=enp1s0f1np1",
        "NCCL_SOCKET_FAMILY": "AF_INET",
        "NCCL_IGNORE_CPU_AFFINITY": "1",
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": "=rocep1s0f1,roceP2p1s0f1",
        "GLOO_SOCKET_IFNAME": "enp1s0f1np1",
        "TP_SOCKET_IFNAME": "enp1s0f1np1",
        "UCX_NET_DEVICES": "enp1s0f1np1",
        "OMPI_MCA_btl_tcp_if_include": "enp1s0f1np1",
        "VLLM_HOST_IP": "10.100.0.2",
        "RAY_NODE_IP_ADDRESS": "10.100.0.2",
        "RAY_ADDRESS": "10.100.0.1:6379",
    }
    assert plan["b"]["trusted_netdevs"] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert plan["a"]["management_address"] == "192.168.1.11/24"


def test_ring_follows_the_documented_cabling() -> None:
    plan = fabric_plan(["a", "b", "c"], "ring", "10.100.0.0/16", management=RING_MANAGEMENT)
    ends = {
        (host, link["netdev"], link["peer"], link["peer_netdev"], link["address"])
        for host, entry in plan.items()
        for link in entry["links"]
        if link["half"] == 0 and link["netdev"].endswith("p0")
    }
    assert ends == {
        ("a", "enp1s0f0np0", "b", "enp1s0f1np1", "10.100.0.1/24"),
        ("b", "enp1s0f0np0", "c", "enp1s0f1np1", "10.100.2.1/24"),
        ("c", "enp1s0f0np0", "a", "enp1s0f1np1", "10.100.4.1/24"),
    }
    env = plan["b"]["env"]
    assert plan["b"]["control_address"] == env["VLLM_HOST_IP"] == "192.168.1.12"
    assert env["NCCL_SOCKET_IFNAME"] == "=enP7s7"
    assert env["NCCL_IB_HCA"] == "=rocep1s0f0,roceP2p1s0f0,rocep1s0f1,roceP2p1s0f1"
    assert env["NCCL_IB_SUBNET_AWARE_ROUTING"] == "1"
    assert env["NCCL_IB_SUBNET_PREFIX_LEN"] == "24"
    assert env["NCCL_IB_MERGE_NICS"] == "0"
    assert env["NCCL_NET_PLUGIN"] == "none"
    assert "enP7s7" in plan["b"]["trusted_netdevs"]


def test_lan_adopts_addresses_and_picks_tcp_and_says_why() -> None:
    kinds = {"a": "spark", "b": "thor", "c": "generic"}
    plan = fabric_plan(["a", "b", "c"], "lan", management=RING_MANAGEMENT, kinds=kinds, nics=LAN_NICS, ray_head="b")
    assert [entry["addressing"] for entry in plan.values()] == ["adopted"] * 3
    assert plan["b"]["links"] == [
        {
            "netdev": "mgbe0_0",
            "device": "",
            "half": 0,
            "address": "192.168.1.12/24",
            "subnet": "192.168.1.0/24",
            "peer": "",
            "peer_netdev": "",
            "mtu": None,
        }
    ]
    env = plan["a"]["env"]
    assert (env["NCCL_IB_DISABLE"], env["NCCL_NET"], "NCCL_IB_HCA" in env) == ("1", "Socket", False)
    assert env["RAY_ADDRESS"] == "192.168.1.12:6379"
    assert plan["a"]["profile"] == "tcp"
    assert plan["a"]["profile_reason"].startswith("b has no RDMA NIC (Jetson Thor)")
    assert plan["a"]["trusted_netdevs"] == ["enP7s7"]


def test_mtu_is_capped_on_a_thor_only() -> None:
    plan = fabric_plan(["a", "b"], "lan", mtu=9000, management=RING_MANAGEMENT, kinds={"b": "thor"}, nics=LAN_NICS)
    assert (plan["a"]["links"][0]["mtu"], plan["b"]["links"][0]["mtu"]) == (9000, 8966)


BAD: list[tuple[str, dict[str, t.Any], str, str]] = [
    ("foreign head", {"hosts": AB, "topology": "direct", "ray_head": "z"}, "ray_head", "use one of a, b"),
]


@pytest.mark.parametrize(("arguments", "variable", "words"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_one_clear_message(arguments: dict[str, t.Any], variable: str, words: str) -> None:
    check_refused(arguments, variable, words)


@given(
    hosts=st.one_of(st.none(), st.text(), st.lists(st.one_of(st.text(), st.integers()), max_size=4)),
    topology=st.one_of(st.sampled_from(fabric_values.TOPOLOGIES), st.text(), st.integers()),
    cidr=st.one_of(st.none(), st.text(), st.sampled_from(["10.0.0.0/24", "10.0.0.0/99", "0.0.0.0/0"])),
    cage=st.one_of(st.none(), st.integers(), st.text()),
    mtu=st.one_of(st.none(), st.integers(), st.text()),
    management=st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.text())),
    overrides=st.one_of(st.none(), st.text(), st.dictionaries(st.text(), st.text())),
)
@settings(deadline=None, max_examples=200)
def test_nonsense_ends_in_a_plan_or_the_documented_error(**arguments: t.Any) -> None:
    try:
        plan = fabric_plan(**arguments)
    except FabricError:
        pass  # any other exception fails the test
    else:
        assert set(plan) == set(arguments["hosts"])


def test_256_hosts_are_planned_and_checked_in_linear_time() -> None:
    def run(count: int) -> float:
        hosts = names(count)
        management = {host: f"172.16.{index // 200}.{index % 200 + 1}/16" for index, host in enumerate(hosts)}
        best = 9.0  # of processor time, which other work on the machine takes nothing from
        for _repeat in range(3):
            started = time.process_time()
            assert not fabric_problems("switch", hosts, "10.0.0.0/16", management=management)
            assert len(fabric_plan(hosts, "switch", "10.0.0.0/16", management=management)) == count
            best = min(best, time.process_time() - started)
        return best

    assert run(256) < 2
    assert run(1024) < 16 * run(256), "four times the hosts must not cost the square of it"


def test_firewall_sources_are_the_peers_on_each_trusted_nic() -> None:
    plan = fabric_plan(ABC, "ring", "10.100.0.0/16", management=RING_MANAGEMENT)
    assert trusted_sources(plan, "a") == {
        "enp1s0f0np0": ["10.100.0.2"],
        "enP2p1s0f0np0": ["10.100.1.2"],
        "enp1s0f1np1": ["10.100.4.1"],
        "enP2p1s0f1np1": ["10.100.5.1"],
        "enP7s7": ["192.168.1.12", "192.168.1.13"],
    }
    plan = fabric_plan(ABC, "switch", "10.100.0.0/24")
    assert trusted_sources(plan, "b") == {
        "enp1s0f1np1": ["10.100.0.1", "10.100.0.3"],
        "enP2p1s0f1np1": ["10.100.0.129", "10.100.0.131"],
    }


def test_real_device_names_replace_the_expected_ones() -> None:
    plan = fabric_plan(AB, "direct", "10.100.0.0/24")
    fabric.adopt_devices(plan, {"a": {"enp1s0f1np1": "mlx5_1"}})
    assert plan["a"]["env"]["NCCL_IB_HCA"] == "=mlx5_1,roceP2p1s0f1"
    assert [link["device"] for link in plan["a"]["links"]] == ["mlx5_1", "roceP2p1s0f1"]
    assert plan["b"]["env"]["NCCL_IB_HCA"] == "=rocep1s0f1,roceP2p1s0f1"


@pytest.mark.parametrize("length", range(16, 28))
def test_nccl_tells_the_segments_of_a_ring_apart_in_a_range_of_any_size(length: int) -> None:
    plan = fabric_plan(list("abc"), "ring", f"10.100.0.0/{length}", management=RING_MANAGEMENT)
    bits = {int(entry["env"]["NCCL_IB_SUBNET_PREFIX_LEN"]) for entry in plan.values()}
    assert bits == {max(length + 3, 24)}
    compared: dict[str, set[str]] = {}
    for entry in plan.values():
        for link in entry["links"]:
            address = ipaddress.ip_interface(f"{link['address'].partition('/')[0]}/{min(bits)}")
            compared.setdefault(str(address.network), set()).add(link["subnet"])
    assert len(compared) == 6
    assert all(len(segments) == 1 for segments in compared.values())


def test_segments_that_nccl_cannot_tell_apart_are_refused() -> None:
    # a long segment inside what a short one's prefix covers
    overrides = {
        "a": {"enp1s0f0np0": "10.50.0.1/16"},
        "b": {"enp1s0f1np1": "10.50.200.1/16", "enp1s0f0np0": "10.51.0.1/30"},
        "c": {"enp1s0f1np1": "10.51.0.2/30", "enp1s0f0np0": "10.51.0.5/30"},
    }
    overrides["a"]["enp1s0f1np1"] = "10.51.0.6/30"
    with pytest.raises(FabricError, match=r"cannot tell these segments of the ring apart"):
        fabric_plan(list("abc"), "ring", "10.100.0.0/16", management=RING_MANAGEMENT, overrides=overrides)


MANY = {host: f"192.168.1.{number + 11}/24" for number, host in enumerate("abcdefgh")}


def _addresses(plan: dict[str, t.Any]) -> dict[tuple[str, str], str]:
    return {(host, link["netdev"]): link["address"] for host, entry in plan.items() for link in entry["links"]}


def test_a_ring_of_four_is_planned_along_its_cables_and_nccl_connects_nothing_else() -> None:
    plan = fabric_plan(list("abcd"), "ring", "10.100.0.0/24", management=MANY)
    cables = [(host, link["peer"]) for host in plan for link in plan[host]["links"] if link["netdev"] == "enp1s0f0np0"]
    assert cables == [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    env = plan["c"]["env"]
    assert (env["NCCL_ALGO"], env["NCCL_RUNTIME_CONNECT"], env["NCCL_CUMEM_ENABLE"]) == ("Ring", "1", "1")
    assert (env["NCCL_PAT_ENABLE"], env["NCCL_IB_MERGE_NICS"], env["NCCL_IB_SUBNET_PREFIX_LEN"]) == ("0", "1", "27")
    assert env["NCCL_SOCKET_IFNAME"] == "=enP7s7", "the hosts meet on the control network, which reaches all"


@pytest.mark.parametrize("patch", ["NCCL_SKIP_TREE_CONNECT", "NCCL_SWITCHLESS_RING_ONLY"])
def test_a_patched_library_gets_its_own_variable_and_no_other(patch: str) -> None:
    env = fabric_plan(list("abcd"), "ring", "10.100.0.0/16", management=MANY, nccl_patch=patch)["a"]["env"]
    assert [name for name in env if "SKIP_TREE" in name or "SWITCHLESS" in name] == [patch]
    assert (env["NCCL_IB_MERGE_NICS"], env["NCCL_CUMEM_ENABLE"], env["NCCL_ALGO"]) == ("0", "0", "Ring")
    assert "NCCL_RUNTIME_CONNECT" not in env
    # three hosts are a full mesh and need neither
    assert "NCCL_ALGO" not in fabric_plan(ABC, "ring", "10.100.0.0/16", management=MANY, nccl_patch=patch)["a"]["env"]


@pytest.mark.parametrize("cidr", ["10.100.0.0/16", "10.100.0.0/24"])
def test_a_host_added_at_the_end_of_a_line_moves_nobody(cidr: str) -> None:
    whole = _addresses(fabric_plan(list("abcdefgh"), "line", cidr, management=MANY))
    for count in range(3, 8):
        part = _addresses(fabric_plan(list("abcdefgh")[:count], "line", cidr, management=MANY))
        assert part.items() <= whole.items()


@pytest.mark.parametrize(("cidr", "least"), [("10.100.0.0/16", 3), ("10.100.0.0/24", 5)])
def test_a_host_added_to_a_ring_moves_one_end_of_the_closing_cable(cidr: str, least: int) -> None:
    hosts = list("abcdefgh")
    for count in range(least, 8):
        before = _addresses(fabric_plan(hosts[:count], "ring", cidr, management=MANY))
        after = _addresses(fabric_plan(hosts[: count + 1], "ring", cidr, management=MANY))
        moved = {port for port, address in before.items() if after[port] != address}
        assert moved == {("a", "enp1s0f1np1"), ("a", "enP2p1s0f1np1")}


def test_a_line_and_an_opened_ring_have_the_same_addresses() -> None:
    ring = _addresses(fabric_plan(list("abcde"), "ring", "10.100.0.0/16", management=MANY))
    line = _addresses(fabric_plan(list("abcde"), "line", "10.100.0.0/16", management=MANY))
    assert line.items() <= ring.items()
    assert len(ring) - len(line) == 4


def test_a_line_says_that_its_ranks_use_tcp() -> None:
    plan = fabric_plan(ABC, "line", "10.100.0.0/16", management=MANY)
    entry = plan["b"]
    assert (entry["profile"], entry["env"]["NCCL_NET"], entry["env"]["NCCL_IB_DISABLE"]) == ("tcp", "Socket", "1")
    assert "does not close" in entry["profile_reason"]
    assert entry["addressing"] == "managed"
    assert [len(one["links"]) for one in plan.values()] == [2, 4, 2]
    assert entry["control_address"] == "192.168.1.12"


def test_256_hosts_in_a_ring_are_planned_as_fast_as_on_a_switch() -> None:
    hosts = names(256)
    management = {host: f"192.168.{number // 200}.{number % 200 + 1}/16" for number, host in enumerate(hosts)}
    started = time.process_time()
    plan = fabric_plan(
        hosts, "ring", "10.0.0.0/16", management=management, overrides={"node000": {"enp1s0f0np0": "10.0.0.1"}}
    )
    assert len(_addresses(plan)) == 4 * 256
    assert time.process_time() - started < 2


def test_both_cages_have_four_subnets_and_keep_the_addresses_of_the_first() -> None:
    one = fabric_plan(AB, "direct", "10.100.0.0/24", cage=1)
    plan = fabric_plan(AB, "direct", "10.100.0.0/24", cage=[1, 0], management=MANY)
    before = {netdev: address.partition("/")[0] for (host, netdev), address in _addresses(one).items() if host == "b"}
    after = {netdev: address for (host, netdev), address in _addresses(plan).items() if host == "b"}
    assert after == {
        "enp1s0f1np1": "10.100.0.2/26",
        "enP2p1s0f1np1": "10.100.0.130/26",
        "enp1s0f0np0": "10.100.0.66/26",
        "enP2p1s0f0np0": "10.100.0.194/26",
    }
    assert before.items() <= {netdev: address.partition("/")[0] for netdev, address in after.items()}.items()
    links = plan["a"]["links"]
    assert all((link["peer"], link["peer_netdev"]) == ("b", link["netdev"]) for link in links)
    env = plan["a"]["env"]
    assert env["NCCL_IB_HCA"] == "=rocep1s0f1,roceP2p1s0f1,rocep1s0f0,roceP2p1s0f0"
    assert (env["NCCL_CROSS_NIC"], env["NCCL_IB_MERGE_NICS"]) == ("1", "1")
    assert (plan["a"]["control_address"], plan["a"]["control_netdev"]) == ("192.168.1.11", "enP7s7")
    assert len(trusted_sources(plan, "a")) == 5


def test_two_cables_may_be_crossed_and_a_switch_takes_both_cages_of_many() -> None:
    plan = fabric_plan(AB, "direct", "10.100.0.0/24", cage={"a": [0, 1], "b": [1, 0]}, management=MANY)
    assert [link["peer_netdev"] for link in plan["a"]["links"] if link["half"] == 0] == ["enp1s0f1np1", "enp1s0f0np0"]
    plan = fabric_plan(list("abcd"), "switch", "10.100.0.0/16", cage=[0, 1], management=MANY)
    segments = {link["subnet"] for link in plan["d"]["links"]}
    assert len(segments) == 4 == len(plan["d"]["links"])
    assert {link["subnet"] for entry in plan.values() for link in entry["links"]} == segments


THORS = {"t": "thor", "u": "thor", "v": "thor"}
THOR_MANAGEMENT = {"t": "192.168.1.11/24", "u": "192.168.1.12/24", "v": "192.168.1.13/24"}


def thors(hosts: str, topology: str, **more: t.Any) -> dict[str, t.Any]:
    return fabric.fabric_plan(list(hosts), topology, "10.100.0.0/24", kinds=THORS, management=THOR_MANAGEMENT, **more)


def test_thors_alone_use_the_lanes_of_their_cages_over_tcp() -> None:
    plan = thors("tu", "direct")
    assert [(link["netdev"], link["address"], link["peer"], link["peer_netdev"]) for link in plan["u"]["links"]] == [
        ("mgbe0_0", "10.100.0.2/26", "t", "mgbe0_0"),
        ("mgbe1_0", "10.100.0.66/26", "t", "mgbe1_0"),
        ("mgbe2_0", "10.100.0.130/26", "t", "mgbe2_0"),
        ("mgbe3_0", "10.100.0.194/26", "t", "mgbe3_0"),
    ]
    assert {link["mtu"] for link in plan["u"]["links"]} == {8966}
    assert (plan["u"]["profile"], plan["u"]["addressing"], plan["u"]["control_netdev"]) == ("tcp", "managed", "mgbe0_0")
    env = plan["u"]["env"]
    assert (env["NCCL_NET"], env["NCCL_IB_DISABLE"], env["GLOO_SOCKET_IFNAME"]) == ("Socket", "1", "mgbe0_0")
    assert env["NCCL_SOCKET_IFNAME"] == "=mgbe0_0,mgbe1_0,mgbe2_0,mgbe3_0"
    assert "NCCL_IB_HCA" not in env


def test_fewer_lanes_and_a_third_thor_move_no_address() -> None:
    pair, three = thors("tu", "direct"), thors("tuv", "switch", lanes=[2, 0], mtu=1500)
    before = {link["netdev"]: link["address"] for link in pair["u"]["links"]}
    assert {link["netdev"]: link["address"] for link in three["u"]["links"]} == {
        name: before[name] for name in ("mgbe0_0", "mgbe2_0")
    }
    assert {link["mtu"] for link in three["u"]["links"]} == {1500}
    assert three["u"]["env"]["NCCL_SOCKET_IFNAME"] == "=mgbe0_0,mgbe2_0"


@pytest.mark.parametrize("lanes", [[], [4], [0, 0], "two", [True], {"a": 1}])
def test_lanes_that_are_none_are_refused(lanes: t.Any) -> None:
    with pytest.raises(fabric.FabricError, match=r"fabric_lanes"):
        thors("tu", "direct", lanes=lanes)


@pytest.mark.parametrize(
    ("topology", "kind"), [("direct", "spark"), ("switch", "spark"), ("ring", "spark"), ("lan", "thor")]
)
def test_lanes_of_hosts_that_have_none_are_refused(topology: str, kind: str) -> None:
    given = {"kinds": dict.fromkeys("tuv", kind), "management": THOR_MANAGEMENT, "nics": dict.fromkeys("tuv", "eno1")}
    hosts = list("tu" if topology == "direct" else "tuv")
    with pytest.raises(fabric.FabricError, match=r"^fabric_lanes is \[0\]: only a direct or switch of Thors"):
        fabric.fabric_plan(hosts, topology, "10.100.0.0/24", lanes=[0], **given)
    groups = {"cluster": hosts, "ray_head": hosts[:1], "ray_workers": hosts[1:], f"{kind}s": hosts}
    told = fabric_problems(topology, hosts, "10.100.0.0/24", groups=groups, lanes=[0])
    assert [one.where for one in told] == ["fabric_lanes"]


@pytest.mark.parametrize("value", [[0, 1], [0], 0, 1, 7])
@pytest.mark.parametrize(("hosts", "topology"), [("tu", "direct"), ("tuv", "switch")])
def test_thors_alone_choose_no_cage(hosts: str, topology: str, value: t.Any) -> None:
    line = (
        f"{'fabric_cages' if isinstance(value, list) else 'fabric_cage'} of host t is {value}: a Jetson Thor has one "
        "QSFP cage; remove it, and name the lanes that are cabled in fabric_lanes"
    )
    by_host = dict.fromkeys(hosts, value)
    with pytest.raises(fabric.FabricError) as caught:
        thors(hosts, topology, cage=by_host)
    assert str(caught.value) == line
    groups = {"ray_head": ["t"], "ray_workers": list(hosts[1:]), "thors": list(hosts)}
    told = fabric_problems(topology, list(hosts), "10.100.0.0/24", by_host, groups=groups)
    assert [str(one) for one in told] == [line]
    (of_one,) = fabric_problems(topology, list(hosts), "10.100.0.0/24", {"u": value}, groups=groups)
    assert str(of_one) == line.replace("host t", "host u")


def test_thors_on_a_lan_may_keep_a_cage_that_nothing_uses() -> None:
    groups = {"ray_head": ["t"], "ray_workers": ["u"], "thors": ["t", "u"]}
    assert fabric_problems("lan", ["t", "u"], cage={"t": 1, "u": 1}, groups=groups) == []


@pytest.mark.parametrize(("topology", "words"), [("lan", "remove it"), ("ring", "use both cages already")])
def test_two_cages_on_some_hosts_are_not_sent_to_all_where_none_may_have_them(topology: str, words: str) -> None:
    """Two Sparks beside two Thors on a lan: the value for all hosts would be refused as well."""
    groups = {"ray_head": ["a"], "ray_workers": ["b", "t"]}
    cages = {"a": [0, 1], "b": [0, 1], "t": 1}
    (told,) = fabric_problems(topology, ["a", "b", "t"], "10.100.0.0/24", cages, groups=groups)
    assert str(told).startswith(f"fabric_cages of host a is [0, 1]: a {topology} takes no choice of cages; remove it")
    assert told.fix.endswith(words)


def test_a_thor_beside_a_spark_has_no_fabric_and_none_is_in_a_ring() -> None:
    with pytest.raises(fabric.FabricError, match=r"cannot be part of a direct fabric with other hosts"):
        fabric.fabric_plan(["t", "a"], "direct", "10.100.0.0/24", kinds={"t": "thor", "a": "spark"})
    with pytest.raises(fabric.FabricError, match=r"cannot be part of a ring fabric;"):
        thors("tuv", "ring")


def test_the_owner_names_the_control_network_of_a_fabric() -> None:
    nics = dict.fromkeys(AB, "tailscale0")
    given = {"management": {"a": "100.64.0.1/32", "b": "100.64.0.2/32"}, "nics": nics, "control_nics": AB}
    plan = fabric_plan(AB, "direct", "10.100.0.0/24", **given)
    assert (plan["b"]["control_address"], plan["b"]["control_netdev"]) == ("100.64.0.2", "tailscale0")
    assert plan["b"]["env"]["NCCL_SOCKET_IFNAME"] == "=tailscale0"
    assert plan["b"]["env"]["RAY_ADDRESS"] == "100.64.0.1:6379"
    assert "tailscale0" in plan["b"]["trusted_netdevs"]
