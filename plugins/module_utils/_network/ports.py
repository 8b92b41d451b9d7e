# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probe a host's fabric ports: who is at their other ends, what conflicts with the plan, their RDMA devices."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.command import run_limited
from ansible_collections.sparkthor.cluster.plugins.module_utils._network import (
    link_state,
    neighbors,
    netplan,
    netplan_generator,
    netplan_inspect,
    rdma,
    survey,
)
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
    "hosts": {"type": "list", "elements": "str", "default": []},
    "mtu": {"type": "int"},
}
#: ``seconds``: how long to listen for a neighbour that is silent on every port (a sound fabric takes about a second);
#: ``training``: how much longer where a port has no carrier and one of its ends was only just set up;
#: ``timeout``: seconds that one command may take
ARGUMENTS: dict[str, Any] = {
    "host": {"type": "str", "required": True},
    "links": {"type": "list", "elements": "dict", "required": True, "options": LINK},
    "path": {"type": "path", "required": True},
    "renderer": {"type": "str", "required": True, "choices": ["", "networkd", "NetworkManager"]},
    "floating": {"type": "list", "elements": "str", "default": []},
    "seconds": {"type": "float", "default": 5.0},
    "training": {"type": "float", "default": 5.0},
    "timeout": {"type": "int", "default": 10},
}


class ProbeError(Exception):
    """The ports could not be probed; the message says whose and why."""


def netplan_obstacles(
    path: str, links: list[dict[str, Any]], renderer: str, floating: Iterable[str] = ()
) -> dict[str, Any]:
    """What stands in the way of the planned file; nothing does while it is there and live."""
    if netplan_inspect.written(path, links, renderer):
        problems = link_state.link_problems(links, job.live_links(), link_state.connected_routes())
        if not any(problems.values()):
            return {"findings": [], "adoptable": False, "own": [link["netdev"] for link in links]}
    seen = netplan_inspect.inspect(path, links, renderer, floating)
    own = seen.get("previous") or set()
    return {
        "findings": [finding.to_dict() for finding in seen["findings"]],
        "adoptable": bool(seen["foreign"] and seen["adoptable"]),
        "own": sorted(own) if seen["own"] is not None and netplan.is_ours(seen["own"]) else [],
    }


def switches(links: list[dict[str, Any]], run: survey.Runner) -> dict[str, str]:
    """By NIC that is planned on a switch, the name of that switch."""
    own = {link["netdev"] for link in links if not link.get("peer")}
    rc, out, _err = run(["lldpctl", "-f", "json0"]) if own else (1, "", "")
    told = survey.parse_lldp(out) if rc == 0 else {}
    return {netdev: item["name"] for netdev, item in told.items() if netdev in own and item["bridge"] and item["name"]}


def probe(params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Probe the ports as ARGUMENTS say; with ``check`` a port that is administratively down stays so.

    All hosts have to do it at the same time.  Returns, judging nothing:

    * ``ports``: by NIC ``present``, ``up``, ``carrier`` (None where unknown) and ``mtu``; ``rate`` in Gb/s of one that
      was set up
    * ``neighbours``: by NIC the ``host`` and ``netdev`` of every frame seen there
    * ``cabled``: by NIC the hosts whose frames came in over a plain cable, by no switch
    * ``switches``: by NIC on a switch, how LLDP calls that switch, where lldpd runs
    * ``raised``: ports that were set up for the probe; ``errors``: by NIC why it could not be probed
    * ``rdma``: ``links``, ``source`` and ``warnings`` as the module ``rdma_info`` finds them
    * ``netplan``: ``findings``, ``adoptable`` and the NICs that our ``own`` file configures now
    * ``seconds``: how long it took
    """

    def run(argv: list[str]) -> tuple[int, str, str]:
        return run_limited(argv, params["timeout"])

    def rates() -> dict[str, float]:
        links = rdma.read_links(run)["links"]
        return {link["netdev"]: link["rate"] for link in links if link["state"] != "down" and link["rate"]}

    started = time.monotonic()
    try:
        given = (params["host"], params["links"], job.live_links, run, params["seconds"], params["training"], check)
        heard = neighbors.find_neighbours(*given, rates=rates)
        # after the frames: other hosts wait for those, not for this
        heard["netplan"] = netplan_obstacles(params["path"], params["links"], params["renderer"], params["floating"])
        heard["rdma"] = rdma.read_links(run)
        heard["switches"] = switches(params["links"], run)
    except (netplan_generator.NetplanError, RuntimeError, OSError, ValueError) as error:
        raise ProbeError(f"the fabric ports of {params['host']} could not be read: {error}") from error
    heard["seconds"] = round(time.monotonic() - started, 2)
    return heard
