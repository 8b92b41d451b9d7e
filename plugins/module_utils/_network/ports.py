# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host's fabric ports: who is at their other ends, what netplan says of them, their RDMA devices."""

from __future__ import annotations

import time
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import neighbors, netplan, rdma
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import netplan_job as job

LINK = {
    "netdev": {"type": "str", "required": True},
    "device": {"type": "str", "default": ""},
    "half": {"type": "int", "default": 0},
    "address": {"type": "str", "required": True},
    "subnet": {"type": "str", "default": ""},
    "peer": {"type": "str", "default": ""},
    "peer_netdev": {"type": "str", "default": ""},
    "peer_up": {"type": "bool", "default": False},
    "mtu": {"type": "int"},
}
ARGUMENTS: dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "links": {"type": "list", "elements": "dict", "required": True, "options": LINK},
    "path": {"type": "path", "default": "/etc/netplan/40-cx7.yaml"},
    "renderer": {"type": "str", "default": "", "choices": ["", "networkd", "NetworkManager"]},
    "seconds": {"type": "float", "default": 5.0},
    "training": {"type": "float", "default": 5.0},
    "timeout": {"type": "int", "default": 10},
}


class ProbeError(Exception):
    """The ports could not be looked at; the message says whose and why."""


def look_at_netplan(path: str, links: list[dict[str, Any]], renderer: str) -> dict[str, Any]:
    """What stands in the way of the planned file; nothing does while it is there and live."""
    current = job.read_state(path)
    if current is not None and current["content"] == netplan.render(links, renderer):
        problems = netplan.link_problems(links, job.live_links(), netplan.connected_routes())
        if not any(problems.values()):
            return {"findings": [], "adoptable": False, "own": [link["netdev"] for link in links]}
    seen = netplan.inspect(path, links, renderer)
    own = seen.get("previous") or set()
    return {
        "findings": seen["findings"],
        "adoptable": bool(seen["foreign"] and seen["adoptable"]),
        "own": sorted(own) if seen["own"] is not None and netplan.is_ours(seen["own"]) else [],
    }


def look(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """What the module ``host_compare`` returns as ``probe``."""

    def run(argv: list[str]) -> tuple[int, str, str]:
        return run_limited(argv, params["timeout"])

    started = time.monotonic()
    try:
        probe = neighbors.probe(
            params["host"], params["links"], job.live_links, run, params["seconds"], params["training"], check
        )
        # after the frames: other hosts wait for those, not for this
        probe["netplan"] = look_at_netplan(params["path"], params["links"], params["renderer"])
        probe["rdma"] = rdma.read_links(run)
    except (netplan.NetplanError, RuntimeError, OSError, ValueError) as error:
        raise ProbeError(f"the fabric ports of {params['host']} could not be looked at: {error}") from error
    probe["seconds"] = round(time.monotonic() - started, 2)
    return probe
