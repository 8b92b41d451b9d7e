# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sound cluster as its hosts would tell of it, and what the doctor finds in it once a test has changed it."""

from __future__ import annotations

from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor import diagnosis
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case
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


def world(
    names: tuple[str, ...] = ("a", "b"), topology: str = "direct", kinds: tuple[str, ...] = (), **more: Any
) -> Case:
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
    variables = {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/16", "fabric_mtu": 9000, **more}
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
            "secrets": {
                "ray_token": {"characters": 32, "fingerprint": "x"},
                "api_key": {"characters": 32, "fingerprint": "y"},
            },
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


def ev(case: Case, host: str) -> dict[str, Any]:
    return case.evidence[host]  # type: ignore[return-value]


def process(program: str, *argv: str, **more: Any) -> dict[str, Any]:
    env = {"RAY_AUTH_MODE": "token", "RAY_memory_monitor_refresh_ms": "0"}
    base = {"pid": 7, "program": program, "argv": list(argv), "env": env, "api_key": "", "memlock": -1}
    return {**base, "contained": False, **more}
