# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case, Serve
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.checks import CHECKS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.logs import load_rules
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import plan_cluster
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric import links_of

RULES = load_rules(CHECKS)
GIB = 1 << 30
MIB_TOTAL = 122_584 << 20


def interface(name: str, address: str, mtu: int = 9000) -> dict[str, Any]:
    item = {"address": address, "family": "inet", "scope": "global", "dynamic": False}
    return {
        "name": name,
        "mtu": mtu,
        "up": True,
        "carrier": True,
        "kind": "",
        "virtual": False,
        "addresses": [item] if address else [],
    }


def world(names: tuple[str, ...] = ("a", "b"), topology: str = "direct", kinds: tuple[str, ...] = ()) -> Case:
    """A sound cluster as the hosts would tell of it."""
    management = {name: f"192.168.1.{number}" for number, name in enumerate(names, 11)}
    kinds = kinds or ("spark",) * len(names)
    nodes: dict[str, dict[str, Any]] = {}
    for name, kind in zip(names, kinds, strict=True):
        cidr = f"{management[name]}/24"
        nodes[name] = {
            "kind": kind,
            "product": "",
            "gpu_names": ["NVIDIA GB10"],
            "gpus": 1,
            "hostname": name,
            "hostname_on_loopback": True,
            "kernel": "6.17.0-1031-nvidia",
            "driver": "580.95.05",
            "os": {"pretty": "Ubuntu 24.04.3 LTS", "dgx": ""},
            "management": {"netdev": "enP7s7", "address": management[name], "cidr": cidr},
            "routes": [{"dst": "default", "dev": "enP7s7", "gateway": "192.168.1.1", "protocol": "dhcp"}],
        }
    groups = {"cluster": list(names), "ray_head": [names[0]], "ray_workers": list(names[1:])}
    variables = {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/16", "fabric_mtu": 9000}
    if topology == "lan":
        variables = {"fabric_topology": "lan"}
    cluster, fabric, _warnings = plan_cluster(groups, names, dict.fromkeys(names, variables), nodes)
    case = Case(hosts=list(names), cluster=cluster, fabric=fabric)
    for name in names:
        entry = fabric[name]
        managed = entry["addressing"] == "managed"
        nics = [interface("enP7s7", f"{management[name]}/24", 1500)]
        if managed:
            nics += [interface(link["netdev"], link["address"]) for link in entry["links"]]
        nodes[name]["interfaces"] = nics
        links = [
            {
                "device": link["device"],
                "netdev": link["netdev"],
                "state": "up",
                "rate": 200,
                "gid_index": 3,
                "firmware": "28.45.4028",
            }
            for link in entry["links"]
            if managed
        ]
        pings = [
            {"netdev": link["netdev"], "host": peer["host"], "address": peer["address"], "small": True, "full": True}
            for link in (links_of(fabric, name) if managed else [])
            for peer in link["peers"]
        ]
        case.evidence[name] = {
            "started": 1000.0,
            "ended": 1002.0,
            "seconds": 2.0,
            "errors": [],
            "node": nodes[name],
            "rdma": {"links": links},
            "nccl": {},
            "files": {"fabric.env": "\n".join(f"{key}={value}" for key, value in entry["env"].items())},
            "secrets": {"ray_token": {"characters": 32, "sha256": "x"}, "api_key": {"characters": 32, "sha256": "y"}},
            "processes": [],
            "units": {},
            "listeners": [{"address": "127.0.0.1", "port": 8265, "program": "python"}],
            "memory": {"MemTotal": MIB_TOTAL, "MemFree": 110 * GIB, "MemAvailable": 112 * GIB},
            "disks": [{"path": "/", "total": 4000 * GIB, "free": 2000 * GIB, "inodes": 100, "inodes_free": 90}],
            "forward": {"policy": "accept", "docker": False, "accepts": []},
            "pcie": {},
            "desktop": {"default_target": "multi-user.target"},
            "engine": {"present": True, "versions": {"vllm": "0.32.0", "ray": "2.60.0", "python": "3.12"}},
            "models": [],
            "served_model": {},
            "pings": [{**ping, "payload": 8972, "error": ""} for ping in pings],
            "ray": {},
            "logs": [],
        }
        case.clocks[name] = (-1.0, 0.5)
    return case


def found(case: Case) -> list[tuple[str, tuple[str, ...]]]:
    profile = case.cluster["profile"] if case.cluster else ""
    findings, notes = diagnosis.diagnose(RULES, CHECKS, case, [], profile, case.fabric is not None)
    assert notes == []
    return sorted((finding.rule.id, tuple(sorted(finding.touches()))) for finding in findings)


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


def ev(case: Case, host: str) -> dict[str, Any]:
    return case.evidence[host]  # type: ignore[return-value]


def process(program: str, *argv: str, **more: Any) -> dict[str, Any]:
    env = {"RAY_AUTH_MODE": "token", "RAY_memory_monitor_refresh_ms": "0"}
    base = {"pid": 7, "program": program, "argv": list(argv), "env": env, "api_key": "", "memlock": -1}
    return {**base, "contained": False, **more}


def skew(case: Case) -> None:
    case.clocks["b"] = (59.0, 61.0)


def kernel(case: Case) -> None:
    for host in case.hosts:
        ev(case, host)["node"]["kernel"] = "7.0.0-1019-nvidia"


def odd_driver(case: Case) -> None:
    ev(case, "b")["node"]["driver"] = "570.1"


def narrow_pcie(case: Case) -> None:
    netdev = case.links("a")[0]["netdev"]
    ev(case, "a")["pcie"][netdev] = {"current_link_width": "1", "max_link_width": "16"}


def container_memlock(case: Case) -> None:
    ev(case, "a")["processes"].append(process("worker", "ray::x", contained=True, memlock=65536))


def unit_in_restart_loop(case: Case) -> None:
    ev(case, "a")["units"]["sparkthor-vllm.service"] = {
        "LoadState": "loaded",
        "UnitFileState": "enabled",
        "ActiveState": "activating",
        "SubState": "auto-restart",
        "NRestarts": "7",
        "Result": "exit-code",
    }


def degraded(case: Case) -> None:
    state = {"state": "degraded", "updated": 1001.0, "line": "no completion for 40 s"}
    ev(case, "a")["files"]["state.json"] = json.dumps(state)


def ray_lacks_a_node(case: Case) -> None:
    problem = {"code": "node_missing", "node": "b", "cause": "node b is not a member", "fix": "see b"}
    ev(case, "a")["ray"] = {"problems": [problem]}


def token_in_process(case: Case) -> None:
    argv = ("/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "m", "--host", "0.0.0.0")
    ev(case, "a")["processes"].append(process("vllm", *argv, api_key="empty"))


def inodes(case: Case) -> None:
    ev(case, "b")["disks"][0]["inodes_free"] = 0


def lowered_mtu_on_both(case: Case) -> None:
    for link in case.links("a"):
        for nic in ev(case, "a")["node"]["interfaces"]:
            if nic["name"] == link["netdev"]:
                nic["mtu"] = 1500


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (skew, [("clock-skew", ("b",))]),
        (kernel, [("kernel-known-bad", ("a",)), ("kernel-known-bad", ("b",))]),
        (odd_driver, [("versions-differ", ("b",))]),
        (narrow_pcie, [("nic-throttled", ("a",))]),
        (container_memlock, [("memlock-limited", ("a",))]),
        (unit_in_restart_loop, [("unit-down", ("a",))]),
        (degraded, [("serving-down", ("a",))]),
        (ray_lacks_a_node, [("ray-node-lost", ("b",))]),
        (token_in_process, [("api-key-empty", ("a",))]),
        (inodes, [("disk-full", ("b",))]),
        (lowered_mtu_on_both, [("mtu-mismatch", ("a", "b"))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected


def test_a_spark_that_may_use_rdma_beside_a_thor() -> None:
    case = world(("a", "b", "c"), "lan", ("spark", "spark", "thor"))
    for host in ("a", "b"):
        ev(case, host)["rdma"] = {"links": [{"device": "rocep1s0f0", "netdev": "enp1s0f0np0", "state": "down"}]}
    assert found(case) == []
    ev(case, "b")["files"]["fabric.env"] = ev(case, "b")["files"]["fabric.env"].replace("DISABLE=1", "DISABLE=0")
    assert found(case) == [("nccl-wrong-type", ("b",))]


def test_one_dead_port_of_a_switch_is_one_finding() -> None:
    case = world(("a", "b", "c", "d"), "switch")
    dead = case.links("c")[0]["netdev"]
    address = case.links("c")[0]["address"].partition("/")[0]
    for host in case.hosts:
        for ping in ev(case, host)["pings"]:
            if (host == "c" and ping["netdev"] == dead) or ping["address"] == address:
                ping.update(small=False, full=False, error="no answer")
    assert found(case) == [("link-silent", ("a", "b", "c", "d"))]
    findings, _notes = diagnosis.diagnose(RULES, CHECKS, case, [], "roce", True)
    assert (findings[0].finding.host, findings[0].finding.where) == ("c", dead)


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


def test_half_a_cluster_without_a_plan() -> None:
    case = world()
    case.cluster = case.fabric = None
    case.plan_error = "host a: is a thor"
    assert found(case) == [("plan-contradicted", ())]


@pytest.mark.parametrize("part", ["node", "rdma", "files", "processes", "units", "memory", "disks", "pings", "models"])
def test_a_part_that_could_not_be_read_trips_nothing(part: str) -> None:
    case = world()
    for host in case.hosts:
        empty: Any = [] if isinstance(ev(case, host)[part], list) else {}
        ev(case, host)[part] = empty
    for _rule, hosts in found(case):
        assert set(hosts) <= set(case.hosts)


def test_odd_arguments_trip_nothing() -> None:
    case = world()
    odd = {"gpu-memory-utilization": "much", "tensor-parallel-size": [2], "reasoning-parser": None, "model": 7}
    case.serves = [Serve("a", "x", copy.deepcopy(odd), "0.x")]
    assert found(case) == []
