# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What frames showed of the cables, as the picture that the report has too."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import files
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery import lanes
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import (
    CAGES,
    Cables,
    Machine,
    Proposal,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import (
    HALVES,
    lane_netdev,
    spark_netdev,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import page, topology


def beside(folder: str) -> str:
    """The picture's path; not inside the folder, of which Ansible reads every file as an inventory."""
    return f"{os.path.abspath(folder)}-cables.html"


def is_own(path: str) -> bool:
    """Whether what stands there is a picture that was drawn here, which a newer one may replace."""
    try:
        start = files.read_plain(path, 2000)
    except OSError:
        return False
    return not os.path.islink(path) and f'<meta name="generator" content="{page.CABLES_GENERATOR}">'.encode() in start


def drawn(offer: Proposal) -> str:
    """A page with the proposed machines and what is cabled between them."""
    sparks = Cables([machine for machine in offer.hosts if machine.kind == "spark"])
    by_lane = lanes.ends([machine for machine in offer.hosts if machine.kind == "thor"])
    hosts = {
        machine.name: {
            "reachable": True,
            "kind": machine.kind,
            "role": "worker" if number else "head",
            "management": machine.address,
            "links": list(_links(offer, machine, sparks, by_lane)),
        }
        for number, machine in enumerate(offer.hosts)
    }
    status = {"cluster": {"hosts": list(hosts), "topology": offer.topology}, "hosts": hosts}
    return printable(page.cables(topology.drawing(status), f"{offer.topology} of {len(hosts)}, as cabled"), lines=True)


def _links(offer: Proposal, machine: Machine, sparks: Cables, by_lane: lanes.Ends) -> Iterator[Mapping[str, Any]]:
    """A link for each half of a cage and each lane at whose other end somebody was heard."""
    if offer.topology == "lan":
        netdev = offer.lan_nics.get(machine.name) or str(machine.node["management"]["netdev"])
        yield _link(netdev, 0, [], netdev)
    elif machine.kind == "thor":
        for lane in offer.lanes:
            ends = [(other, lane_netdev(far)) for other, far in sorted(by_lane[machine.name, lane])]
            yield _link(lane_netdev(lane), lane, ends, "carries frames")
    else:
        for cage in CAGES:
            there = sorted(sparks.ends[machine.name, cage])
            if not there and not (machine.plugged(cage) and offer.topology == "switch"):
                continue
            # to a switch there is no one cage at the other end
            shared = offer.topology == "switch"
            words = "" if there else ", nobody answers"
            words = f"cage {cage}{words}" if shared else f"cage {cage} to cage {there[0][1]}"
            for half in HALVES:
                ends = [(other, spark_netdev(far, half)) for other, far in there]
                yield _link(spark_netdev(cage, half), half, ends, words, not there)


def _link(netdev: str, half: int, ends: Iterable[tuple[str, str]], words: str, wrong: bool = False) -> dict[str, Any]:
    others = list(ends)
    peer, far = others[0] if len(others) == 1 else ("", "")
    return {
        "netdev": netdev,
        "half": half,
        "address": "to " + (", ".join(f"{other} {nic}" for other, nic in others) or "the network"),
        "peer": peer,
        "peer_netdev": far,
        "words": words,
        "state": "up",
        "problems": ["nobody answers"] if wrong else [],
    }
