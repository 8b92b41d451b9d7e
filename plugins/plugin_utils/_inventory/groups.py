# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with ``serving_groups``, and with what one group says of another.  Pure, on the controller."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory.inventory import (
    Part,
    closest,
    cluster_hosts,
    parts,
)

VARIABLE = "serving_groups"
BESIDE = "serving_beside"
#: a name becomes part of names in the front proxy's configuration
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
#: what a model may not be called: the front proxy's configuration has the name in it, and its log
_NO_NAME = re.compile(r"[\s\"$\\\x00-\x1f\x7f]|.{257}", re.DOTALL)
STRUCTURE = ("all", "cluster", "ray_head", "ray_workers", "sparks", "thors", "ungrouped")


@dataclass(frozen=True)
class Served:
    """What one serving group offers, as far as others have to know it."""

    group: str
    head: str
    #: under which clients ask for it and its adapters, the model's own ones first
    names: tuple[str, ...]
    model: str
    #: the group that answers while this one cannot
    fallback: str = ""
    hosts: tuple[str, ...] = field(default=(), compare=False)
    #: of a group beside its host's own one the port for other heads; 0 where it is vllm_serve_door_port
    port: int = 0


def names_of(served: Any, model: str) -> tuple[str, ...]:
    """Under which clients ask for a model: by ``served_model_name``, one name or a list, else by its own last part."""
    names = served or model.rstrip("/").rpartition("/")[2]
    return tuple(map(str, names if isinstance(names, (list, tuple)) else [names]))


def adapters_of(args: Any) -> tuple[str, ...]:
    """Names of the LoRA adapters of an engine's arguments: ``NAME=PATH``, or a mapping, which may be JSON."""
    given = args if isinstance(args, Mapping) else {}
    wanted = next((given[key] for key in given if str(key).lstrip("-").replace("_", "-") == "lora-modules"), None)
    found = []
    for one in wanted if isinstance(wanted, (list, tuple)) else [wanted]:
        if isinstance(one, str) and one.lstrip().startswith("{"):
            with contextlib.suppress(ValueError):
                one = json.loads(one)
        name = one.get("name") if isinstance(one, Mapping) else str(one or "").partition("=")[0].strip()
        if name:
            found.append(str(name))
    return tuple(found)


def offer(cluster: Mapping[str, Any], fallback: Any, port: int = 0) -> Served:
    """What the plan of a serving group comes to for the others."""
    serving = cluster["serving"]
    return Served(
        str(cluster["group"]),
        str(cluster["head"]),
        (*names_of(serving.get("served_model_name"), serving["model"]), *adapters_of(serving.get("args"))),
        str(serving["model"]),
        str(fallback or ""),
        tuple(cluster["hosts"]),
        port,
    )


def problems(groups: Mapping[str, Sequence[str]], names: Any) -> list[Finding]:
    """Serving groups that cannot be; nothing where none are named."""
    if not names:
        return []
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        return [
            Finding("groups", "it is not a list of names of inventory groups", "write it as a list", where=VARIABLE)
        ]
    found = [finding for name in dict.fromkeys(names) for finding in _name_problems(groups, names, name)]
    return found or [*_placed(groups, names), *_heads(groups, parts(groups, names))]


def _name_problems(groups: Mapping[str, Sequence[str]], names: Sequence[str], name: str) -> Iterator[Finding]:
    def finding(what: str, fix: str) -> Finding:
        return Finding("groups", what, fix, where=VARIABLE, value=str(name))

    if names.count(name) > 1:
        yield finding("two serving groups have one name", "give each an inventory group of its own")
    if not NAME.fullmatch(name):
        fix = "begin with a letter, and use up to 32 lower-case letters, digits and _"
        yield finding("it cannot be the name of a serving group", fix)
    elif name in STRUCTURE:
        yield finding(
            "the inventory uses this group for something else", "make a group of the hosts that serve one model"
        )
    elif name not in groups:
        others = [other for other in groups if other not in STRUCTURE]
        fix = f"make it a child of the group cluster, with its hosts{closest(name, others)}"
        yield finding("there is no such inventory group", fix)
    elif not groups[name]:
        yield finding("the group has no hosts", "put hosts of the cluster into it, or leave its name out")


def _placed(groups: Mapping[str, Sequence[str]], names: Sequence[str]) -> Iterator[Finding]:
    """Every host of the cluster is in one serving group, and no other host is in any."""
    cluster = cluster_hosts(groups)
    for host in cluster:
        own = [name for name in names if host in groups[name]]
        if not own:
            fix = f"put it into one of {', '.join(names)}"
            yield Finding("groups", f"it is in none of the groups in {VARIABLE}", fix, host)
        if len(own) > 1:
            what = f"it is in the serving groups {' and '.join(own)}, and a host serves one model"
            fix = f"remove it from all but one of them; a small model beside another is named in {BESIDE}"
            yield Finding("groups", what, fix, host)
    for name in names:
        for host in groups[name]:
            if host not in cluster:
                what = f"it is in the serving group {name} but not in group cluster"
                yield Finding("groups", what, f"make {name} a child of the group cluster", host)


def _heads(groups: Mapping[str, Sequence[str]], found: Sequence[Part]) -> Iterator[Finding]:
    for part in found:
        heads = [host for host in part.hosts if host in groups.get("ray_head", [])]
        if len(heads) == 1 or not part.hosts:
            continue
        number = f"{len(heads)} heads ({', '.join(heads)})" if heads else "no head"
        what = f"the group {part.name} has {number}"
        fix = f"put exactly one of its hosts ({', '.join(part.hosts)}) into ray_head, the others into ray_workers"
        yield Finding("groups", what, fix, where="group ray_head")


def offer_problems(offers: Sequence[Served], fallbacks: Mapping[str, Any]) -> list[Finding]:
    """Names that two groups give to different models, and fallbacks that lead nowhere.

    ``fallbacks``: what each group's ``vllm_serve_fallback`` says.
    """
    return [*_unusable_names(offers), *_same_name(offers), *_fallbacks([offer.group for offer in offers], fallbacks)]


def _unusable_names(offers: Sequence[Served]) -> Iterator[Finding]:
    for offer in offers:
        for name in filter(_NO_NAME.search, offer.names):
            what = f"of group {offer.group}: a name that clients ask for cannot be that"
            fix = 'take up to 256 characters without spaces, ", $ and \\'
            yield Finding("groups", what, fix, where="vllm_serve_served_model_name", value=name[:80])


def _same_name(offers: Sequence[Served]) -> Iterator[Finding]:
    first: dict[str, Served] = {}
    for offer in offers:
        for name in offer.names:
            other = first.setdefault(name, offer)
            if other.model != offer.model or set(other.names) != set(offer.names):
                what = (
                    f"the groups {other.group} ({other.model}) and {offer.group} ({offer.model}) both serve the name "
                    f"{name!r}, and replicas serve one model under the same names"
                )
                fix = f"give one of them another name, in group_vars/{offer.group}.yml"
                yield Finding("groups", what, fix, where="vllm_serve_served_model_name", value=name)
                break


def _fallbacks(names: Sequence[str], fallbacks: Mapping[str, Any]) -> Iterator[Finding]:
    def finding(group: str, what: str, fix: str) -> Finding:
        return Finding("groups", f"of group {group}: {what}", fix, where="vllm_serve_fallback", value=fallbacks[group])

    known = {}
    for group, other in fallbacks.items():
        if not other:
            continue
        if other not in names:
            yield finding(
                group, "there is no such serving group", f"name one of {', '.join(names)}{closest(other, names)}"
            )
        else:
            known[group] = str(other)
    told: set[str] = set()
    for group in known:
        way = [group]
        while (following := known.get(way[-1])) is not None and following not in way:
            way.append(following)
        if following == group and group not in told:
            told.update(way)
            what = f"the fallbacks go round in a circle: {' -> '.join([*way, group])}"
            yield finding(group, what, "let one of them have no fallback")


def key_problems(keys: Any, offers: Sequence[Served]) -> list[Finding]:
    """Keys of ``vllm_serve_api_keys`` that allow a model which nobody serves."""
    served = [name for offer in offers for name in offer.names]
    findings = []
    for entry in keys if isinstance(keys, list) else ():
        allowed = entry.get("models") if isinstance(entry, Mapping) else None
        for model in allowed if isinstance(allowed, list) else ():
            if str(model) not in served:
                what = f"of key {entry.get('name')}: no serving group serves the model {str(model)!r}"
                fix = f"name some of {', '.join(dict.fromkeys(served))}{closest(str(model), served)}"
                findings.append(Finding("groups", what, fix, where="vllm_serve_api_keys"))
    return findings
