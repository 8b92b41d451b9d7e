# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The form of what hosts tell of themselves: facts, status, and the doctor's evidence (``module_utils/_facts``)."""

from __future__ import annotations

import base64
import ipaddress
import math
import re
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import last_checks
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._action.shape import Form


def an_address(value: Any) -> bool:
    # netaddr computes with them; to load it takes longer than all of this
    return bool(ipaddress.ip_address(_text(value)))


def an_address_with_its_length(value: Any) -> bool:
    return "/" in _text(value) and bool(ipaddress.ip_interface(value))


def _text(value: Any) -> str:
    # a number is an address for Python
    if not isinstance(value, str):
        raise TypeError
    return value


def a_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def nothing(value: Any) -> bool:
    return isinstance(value, dict) and not value


#: seconds of an epoch or of a wait that some calendar has
TIME_LIMIT = 1e11


def a_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < TIME_LIMIT


def a_gate_that_could_not_ask(value: Any) -> bool:
    return set(value) == {"healthy", "reason"} and value["healthy"] is False and isinstance(value["reason"], str)


def a_port(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535


def a_number_as_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) < 32 and math.isfinite(float(value))


def a_moment(value: Any) -> bool:
    return len(_text(value)) == 20 and last_checks.at(value) >= 0


def a_text_in_base64(value: Any) -> bool:
    return base64.b64decode(_text(value), validate=True) is not None


def a_text_of_at_most_100_000_characters(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 100_000


def a_text_of_at_most_a_million_characters(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 1_000_000


#: as the kernel and vendors name NICs and devices, or nothing
NAME = re.compile(r"[^\s/\\\"'<>]{0,64}")
_NUMBERS: Form = {str: a_count}
_TEXTS: Form = {str: str}

INTERFACE: Form = {
    "name": NAME,
    "altnames?": [re.compile(r"[^\s/:]{1,127}")],
    "pci?": str,
    "mac": str,
    "mtu": a_count,
    "max_mtu": a_count,
    "up": bool,
    "carrier": bool,
    "operstate": str,
    "kind": (str, None),
    "master": (str, None),
    "lower?": str,
    "addresses": [{"address": an_address_with_its_length, "family": str, "scope": str, "dynamic": bool}],
    "phys_port_name": str,
    "phys_switch_id": str,
    "speed": str,
    "virtual": bool,
}
_DECLARATION: Form = {
    "host": str,
    "head": str,
    "generation": a_count,
    "seen": a_count,
    "cluster": str,
    "hosts": [str],
    "machines": _TEXTS,
    "topology": str,
    "executor": str,
    "virtual": str,
    "hostname": str,
}
#: nothing before the first play
DECLARED: Form = (nothing, _DECLARATION)
NODE: Form = {
    # facts that were made up are the controller's own
    "assumed?": False,
    "kind": re.compile("spark|thor|generic"),
    "hostname": str,
    "hostname_on_loopback": bool,
    "product": str,
    "machine?": str,
    "boot_id": str,
    "os": {
        **{"id": str, "version": str, "codename": str, "pretty": str, "dgx": str},
        **{"tegra?": str, "ota_torn?": (float, None)},
    },
    "arch": re.compile(r"\w{1,32}"),
    "kernel": str,
    "kernel_parameters?": _TEXTS,
    "cma?": _NUMBERS,
    "reboot": str,
    "python": {
        "version": re.compile(r"[\w.+~-]{1,64}"),
        "tag": re.compile(r"\w{1,32}"),
        "platform": re.compile(r"\w{1,64}"),
    },
    "glibc": re.compile(r"[\d.]{0,16}"),
    "cpus": a_count,
    "mem_total_bytes": a_count,
    "mem_available_bytes": a_count,
    "swap_total_bytes": a_count,
    "disk_free_bytes": a_count,
    "serving": bool,
    "beside": [str],
    "gpus": a_count,
    "gpu_names": [str],
    "gpu_problem?": str,
    "gpu_clock_limit?": a_count,
    # of the connection by which somebody asks, where it is one of ssh
    "ssh_port?": a_port,
    "driver": str,
    "interfaces": [INTERFACE],
    "routes": [{"dst": str, "dev": str, "gateway": str, "prefsrc": str, "protocol": str}],
    "management": (
        {"netdev": "", "address": "", "cidr": ""},
        {"netdev": NAME, "address": an_address, "cidr": an_address_with_its_length},
    ),
    "binaries": _TEXTS,
    "toolchain": {"cc": str, "python_headers": bool, "nvcc": str, "cuda": str},
    "secrets": [str],
    "declared": DECLARED,
    "models": _TEXTS,
    "hub_models": _NUMBERS,
    "time": {"synchronized": bool},
    "clock?": a_time,
}
#: a Python for which wheels are chosen: parts of it are in names of folders
TARGET: Form = {
    "version": re.compile(r"\d+(?:\.\d+)+[\w.+~-]{0,32}"),
    "machine": re.compile(r"\w{1,32}"),
    "glibc": re.compile(r"[\d.]{0,16}"),
}
FACTS: Form = {"ansible_facts": {"sparkthor_node": NODE}}

PORT: Form = {
    "device": NAME,
    "port": int,
    "netdev": NAME,
    "state": str,
    "port_state": str,
    "phys_state?": str,
    "cage?": (int, None),
    "half?": (int, None),
    "pci?": str,
    "phys_port_name?": str,
    "phys_switch_id?": str,
    "mtu?": (int, None),
    "active_mtu?": (int, None),
    "rate?": (float, None),
    "link_layer?": str,
    "gid_index?": (int, None),
    "firmware?": str,
    "counters?": _NUMBERS,
}
RDMA: Form = {"links": [PORT], "source?": str, "warnings?": [str]}
FIREWALL: Form = {"state": str, "reason": str}
GPUS: Form = [
    {
        **dict.fromkeys(("watts", "celsius", "sm_mhz", "utilization"), (float, None)),
        "slowed": [str],
        "locked?": bool,
    }
]
PCIE_ERRORS: Form = {"hours?": a_time, "devices?": {str: _NUMBERS}}
#: the end of the boot before
BOOT: Form = {"ended?": a_time, "how?": re.compile("orderly|panic|hot|cut"), "last?": [str]}
UNIT: Form = {
    "active": str,
    "sub": str,
    "enabled": str,
    "load": str,
    "result": str,
    "restarts": a_count,
    "invocation": str,
    "need_daemon_reload": bool,
    "seconds": (a_time, None),
}
_MEMBER: Form = {
    "name": str,
    "address": str,
    "node_id": str,
    "role": str,
    "resources_total": {str: float},
    "resources_available": ({str: float}, None),
    "started": str,
    "raylet_ok": (bool, None),
    "raylet_latency_ms": (float, None),
}
_PROBE: Form = {"name": str, "ok": bool, "status": str, "latency_ms": (float, None), "detail": str}
RAY: Form = {
    "healthy": bool,
    "problems": [{"code": str, "node": str, "cause": str, "fix": str}],
    "reason": str,
    "alive": [_MEMBER],
    "dead": [
        {**dict.fromkeys(("name", "address", "node_id", "reason", "started", "ended"), str), "rejoined": bool},
    ],
    "strangers": [_MEMBER],
    **dict.fromkeys(("expected_nodes", "present_nodes", "expected_gpus", "present_gpus"), a_count),
    "missing": [str],
    "pending": [{}],
    "head_address": str,
    "ray_version": str,
    "source": str,
    "probes": {"gcs": _PROBE, "sources": [_PROBE], "raylets": {str: _PROBE}},
    "seconds?": a_time,
    "waited_seconds?": a_time,
    "final?": bool,
    "journal?": str,
}
#: what a watchdog writes and readers ask for; the file may be torn, or that of another version
STATE: Form = {
    "state?": str,
    "line?": str,
    "detail?": str,
    "healthy?": bool,
    "since?": (a_time, None),
    "updated?": (a_time, None),
    "completion?": (
        {**dict.fromkeys(("seconds_ago?", "latency?", "median_latency?", "deadline?"), (a_time, None))},
        None,
    ),
    "answers?": ({"asked?": a_count, "right?": a_count, "wrong?": (str, None)}, None),
    "restarts?": (_NUMBERS, None),
}
#: what the engine is told, as text; with these the controller computes
OPTIONS: Form = {
    **dict.fromkeys(("tensor-parallel-size?", "pipeline-parallel-size?"), re.compile(r"\d{0,6}")),
    **dict.fromkeys(("gpu-memory-utilization?", "kv-cache-memory-bytes?"), a_number_as_text),
    **dict.fromkeys(("model?", "dtype?", "max-model-len?", "max-num-seqs?", "kv-cache-dtype?"), str),
    "distributed-executor-backend?": str,
}
GROUP: Form = {
    "model": str,
    "socket": str,
    "executor": str,
    "state": STATE,
    "options": OPTIONS,
    "maintenance": str,
}
_FOUND: Form = {
    "severity": re.compile("error|warning"),
    **dict.fromkeys(("title", "cause", "fix"), str),
    "hosts": [str],
    "evidence": [str],
}
#: what a head keeps of the playbooks that look for trouble
CHECKS: Form = {
    "doctor": ({"taken": a_moment, "errors": a_count, "warnings": a_count, "findings": [_FOUND]}, None),
    "drift": ({"taken": a_moment, "count": a_count, "lines": [str]}, None),
}
_NCCL_FILE: Form = {
    "settings": _TEXTS,
    "ineffective": [{"line": int, "text": str, "reason": str}],
}
STATUS: Form = {
    "node": NODE,
    "time": a_time,
    "uptime_seconds": a_time,
    "load": [float],
    "memory": dict.fromkeys(("total", "available", "cached", "swap_total", "swap_used"), a_count),
    "gpus?": GPUS,
    "disk": {"total": a_count, "free": a_count},
    "environment": _TEXTS,
    "engine": {"runtime": re.compile("venv|container"), "path": str},
    "versions": _TEXTS,
    "models": [str],
    "security_updates": (a_count, None),
    "serving": {**GROUP, "tls": bool, "certificate": str, "page": bool, "checks": CHECKS, "beside?": {str: GROUP}},
    "units": {str: UNIT},
    "rdma": RDMA,
    "rdma_counters?": {str: _NUMBERS},
    "pcie_errors?": PCIE_ERRORS,
    "previous_boot?": BOOT,
    "kernel?": a_text_of_at_most_100_000_characters,
    "nccl?": {str: _NCCL_FILE},
    "processes?": [{"pid": a_count, "program": str, "env": _TEXTS, "nccl_conf": _TEXTS}],
    "firewall": FIREWALL,
    "ray": {
        "configured": bool,
        "head_address?": str,
        "node_address?": str,
        "cluster?": (a_gate_that_could_not_ask, RAY),
        "error?": str,
    },
}

_PROCESS: Form = {
    "pid": a_count,
    "program": str,
    "argv": [str],
    "env": _TEXTS,
    "api_key": str,
    "memlock": int,
    "nccl_conf?": _TEXTS,
    "contained": bool,
}
_HANG: Form = {
    "taken": a_time,
    "reason": str,
    "processes": [{"title": str, "state": str, "waits_in": [str], "stack": str}],
    "nccl": str,
    "gpus": GPUS,
    "late": [str],
}
EVIDENCE: Form = {
    "started": a_time,
    "ended": a_time,
    "seconds": a_time,
    "errors": [str],
    # of a part that could not be read there is nothing
    "node": (nothing, NODE),
    "rdma": RDMA,
    "rdma_counters": {str: _NUMBERS},
    "pcie_errors?": PCIE_ERRORS,
    "nccl": {str: _NCCL_FILE},
    "files": {str: a_text_of_at_most_100_000_characters},
    "secrets?": {str: {"characters": a_count, "fingerprint": str}},
    "processes": [_PROCESS],
    "units": {str: _TEXTS},
    "listeners": [{"address": str, "port": a_count, "program": str}],
    "memory": _NUMBERS,
    "previous_boot": BOOT,
    "hangs": [_HANG],
    "gpus": GPUS,
    "disks": [
        {"path": str, **dict.fromkeys(("total", "free", "inodes", "inodes_free"), a_count), "read_only": bool},
    ],
    "forward": {"policy?": str, "docker?": bool, "accepts?": [str], "ip_forward?": bool},
    "firewall": {"state?": str, "reason?": str},
    "pcie": {str: _TEXTS},
    "nic_pci?": ([str], None),
    "desktop": {"default_target?": str},
    "engine": {"versions": _TEXTS, "present": bool},
    "models": [
        {
            **{"name": str, "path": str, "folders": [str], "files": a_count, "broken": [str]},
            **{"broken_count": a_count, "revision": str},
        },
    ],
    "served_model": {"path?": str, "present?": bool, "config?": ({}, None)},
    "pings": [
        {
            **{"netdev": NAME, "host": str, "address": str, "small": bool, "full": bool},
            **{"payload": (int, None), "error": str},
        },
    ],
    "neighbours": [{"netdev": NAME, "address": an_address, "mac": str}],
    "ray": (nothing, RAY),
    "logs": [{"name": str, "text": a_text_of_at_most_a_million_characters}],
}
