# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan compared with the hosts' facts: every difference that matters, before anything is written.

Pure, on the controller. Input: the plan of all hosts (:mod:`fabric`), the fact ``sparkthor_node`` of each host
(module ``node_info``) and, where it ran, the probe of each host's ports (module ``host_compare``).
"""

from __future__ import annotations

import dataclasses
import typing as t
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import ERROR, WARNING, Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_gpu
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight import (
    fabric_port_check,
    host_check,
    network_check,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.cabling_check import (
    cabling_problems,
    switch_problems,
    with_drawing,
)
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._preflight.facts import Node, Plan

#: findings that a user may declare known; everything else stops the run
ACCEPTABLE: t.Final = ("pending_edit", "runtime_address", "clock", "wifi")
#: those of which a user accepts one value at a time, as ``parity=6.17.0-1021-nvidia``: another one is another finding
BY_VALUE: t.Final = ("parity", "known_bad")
#: findings that replacing foreign settings fixes by itself
REPLACEABLE: t.Final = ("foreign_file", "foreign_address", "same_subnet")


def check_facts(
    plan: Plan,
    nodes: Mapping[str, Node],
    probes: Mapping[str, Mapping[str, t.Any]] | None = None,
    accept: Iterable[str] = (),
    replace_foreign: bool = False,
    known_bad: Sequence[Mapping[str, str]] = host_check.KNOWN_BAD,
) -> list[Finding]:
    """Every finding, host by host in the plan's order, then those that concern several hosts."""
    probes = probes or {}
    problems: list[Finding] = []
    subnets = network_check.planned_subnets(plan)
    for host, entry in plan.items():
        node, probe = nodes[host], probes.get(host) or {}
        if entry["addressing"] == "adopted":
            problems += network_check.adopted_problems(host, entry, node)
        else:
            problems += fabric_port_check.port_problems(host, entry, nodes, probes)
            problems += network_check.overlap_problems(host, entry, node, probe, subnets)
            problems += network_check.same_subnet_problems(host, entry, node)
            problems += network_check.management_address_problems(host, entry, node)
            problems += network_check.default_route_problems(host, entry, node)
            problems += host_check.rdma_problems(host, entry, node, probe)
            problems += host_check.netplan_problems(host, probe)
        problems += network_check.detour_problems(host, entry)
        if len(plan) > 1:
            problems += network_check.second_nic_problems(host, entry, node)
            problems += network_check.second_address_problems(host, entry, node)
        what, fix = host_gpu.missing(node)
        # the plan stops for it, unless ray_node_num_gpus says what the driver does not
        problems += [Finding("gpus", what, fix, host, severity=WARNING)] if what else []
        problems += host_check.known_bad_problems(host, node, known_bad)
        problems += host_check.handover_problems(host, node)
        problems += host_check.torn_problems(host, node)
        problems += host_check.system_problems(host, node)
        problems += host_check.clock_problems(host, node)
    problems += cabling_problems(plan, probes) + host_check.rate_problems(plan, probes)
    problems = with_drawing(problems, plan, probes)
    problems += switch_problems(plan, probes)
    problems += host_check.parity_problems(plan, nodes, probes)
    problems += host_check.parameter_problems(plan, nodes)
    problems += host_check.machine_problems({host: nodes[host] for host in plan})
    return _downgrade_accepted(_without_duplicates(problems), set(accept), replace_foreign)


def devices(probes: Mapping[str, Mapping[str, t.Any]]) -> dict[str, dict[str, str]]:
    """RDMA device by host and NIC, for ``_plan.fabric.adopt_devices``."""
    return {
        host: {link["netdev"]: link["device"] for link in (probe.get("rdma") or {}).get("links", ())}
        for host, probe in probes.items()
    }


def without_accepted(problems: Iterable[Finding], accept: Iterable[str]) -> list[Finding]:
    """The findings, those that the user accepts as warnings."""
    return _downgrade_accepted(problems, set(accept), replace_foreign=False)


def _downgrade_accepted(problems: Iterable[Finding], accept: set[str], replace_foreign: bool) -> list[Finding]:
    """Errors that the user accepts, or that replacing foreign settings fixes, become warnings."""
    results = []
    for problem in problems:
        known = (problem.id in ACCEPTABLE and problem.id in accept) or (
            problem.id in BY_VALUE and f"{problem.id}={problem.where}" in accept
        )
        replaced = replace_foreign and problem.id in REPLACEABLE
        if problem.severity == ERROR and (known or replaced):
            problem = dataclasses.replace(problem, severity=WARNING)
        results.append(problem)
    return results


def _without_duplicates(problems: Iterable[Finding]) -> list[Finding]:
    """The same finding once: a NIC without a carrier has no neighbour either, and says so by itself."""
    seen: set[tuple[str, str, str]] = set()
    folded = []
    for problem in problems:
        key = (problem.id, problem.host, problem.what)
        if key not in seen:
            seen.add(key)
            folded.append(problem)
    return folded
