# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proposal as the two files of an inventory, for a person to read and edit.

What Ansible reads as an inventory it also runs, so nothing that a machine said is written as it came: names are labels
(proposal.py refuses others), values go through YAML's own emitter, and comments are one line of printable text each.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.printable import printable
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._discovery.proposal import Machine, Proposal
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe_catalogue

HOSTS, VARIABLES = "hosts.yml", "group_vars/cluster.yml"

_CABLES = {
    "direct": "one cable between two machines",
    "ring": "cage 0 of each machine to cage 1 of the next one in the list, and of the last one to the first",
    "line": "cage 0 of each machine to cage 1 of the next one in the list",
    "switch": "one cage of each machine to a 200 GbE switch",
    "lan": "no fabric of its own: the machines' ordinary Ethernet, over TCP",
}


_LANES = {
    "direct": "one cable between the QSFP cages of two Thors, lane to lane",
    "switch": "the lanes of each Thor's QSFP cage to a switch",
}


class _Emitter(yaml.SafeDumper):
    """Plain words as they are; quoted is whatever a reader of YAML 1.1 or 1.2 may take for something else than text."""

    def represent_text(self, text: str) -> yaml.Node:
        # Ansible takes values of an inventory for templates, and runs them
        tag = "!unsafe" if "{" in text else "tag:yaml.org,2002:str"
        plain = text.isascii() and text[:1].isalpha() and text.replace("-", "").isalnum() and text.lower() not in _WORDS
        address = text.count(".") == 3 and re.fullmatch(r"[0-9./]+", text) is not None
        style = None if plain or address else '"'
        return self.represent_scalar(tag, str(text), style)


#: words that a reader of YAML takes for a truth value or for nothing
_WORDS = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
_Emitter.add_representer(str, _Emitter.represent_text)
# Ansible's own kinds of text, which remember where they came from
_Emitter.add_multi_representer(str, _Emitter.represent_text)
_Emitter.add_representer(type(None), lambda emitter, _none: emitter.represent_scalar("tag:yaml.org,2002:null", ""))


def _yaml(document: Mapping[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Emitter, sort_keys=False, allow_unicode=False, width=1 << 20)


def files(found: Proposal, user: str, port: int) -> dict[str, str]:
    """Text by path below the inventory's folder."""
    return {HOSTS: _hosts(found), VARIABLES: _variables(found, user, port)}


def _cages(found: Proposal) -> tuple[str, Mapping[str, Any]]:
    """The variable that says which cages are used, and its value by host."""
    return ("fabric_cages", found.both) if found.both else ("fabric_cage", found.cages)


def _host(machine: Machine, name: str, cages: Mapping[str, Any], lan_nics: Mapping[str, str]) -> dict[str, Any]:
    cage = {name: cages[machine.name]} if machine.name in cages else {}
    lane = {"fabric_lan_nic": lan_nics[machine.name]} if machine.name in lan_nics else {}
    return {"ansible_host": machine.address, **cage, **lane}


def _alike(values: Mapping[str, Any]) -> bool:
    found = list(values.values())
    return all(value == found[0] for value in found)


def _hosts(proposal: Proposal) -> str:
    # one cage for all is said once, in group_vars
    name, cages = _cages(proposal)
    cages = {} if _alike(cages) else cages
    head, workers = proposal.hosts[0], proposal.hosts[1:]
    document: dict[str, Any] = {
        "cluster": {
            "children": {
                "ray_head": {"hosts": {head.name: _host(head, name, cages, proposal.lan_nics)}},
                "ray_workers": {
                    "hosts": {machine.name: _host(machine, name, cages, proposal.lan_nics) for machine in workers}
                },
            }
        }
    }
    for kind in ("spark", "thor"):
        names = [machine.name for machine in proposal.hosts if machine.kind == kind]
        if names:
            document[f"{kind}s"] = {"hosts": dict.fromkeys(names)}
    left_out = [f"Left out: {machine.name} ({machine.address}): {reason}" for machine, reason in proposal.left_out]
    told = "# Found by playbooks/discover.yml.  Read it: the first machine is the head, which has the API.\n"
    return "---\n" + told + _comments(left_out) + _yaml(document)


def _variables(proposal: Proposal, user: str, port: int) -> str:
    text = "---\n"
    if user:
        text += _comments(["The user that ssh logs in as on every machine"]) + _yaml({"ansible_user": user}) + "\n"
    if port != 22:
        text += _yaml({"ansible_port": port}) + "\n"
    cables = _LANES if proposal.lanes else _CABLES
    text += _comments([*proposal.notes, f"Cabling: {cables[proposal.topology]}"])
    text += _yaml({"fabric_topology": proposal.topology})
    if proposal.cidr:
        text += _comments(["None of the machines uses this range or has a route to it"])
        text += _yaml({"fabric_cidr": proposal.cidr})
    if proposal.lanes:
        text += _comments(["Lanes of the QSFP cages by which all Thors hear each other"])
        text += _yaml({"fabric_lanes": proposal.lanes})
    name, cages = _cages(proposal)
    if cages and _alike(cages):
        text += _comments(["0 is next to the RJ45 port"]) + _yaml({name: next(iter(cages.values()))})
    return text + "\n" + _served(proposal)


def _served(found: Proposal) -> str:
    topology = "lan" if found.lanes else found.topology
    name = _fastest(topology, tuple(sorted(machine.kind for machine in found.hosts)))
    if not name:
        return "# What to serve: a name of recipes/.\n# vllm_serve_recipe: qwen3-30b-a3b-thinking-fp8\n"
    told = "What to serve: the fastest recipe for these machines; recipe.yml -i INVENTORY lists all"
    return _comments([told]) + _yaml({"vllm_serve_recipe": name})


@functools.cache
def _fastest(topology: str, kinds: tuple[str, ...]) -> str:
    """The fastest recipe of the collection for such machines that needs no acknowledgement; empty without one."""
    by_host = {f"host-{number}": kind for number, kind in enumerate(kinds)}
    rows = recipe_catalogue.fastest(recipe_catalogue.runs(list(by_host), topology, by_host, None))
    return next((str(row["name"]) for row in rows if not row["acknowledge"]), "")


def _comments(notes: Iterable[str]) -> str:
    """Sentences as comments; what could end a comment's line is no part of it."""
    return "".join(f"# {note[0].upper()}{note[1:]}.\n" for note in map(printable, notes) if note)
