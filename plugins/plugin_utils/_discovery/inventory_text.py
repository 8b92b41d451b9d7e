# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proposal as the two files of an inventory, for a person to read and edit."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Machine, Proposal

HOSTS, VARIABLES = "hosts.yml", "group_vars/cluster.yml"

_CABLES = {
    "direct": "one cable between two machines",
    "ring": "cage 0 of each machine to cage 1 of the next one in the list, and of the last one to the first",
    "switch": "one cage of each machine to a 200 GbE switch",
    "lan": "no fabric of its own: the machines' ordinary Ethernet, over TCP",
}


def files(found: Proposal, user: str, port: int) -> dict[str, str]:
    """Text by path below the inventory's folder."""
    return {HOSTS: _hosts(found), VARIABLES: _variables(found, user, port)}


def _host(machine: Machine, cages: dict[str, int]) -> list[str]:
    lines = [f"        {machine.name}:", f"          ansible_host: {machine.address}"]
    if machine.name in cages:
        lines.append(f"          fabric_cage: {cages[machine.name]}")
    return lines


def _hosts(found: Proposal) -> str:
    # one cage for all is said once, in group_vars
    cages = found.cages if len(set(found.cages.values())) > 1 else {}
    lines = ["---", "# Found by playbooks/discover.yml.  Read it: the first machine is the head, which has the API."]
    lines += [f"# Left out: {machine.name} ({machine.address}): {reason}." for machine, reason in found.left_out]
    lines += ["cluster:", "  children:", "    ray_head:", "      hosts:", *_host(found.hosts[0], cages)]
    lines += ["    ray_workers:", "      hosts:" if found.hosts[1:] else "      hosts: {}"]
    for machine in found.hosts[1:]:
        lines += _host(machine, cages)
    for kind in ("spark", "thor"):
        names = [machine.name for machine in found.hosts if machine.kind == kind]
        if names:
            lines += [f"{kind}s:", "  hosts:", *(f"    {name}:" for name in names)]
    return "\n".join(lines) + "\n"


def _variables(found: Proposal, user: str, port: int) -> str:
    lines = ["---"]
    if user:
        lines += ["# The user that ssh logs in as on every machine.", f"ansible_user: {user}", ""]
    if port != 22:
        lines += [f"ansible_port: {port}", ""]
    lines += _commented(found.notes)
    lines += [f"# Cabling: {_CABLES[found.topology]}.", f"fabric_topology: {found.topology}"]
    if found.cidr:
        lines += ["# None of the machines uses this range or has a route to it.", f"fabric_cidr: {found.cidr}"]
    if len(set(found.cages.values())) == 1:
        lines += ["# 0 is next to the RJ45 port.", f"fabric_cage: {next(iter(found.cages.values()))}"]
    lines += ["", "# What to serve: a name of recipes/.", "# vllm_serve_recipe: qwen3-30b-a3b-thinking-fp8"]
    return "\n".join(lines) + "\n"


def _commented(notes: Iterable[str]) -> list[str]:
    return [f"# {note[0].upper()}{note[1:]}." for note in notes]
