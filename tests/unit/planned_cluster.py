# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster as the plan sees it: what a host says of itself, and the plan of several."""

from __future__ import annotations

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.cluster import (
    plan_cluster,
)

GIB = 2**30


def node(number, kind="spark", memory=121.69):
    return {
        "kind": kind,
        "product": "NVIDIA_DGX_Spark",
        "gpu_names": ["NVIDIA GB10"],
        "gpus": 1,
        "mem_total_bytes": int(memory * GIB),
        "management": {
            "netdev": "enP7s7",
            "address": f"192.168.1.{10 + number}",
            "cidr": f"192.168.1.{10 + number}/24",
        },
    }


def planned(hosts, topology="switch", kinds=None, **variables):
    groups = {"cluster": hosts, "ray_head": hosts[:1], "ray_workers": hosts[1:]}
    first = {"fabric_topology": topology, "fabric_cidr": "10.100.0.0/16", **variables}
    nodes = {host: node(number, (kinds or {}).get(host, "spark")) for number, host in enumerate(hosts, 1)}
    cluster, fabric, _warnings = plan_cluster(groups, hosts, dict.fromkeys(hosts, first), nodes)
    return first, cluster, fabric, nodes
