# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The link between two switches, which no host sees: pairs that cross it beside pairs that do not.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import cabling
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import verify

_FIX = (
    "see the link between their switches: its speed, whether RSTP sends the traffic another way, and its MTU; lldpctl "
    "on the hosts names the switch and port of each"
)


def between_lines(lines: Sequence[Mapping[str, Any]], tests: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One line where hosts fall into parts of two and more that are fast among themselves and slow to each other.

    A slow port of one host slows its pairs within its part as well, and is not what this is about. What gave no number
    is another fault.
    """
    judged = {entry["where"]: entry for entry in lines if entry["check"] == "bandwidth"}
    pairs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for test in tests:
        entry = judged.get(verify.where_of(test))
        if entry is not None and entry["value"] is not None and len(test["paths"]) == 1:
            pairs.setdefault((test["host"], test["peer"]), []).append(entry)
    slow = {pair: found for pair, found in pairs.items() if any(one["verdict"] == verify.FAIL for one in found)}
    fast = {pair: found for pair, found in pairs.items() if pair not in slow}
    heard: dict[cabling.Port, set[str]] = {}
    for host, peer in fast:
        heard.setdefault((host, ""), set()).add(peer)
    hosts = list(dict.fromkeys(host for pair in pairs for host in pair))
    parts = cabling.islands(hosts, heard)
    if not slow or len(parts) < 2 or any(len(part) < 2 for part in parts):
        return []
    if any(set(pair) <= set(part) for pair in slow for part in parts):
        return []
    worst = min((one for found in slow.values() for one in found), key=lambda one: one["value"])
    best = min(one["value"] for found in fast.values() for one in found)
    where = " to ".join(", ".join(part) for part in parts)
    note = f"only pairs across are slow; within these parts it is {best:g} Gb/s or more"
    return [verify.line("inter-link", where, verify.FAIL, worst["value"], "Gb/s", worst["threshold"], note, _FIX)]
