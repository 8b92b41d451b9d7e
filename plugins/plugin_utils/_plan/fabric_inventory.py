# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every fault of the fabric's inventory that can be seen without a host's facts."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping, Sequence

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import fabric_values
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.addresses import ipv4_interface_of, netaddr
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_error import FabricError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.fabric_ports import (
    allot,
    check_management_duplicates,
    check_no_overrides,
)

if t.TYPE_CHECKING:
    from netaddr import IPNetwork


def fabric_problems(
    topology: t.Any,
    hosts: t.Any,
    cidr: t.Any = None,
    cage: t.Any = fabric_values.CAGE,
    mtu: t.Any = None,
    overrides: t.Any = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    management: Mapping[str, str] | None = None,
    reserved: t.Any = None,
    nccl_patch: t.Any = None,
    lanes: t.Any = None,
) -> list[Finding]:
    """Every fault of the inventory that can be seen without a host's facts.

    ``management`` holds each host's ``ansible_host``; a name says nothing before the facts stage.
    """
    groups = groups or {}
    if problems := _group_problems(hosts, groups):
        return problems

    def attempt(check: t.Callable[..., t.Any], *arguments: t.Any) -> t.Any:
        try:
            return check(*arguments)
        except FabricError as error:
            problems.append(error.finding)
            return None

    if attempt(netaddr) is None:
        return problems
    checked = attempt(fabric_values.check_topology, topology)
    given = list(cage) if isinstance(cage, Mapping) else []
    attempt(fabric_values.check_cages, cage, given, checked or "", _thors_alone(hosts, groups))
    attempt(fabric_values.check_mtu, mtu)
    attempt(fabric_values.check_patch, nccl_patch, checked or "ring")
    places = attempt(fabric_values.check_reserved, reserved, checked or "switch")
    if checked is None:
        return problems
    names = attempt(fabric_values.check_hosts, hosts, checked)
    if not (checked == "lan" and cidr in (None, "")):
        attempt(fabric_values.check_cidr, cidr)
    alone = set((kinds := _asserted_kinds(names or (), groups)).values()) == {"thor"}
    cabled = attempt(fabric_values.check_lanes, lanes, checked, kinds.values())
    for host, kind in kinds.items():
        attempt(fabric_values.check_kind, host, kind, checked, alone)
    if problems:
        return problems
    # An address the inventory states has no prefix length, so it stands for itself alone here (a /32); the rule that
    # a lan is one subnet needs the lengths and is left to the facts stage.
    addresses = {host: _stated_address((management or {}).get(host)) for host in names}
    attempt(check_management_duplicates, addresses)
    by_host = attempt(fabric_values.checked_mapping, "fabric_overrides", overrides)
    if checked == "lan" and not problems:
        attempt(check_no_overrides, by_host)
    elif not problems:
        cages = attempt(fabric_values.check_cages, cage, names, checked, alone)
        if cages is not None:
            rest = (cages, by_host, addresses, places, cabled if alone else ())
            attempt(allot, names, checked, fabric_values.check_cidr(cidr), *rest)
    return problems


def _asserted_kinds(hosts: Sequence[str], groups: Mapping[str, Sequence[str]]) -> dict[str, str | None]:
    """The kind of each host as its group says it, None where none does."""
    kinds = dict.fromkeys(groups.get("thors", ()), "thor") | dict.fromkeys(groups.get("sparks", ()), "spark")
    return {host: kinds.get(host) for host in hosts}


def _thors_alone(hosts: t.Any, groups: Mapping[str, Sequence[str]]) -> bool:
    names = [host for host in hosts if isinstance(host, str)] if isinstance(hosts, (list, tuple)) else []
    return set(_asserted_kinds(names, groups).values()) == {"thor"}


def _stated_address(value: object) -> IPNetwork | None:
    """What ``ansible_host`` says about the management network: nothing, if it is a name or a forwarded local port."""
    try:
        interface = ipv4_interface_of(str(value))
    except ValueError:
        return None
    return None if interface.ip.is_loopback() else interface


def _group_problems(hosts: t.Any, groups: Mapping[str, Sequence[str]]) -> list[Finding]:
    if not groups:
        return []
    errors: list[FabricError] = []
    heads, workers = list(groups.get("ray_head", ())), set(groups.get("ray_workers", ()))
    if len(heads) != 1:
        shown = ", ".join(heads) or "empty"
        errors.append(FabricError("group ray_head", shown, "a cluster has exactly one head", "list one host in it"))
    for host in heads:
        if host in workers:
            errors.append(
                FabricError(
                    "group ray_workers", host, "it is the head as well", "list it in one of the two groups", host
                )
            )
    placed = workers.union(heads)
    for host in hosts if isinstance(hosts, (list, tuple)) else ():
        if isinstance(host, str) and host not in placed:
            errors.append(
                FabricError(
                    "group cluster", host, "it is in neither ray_head nor ray_workers", "add it to ray_workers", host
                )
            )
    thors = set(groups.get("thors", ()))
    for host in groups.get("sparks", ()):
        if host in thors:
            errors.append(FabricError("group thors", host, "it is in sparks as well", "list it in one of them", host))
    return [error.finding for error in errors]
