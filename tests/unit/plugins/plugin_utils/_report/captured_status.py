# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of simulated hosts, captured and moved to the hosts of one cluster, and the document made of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import status

TOP = next(parent for parent in Path(__file__).resolve().parents if (parent / "galaxy.yml").exists())
STATUS = json.loads((TOP / "tests/fixtures/status/spark.json").read_text())
HOSTS = ["spark-01", "spark-02", "spark-03"]
GROUPS = {"cluster": HOSTS, "ray_head": HOSTS[:1], "ray_workers": HOSTS[1:], "sparks": HOSTS, "all": HOSTS}
NOW = 1_800_000_000.0
PORTS = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")


def variables(topology="switch"):
    return {
        host: {"ansible_host": f"10.110.1.{10 + index}", "fabric_topology": topology, "fabric_cidr": "10.100.0.0/16"}
        for index, host in enumerate(HOSTS, 1)
    }


def status_of(host):
    """The captured status, moved to another host: addresses and what serves there."""
    index = HOSTS.index(host) + 1
    found = copy.deepcopy(STATUS)
    found["time"] = NOW
    management = found["node"]["management"]
    management.update(address=f"10.110.1.{10 + index}", cidr=f"10.110.1.{10 + index}/24")
    addresses = {"enp1s0f1np1": f"10.100.0.{index}/17", "enP2p1s0f1np1": f"10.100.128.{index}/17"}
    for interface in found["node"]["interfaces"]:
        if interface["name"] in PORTS:
            own = addresses.get(interface["name"])
            kept = [{"address": own, "family": "inet", "scope": "global", "dynamic": False}] if own else []
            interface.update(addresses=kept, mtu=9000, carrier=True, up=True)
    unit = {"active": "active", "sub": "running", "enabled": "enabled", "load": "loaded", "result": "success"}
    unit |= {"restarts": 0, "invocation": "x", "need_daemon_reload": False, "seconds": 60.0}
    found["units"] = {"sparkthor-ray": dict(unit)}
    found["versions"] = {"vllm": "0.32.0", "ray": "2.60.0"}
    if host == HOSTS[0]:
        found["units"] |= {f"sparkthor-{name}": dict(unit) for name in ("vllm", "front", "watchdog")}
        found["serving"] |= {
            "model": "tiny",
            "options": {"pipeline-parallel-size": "3"},
            "state": {
                "state": "serving",
                "line": "serving",
                "healthy": True,
                "since": NOW - 3700,
                "updated": NOW - 1,
                "completion": {"seconds_ago": 4.0, "latency": 0.12},
            },
        }
        found["ray"] = {
            "configured": True,
            "cluster": {
                "healthy": True,
                "reason": "3 of 3 nodes",
                "alive": [{"name": name, "address": f"10.100.0.{i}"} for i, name in enumerate(HOSTS, 1)],
            },
        }
    return found


def made(outcomes, topology="switch", hostvars=None):
    document = status.document(GROUPS, hostvars or variables(topology), outcomes, NOW)
    json.dumps(document)
    return document


def texts(document):
    return [f"{item['host']}: {item['text']}" for item in document["problems"]]
