# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What sound hosts answer to the questions of the playbooks that read, with every part that an answer may have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
#: when the hosts were asked
NOW = 1_795_246_632.0
_MEMBER = {
    **{"name": "a", "address": "10.100.0.1", "node_id": "0a1b", "role": "head", "resources_total": {"GPU": 1.0}},
    **{"resources_available": {"GPU": 0.0}, "started": "2026-11-20T08:00:00Z", "raylet_ok": True},
    "raylet_latency_ms": 1.5,
}
_GONE = {
    **{"name": "b", "address": "10.100.0.2", "node_id": "0c", "reason": "lost", "started": "2026-11-20T08:00:00Z"},
    **{"ended": "2026-11-20T09:00:00Z", "rejoined": True},
}
_PROBE = {"name": "gcs", "ok": True, "status": "ok", "latency_ms": 0.4, "detail": ""}


def node(number: int) -> dict[str, Any]:
    """The fact of a Spark; 1 is the first."""
    captured = json.loads((TOP / "tests/fixtures/status/spark.json").read_text(encoding="utf-8"))["node"]
    name, address = "ab"[number - 1], f"10.110.1.{10 + number}"
    for nic in captured["interfaces"]:
        for item in nic["addresses"]:
            if item["address"].startswith(("10.110.", "10.100.0.", "10.100.1.")):
                kept, _dot, _last = item["address"].rpartition(".")
                item["address"] = f"{kept}.{number + (10 if '10.110' in kept else 0)}/24"
    return {
        **captured,
        "hostname": name,
        "boot_id": f"7f948172-3f55-4be3-8ec3-5a60b99d6cf{number}",
        "machine": f"{number}" * 32,
        "management": {"netdev": "enP7s7", "address": address, "cidr": f"{address}/24"},
        "os": {**captured["os"], "tegra": "", "ota_torn": 0.0},
        "kernel_parameters": {"iommu": "pt"},
        "cma": {"total": 1 << 30, "free": 1 << 29},
        "reboot": "",
        "serving": True,
        "beside": ["small"],
        "toolchain": {"cc": "/usr/bin/cc", "python_headers": True, "nvcc": "", "cuda": "13.0"},
        "secrets": ["ray_token"],
        "declared": {
            **{"host": name, "head": "a", "generation": 3, "seen": 3, "cluster": "c0ffee", "hosts": ["a", "b"]},
            **{"machines": {"a": "1" * 32, "b": "2" * 32}, "topology": "direct", "executor": "ray"},
            **{"virtual": "", "hostname": name},
        },
        "models": {"tiny": "tiny@6f1ed002ab559585"},
        "hub_models": {"org/tiny": 1000},
        "clock": NOW,
    }


def rdma(number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TOP / "tests/fixtures/status/spark.json").read_text(encoding="utf-8"))["rdma"]
    return {**found, "warnings": [f"of host {number}"]}


def ray() -> dict[str, Any]:
    return {
        **{"healthy": False, "reason": "1 of 2 nodes", "alive": [_MEMBER], "dead": [_GONE], "strangers": [_MEMBER]},
        "problems": [{"code": "absent", "node": "b", "cause": "b is not a member", "fix": "read its journal"}],
        **{"expected_nodes": 2, "present_nodes": 1, "expected_gpus": 2, "present_gpus": 1, "missing": ["b"]},
        **{"pending": [{"GPU": 1}], "head_address": "10.100.0.1", "ray_version": "2.60.0", "source": "dashboard"},
        "probes": {"gcs": _PROBE, "sources": [_PROBE], "raylets": {"10.100.0.1": _PROBE}},
        "seconds": 0.2,
    }


CHECKS: dict[str, Any] = {
    "doctor": {
        **{"taken": "2026-11-21T08:00:00Z", "errors": 1, "warnings": 0},
        "findings": [
            {
                **{"severity": "error", "title": "half a cable", "cause": "a plug", "fix": "push it in"},
                **{"hosts": ["a"], "evidence": ["no carrier"]},
            }
        ],
    },
    "drift": {"taken": "2026-11-21T09:00:00Z", "count": 1, "lines": ["a: console: /etc/sparkthor/console.json"]},
}


def group(model: str = "tiny") -> dict[str, Any]:
    state = {
        **{"version": 3, "state": "serving", "line": "serving: 2 requests", "healthy": True, "since": NOW - 99},
        **{"updated": NOW - 1, "restarts": {"hang": 1}, "answers": {"asked": 4, "right": 4, "wrong": ""}},
        "completion": {"seconds_ago": 1.0, "latency": 0.1, "median_latency": 0.1, "deadline": 30.0},
    }
    options = {"tensor-parallel-size": "2", "max-model-len": "4096", "gpu-memory-utilization": "0.8"}
    words = {"model": model, "socket": "/run/sparkthor/vllm.sock", "executor": "ray", "maintenance": ""}
    return {**words, "state": state, "options": options}


def status(number: int) -> dict[str, Any]:
    captured = json.loads((TOP / "tests/fixtures/status/spark.json").read_text(encoding="utf-8"))
    unit = {
        **{"active": "active", "sub": "running", "enabled": "enabled", "load": "loaded", "result": "success"},
        **{"restarts": 0, "invocation": "0f", "need_daemon_reload": False, "seconds": 99.5},
    }
    names = ("vllm", "ray", "front", "firewall", "firewall-watch", "vllm-beside@small")
    return {
        **captured,
        "node": node(number),
        "time": NOW,
        "gpus": [{"watts": 40.0, "celsius": 60.0, "sm_mhz": 2400.0, "utilization": 90.0, "slowed": ["hw_slowdown"]}],
        "engine": {"runtime": "venv", "path": "/opt/sparkthor/venv"},
        "versions": {"vllm": "0.32.0", "NIC firmware": f"28.{number}"},
        "models": ["tiny"],
        "security_updates": 2,
        "serving": {
            **group(),
            **{
                "tls": True,
                "certificate": "ab:cd",
                "page": True,
                "checks": CHECKS,
                "beside": {"small": group("small")},
            },
        },
        "units": {f"sparkthor-{name}": unit for name in names},
        "rdma": rdma(number),
        "firewall": {"state": "closed", "reason": ""},
        "ray": {"configured": True, "head_address": "10.100.0.1", "node_address": "10.100.0.1", "cluster": ray()},
    }


def evidence(number: int) -> dict[str, Any]:
    process = {
        **{"pid": 7, "program": "vllm", "argv": ["python", "vllm", "serve", "tiny", "--port=8000"], "memlock": -1},
        **{"env": {"NCCL_NET": "IB"}, "api_key": "set", "nccl_conf": {"NCCL_DEBUG": "INFO"}, "contained": True},
    }
    disk = {"path": "/", "total": 4 << 40, "free": 2 << 40, "inodes": 100, "inodes_free": 90, "read_only": False}
    model = {
        **{"name": "tiny", "path": "/var/lib/sparkthor/models/tiny", "folders": [], "files": 5, "broken": ["x"]},
        **{"broken_count": 1, "revision": "sha256:0a"},
    }
    ping = {"netdev": "enp1s0f1np1", "host": "ba"[number - 1], "address": "10.100.0.2", "small": True, "full": False}
    unit = {"Id": "sparkthor-vllm.service", "LoadState": "loaded", "ActiveState": "active", "SubState": "running"}
    files = {
        "fabric.env": "NCCL_IB_DISABLE=0\n",
        "vllm.yaml": "model: /var/lib/sparkthor/models/tiny\ngpu-memory-utilization: 0.8\n",
        "state.json": json.dumps(group()["state"]),
        "serving.json": "{}",
        "hosts": "127.0.0.1 localhost\n",
    }
    return {
        **{"started": NOW, "ended": NOW + 2, "seconds": 2.0, "errors": ["node: slow"]},
        "node": {key: value for key, value in node(number).items() if key != "clock"},
        "rdma": rdma(number),
        "rdma_counters": {"rocep1s0f0": {"port_rcv_packets": 1 << 40, "out_of_sequence": 20_000}},
        "previous_boot": {"ended": 1_790_000_000, "how": "cut", "last": ["kernel: x"]},
        "hangs": [
            {
                **{"taken": 1_790_000_000.0, "reason": "hung", "nccl": "NCCL version 2.28\nError: x", "late": ["b"]},
                "processes": [
                    {"title": "Worker", "state": "S", "waits_in": ["futex_wait"], "stack": "Thread 1\n    f"}
                ],
                "gpus": [{"watts": 20.0, "celsius": 50.0, "sm_mhz": 2000.0, "utilization": 96.0, "slowed": []}],
            }
        ],
        "nccl": {
            "/etc/nccl.conf": {
                "settings": {"NCCL_IB_DISABLE": "1"},
                "ineffective": [{"line": 1, "text": "x", "reason": "no sign"}],
            }
        },
        "files": files,
        "secrets": {"ray_token": {"characters": 32, "fingerprint": f"{number}"}},
        "processes": [process],
        "units": {"sparkthor-vllm.service": {**unit, "NRestarts": "1", "LimitMEMLOCK": "infinity"}},
        "listeners": [{"address": "0.0.0.0", "port": 8265, "program": "python"}],
        "memory": {"MemTotal": 122 << 30, "MemFree": 110 << 30, "MemAvailable": 112 << 30, "CmaTotal": 1 << 30},
        "gpus": status(number)["gpus"],
        "disks": [disk],
        "forward": {"policy": "drop", "docker": True, "accepts": ["eth0"], "ip_forward": True},
        "firewall": {"state": "closed", "reason": ""},
        "pcie": {"enp1s0f1np1": {"current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe"}},
        "desktop": {"default_target": "graphical.target"},
        "engine": {"versions": {"vllm": "0.32.0", "ray": "2.60.0"}, "present": True},
        "models": [model],
        "served_model": {"path": "/m", "present": True, "config": {"model_type": "qwen3", "num_hidden_layers": 4}},
        "pings": [{**ping, "payload": 8972, "error": "too big"}],
        "neighbours": [{"netdev": "enp1s0f1np1", "address": "10.100.0.2", "mac": "02:fd:d6:00:01:03"}],
        "ray": ray(),
        "logs": [{"name": "journal of x", "text": "ModuleNotFoundError: No module named 'ray'\n"}],
    }


def probe(number: int) -> dict[str, Any]:
    """What preflight's comparison answers."""
    nics = ("enp1s0f1np1", "enP2p1s0f1np1")
    return {
        **{"converged": ["os_hardening"], "compared": ["os_hardening", "firewall"], "drift": "firewall: x"},
        "unknown": "",
        "refused": [],
        "probe": {
            "ports": {name: {"present": True, "up": True, "carrier": True, "mtu": 9000} for name in nics},
            "neighbours": {name: [{"host": "ba"[number - 1], "netdev": name}] for name in nics},
            "raised": ["enp1s0f1np1"],
            "errors": {},
            "rdma": rdma(number),
            "netplan": {"findings": [], "adoptable": False, "own": list(nics)},
            "seconds": 5.0,
        },
        "exposure": {
            "firewall": False,
            "listeners": [{"address": "0.0.0.0", "port": 5900, "program": "x"}],
            "udp": [{"address": "0.0.0.0", "port": 51820, "program": ""}],
            "others": ["ip filter"],
            "wifi": {"netdev": "wlP9s9", "uuid": "6c", "name": "Home", "users": ["nvidia"], "asks": False},
        },
    }
