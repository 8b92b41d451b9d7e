# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many recipes at once: which there are, and of each whether it can be served here, or the one reason why not.

recipe_table.py says it in words.
"""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import measured, outlook, ring
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import recipe as _recipe
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.assumed import KINDS
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines import registry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.parallel import PADDED_HEADS, RDMA_TOPOLOGIES
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.recipe_fields import RecipeError, host_counts

#: numbers of hosts that are tried, where neither the recipe nor the inventory says how many
_TRIED = (1, 2, 3, 4, 8)
PLANNED, ACKNOWLEDGE, REFUSED = "planned", "acknowledge", "refused"
#: why recipes are refused, as a table says it
REASONS = {
    "engine": "for another engine",
    "hardware": "not for DGX Spark",
    "memory": "does not fit",
    "replicas": "several replicas in one group",
    "hosts": "for another number of hosts",
    "split": "cannot be divided so",
    "arguments": "the engine would refuse an argument",
    "shape": "not planned: its config.json is not understood",
    "media": "takes media, which this engine would read from anywhere",
    "file": "cannot be read",
}


def files(path: str) -> list[str]:
    """Recipe files: the file itself, those of a folder, or those of a registry's checkout."""
    if not os.path.isdir(path):
        return [path]
    registry = os.path.join(path, ".sparkrun", "registry.yaml")
    folders = [path]
    if os.path.isfile(registry):
        entries = _recipe.read(registry, registry).get("registries")
        named = (
            [entry.get("recipes") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        )
        folders = [os.path.join(path, str(folder)) for folder in named if folder]
    paths = [
        os.path.join(folder, name)
        for top in folders
        for folder, _folders, names in os.walk(top)
        for name in names
        if name.endswith((".yml", ".yaml")) and f"{os.sep}." not in os.path.join(folder, name).removeprefix(top)
    ]
    if len(paths) == 0:
        raise RecipeError(
            f"vllm_serve_recipe={path!r} holds no recipe. Name a file, a folder or a registry's checkout."
        )
    return sorted(paths)


def _form(data: Mapping[str, Any]) -> str:
    """The tool that a file is for; empty where it is no recipe."""
    if form := _recipe.foreign_form(data):
        return f"{form} v{data.get('recipe_version', 2)}" if form == _recipe.SPARKRUN else form
    return "sparkthor" if {"model", "runtime", "args"} <= set(data) else ""


@dataclass(frozen=True)
class _Cluster:
    """The hosts that recipes are checked for; no hosts where the smallest number is looked for."""

    hosts: Sequence[str]
    topology: str
    kinds: Mapping[str, str]
    version: str
    folder: str


def check(
    path: str,
    *,
    hosts: Sequence[str] = (),
    topology: str = "switch",
    kinds: Mapping[str, str] | None = None,
    version: str | None = None,
    folder: str = _recipe.SHIPPED,
) -> list[dict[str, Any]]:
    """One row for each recipe.

    Without hosts, the smallest number of Sparks that it can be served on is looked for.
    """
    cluster = _Cluster(list(hosts), topology, kinds or {}, version or "", folder)
    name, _mark, variant = path.partition("#")
    if not name.endswith((".yml", ".yaml")) and not os.path.isdir(name):
        name = os.path.join(folder, f"{name}.yml")
        if not os.path.isfile(name):
            _recipe.load(path, folder)  # says which there are
    found = files(name)
    rows = [_row(file, variant, cluster) for file in found]
    # a checkout has other YAML files besides
    return [row for row in rows if row["form"]] if os.path.isdir(name) else rows


def _row(file: str, variant: str, cluster: _Cluster) -> dict[str, Any]:
    row: dict[str, Any] = {"recipe": f"{file}#{variant}" if variant else file, "form": "?"}
    try:
        data = _recipe.read(file, file)
        row["form"] = _form(data)
        numbers = [len(cluster.hosts)] if cluster.hosts else _numbers(data, file, variant)
    except RecipeError as error:
        return {**row, "verdict": REFUSED, "kind": error.kind, "reason": str(error)}
    refused: list[RecipeError] = []
    for number in numbers:
        try:
            return {**row, **_planned(data, file, variant, number, cluster)}
        except RecipeError as error:
            refused.append(error)
        except SizingError as error:
            refused.append(_recipe.unplannable({"name": row["recipe"]}, error))
    # what more hosts would not change says most
    best = next((error for error in refused if error.kind not in ("memory", "split", "hosts")), refused[0])
    return {**row, "verdict": REFUSED, "kind": best.kind, "reason": str(best)}


def _translated(data: Mapping[str, Any], file: str, variant: str, hosts: int | None) -> dict[str, Any]:
    return _recipe.translated(data, file, os.path.splitext(os.path.basename(file))[0], variant, hosts)


def _numbers(data: Mapping[str, Any], file: str, variant: str) -> list[int]:
    """Numbers of hosts to try: those that the recipe names a split for go first."""
    recipe = _translated(data, file, variant, None)
    return list(dict.fromkeys([*sorted(recipe["splits"]), *(host_counts(recipe) or _TRIED)]))


def _planned(data: Mapping[str, Any], file: str, variant: str, number: int, cluster: _Cluster) -> dict[str, Any]:
    """The plan on so many hosts, and what would have to be acknowledged for it."""
    hosts = list(cluster.hosts) or [f"spark-{index + 1:02}" for index in range(number)]
    recipe = _translated(data, file, variant, number)
    recipe["config"] = recipe["config"] or _shapes(cluster.folder).get(recipe["model"])
    engine = registry.planned_engine(recipe["engine"])
    plan = engine.plan(
        recipe,
        hosts,
        topology=cluster.topology if cluster.hosts else {1: "lan", 2: "direct"}.get(number, "switch"),
        kinds=cluster.kinds,
        memory_bytes={host: KINDS[cluster.kinds.get(host, "spark")]["memory"] for host in hosts},
        version=engine.version_to_check_by(recipe, cluster.version),
        overrides={"acknowledged": [*engine.to_acknowledge(_all_args(recipe)), PADDED_HEADS]},
        folder=cluster.folder,
    )
    strange = [line for line in plan["warnings"] if line.startswith(_recipe.UNKNOWN_HERE)]
    needed = engine.needed(plan, bool(strange)) + ([PADDED_HEADS] if plan["sizing"].get("padded_heads") else [])
    return {
        "verdict": ACKNOWLEDGE if needed else PLANNED,
        "name": recipe["name"],
        "model": plan["model"],
        "hosts": number,
        "split": f"TP={plan['tensor_parallel']} PP={plan['pipeline_parallel']}",
        "acknowledge": needed,
        "memory": plan["memory"]["verdict"] if plan["memory"] else "not known",
        **_outlook(plan, cluster.topology),
        "measured": [dict(row) for row in measured.on(recipe["measured"], number)],
        "unknown": strange,
        "untranslated": plan["untranslated"],
        "command": plan["command"],
    }


def _outlook(plan: Mapping[str, Any], topology: str) -> dict[str, Any]:
    """What the plan comes to: bytes to fetch, requests at once, and tokens/s of one stream; None where not known."""
    memory = plan["memory"] or {}
    # every host that recipes are planned for has one GPU
    over_tcp = topology not in RDMA_TOPOLOGIES and plan["tensor_parallel"] > 1
    bounded = memory.get("tokens_per_second") and not over_tcp
    requests = memory.get("max_concurrent_sequences")
    return {
        "bytes": memory.get("weights_bytes"),
        "requests": requests,
        "request_tokens": memory.get("max_model_len"),
        "tokens_per_second": list(outlook.speed(memory)) if bounded else None,
    }


def _all_args(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's arguments, those for older versions as well."""
    return {**recipe["args"], **{key: value for rule in recipe["args_below"] for key, value in rule["args"].items()}}


@functools.cache
def _shapes(folder: str) -> dict[str, Any]:
    """What the shipped recipes know of models; others mostly bring none."""
    shipped = [_recipe.load(name, folder) for name in _recipe.names(folder)]
    return {data["model"]: data["config"] for data in shipped if data["config"]}


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many are planned, how many with an acknowledgement, and how many are refused for which kind of reason."""
    seen = Counter(row["verdict"] if row["verdict"] != REFUSED else row["kind"] for row in rows)
    return {key: seen[key] for key in (PLANNED, ACKNOWLEDGE, *REASONS) if seen[key]}


def listing(folder: str = _recipe.SHIPPED) -> list[dict[str, Any]]:
    """The recipes of the collection."""
    rows = []
    for name in _recipe.names(folder):
        data = _recipe.load(name, folder)
        hosts = host_counts(data)
        rows.append(
            {
                "name": name,
                "model": data["model"],
                "hosts": hosts,
                "kinds": data["kinds"],
                "topologies": data["topologies"],
                "summary": data["summary"],
            }
        )
    return rows


def runs(
    hosts: Sequence[str], topology: str, kinds: Mapping[str, str], version: str | None, folder: str = _recipe.SHIPPED
) -> list[dict[str, Any]]:
    """What of the collection's recipes these hosts can run, the fastest first, and then what they cannot."""
    rows = check(folder, hosts=hosts, topology=topology, kinds=kinds, version=version, folder=folder)
    offered = {os.path.join(folder, f"{name}.yml") for name in _recipe.offered(folder=folder)}
    rows = [row for row in rows if row["recipe"] in offered]
    return sorted(rows, key=lambda row: (row["verdict"] == REFUSED, -row_speed(row)))


def parts(
    hosts: Sequence[str], topology: str, kinds: Mapping[str, str], version: str | None, folder: str = _recipe.SHIPPED
) -> list[dict[str, Any]]:
    """What a part of these hosts can run, of one kind each: the larger parts first, in each the fastest first.

    A row's ``part`` says of how many hosts it takes its own, and of which kind where there are several. They are those
    that the inventory names first, which are neighbours on a ring.
    """
    by_kind: dict[str, list[str]] = {}
    for host in hosts:
        by_kind.setdefault(kinds.get(host, "spark"), []).append(host)
    rows = []
    for kind, own in by_kind.items():
        part = {"kind": kind if len(by_kind) > 1 else "", "of": len(own)}
        for number in range(min(len(own), len(hosts) - 1), 0, -1):
            cluster = _Cluster(own[:number], _topology_of_part(number, topology), kinds, version or "", folder)
            found = [
                {**_row(os.path.join(folder, f"{name}.yml"), "", cluster), "part": part}
                for name in _recipe.offered(folder=folder, hosts=number)
            ]
            rows += sorted((row for row in found if row["verdict"] != REFUSED), key=lambda row: -row_speed(row))
    return rows


def _topology_of_part(number: int, topology: str) -> str:
    """What so many neighbours of a fabric make up: one needs none, and of a ring only two have RDMA (ring.adapt)."""
    if number == 1:
        return "lan"
    return {2: "direct"}.get(number, "line") if topology in ring.CHAINS else topology


def alternatives(
    recipe: str,
    hosts: Sequence[str] = (),
    topology: str = "switch",
    kinds: Mapping[str, str] | None = None,
    version: str | None = None,
    folder: str = _recipe.SHIPPED,
) -> list[dict[str, Any]]:
    """Rows of one recipe: for these hosts, or without any for each number of hosts that it is for."""
    data = _recipe.load(recipe, folder)
    if hosts or not host_counts(data):
        rows = check(recipe, hosts=hosts, topology=topology, kinds=kinds, version=version, folder=folder)
        return [{**({"hosts": len(hosts)} if hosts else {}), **row} for row in rows]
    rows = []
    for number in host_counts(data):
        usual = {1: "lan", 2: "direct"}.get(number, "switch")
        cabled = usual if number == 1 or usual in (data["topologies"] or [usual]) else data["topologies"][0]
        names = [f"host-{index + 1}" for index in range(number)]
        rows += [
            {"hosts": number, "topology": cabled, **row}
            for row in check(recipe, hosts=names, topology=cabled, version=version, folder=folder)
        ]
    return rows


def chosen_lines(
    serving: Mapping[str, Any], hosts: Sequence[str], topology: str, kinds: Mapping[str, str]
) -> list[str]:
    """The row of what is planned to be served, and which recipes for these hosts are faster."""
    estimate, memory = _outlook(serving, topology), serving["memory"] or {}
    name, speed = str(serving["recipe"] or serving["model"]), estimate["tokens_per_second"]
    known = estimate["requests"] is not None
    said = [
        name,
        f"TP={serving['tensor_parallel']} PP={serving['pipeline_parallel']}",
        {"fits": "fits", "tight": "fits, but it is tight"}.get(memory.get("verdict") or "", "size not known"),
        f"{estimate['bytes'] / 1e9:.2g} GB" if estimate["bytes"] and estimate["bytes"] < 1e10 else "",
        f"{estimate['bytes'] / 1e9:.0f} GB" if estimate["bytes"] and estimate["bytes"] >= 1e10 else "",
        outlook.at_once(estimate["requests"], estimate["request_tokens"]) if known else "",
        f"{outlook.words(speed)} tokens/s planned for one stream" if speed else "tokens/s not estimated",
    ]
    lines = [f"chosen: {', '.join(filter(None, said))}"]
    # the lab computes on CPUs, whose memory bandwidth nobody planned with; no model for chats replaces an embedding
    if not speed or name.startswith("tiny-") or not serving.get("answers", True):
        return lines
    rows = fastest(runs(hosts, topology, kinds, None))
    own = max([speed[0], *(row_speed(row) for row in rows if row["name"] == name)])
    faster = [row for row in rows if row["name"] != name and row_speed(row) > own]
    what = ", ".join(f"{row['name']} ({_speed_words(row)})" for row in faster) or "no recipe of the collection"
    lines.append(f"faster on these hosts together: {what}; recipe.yml -i INVENTORY shows what else they can run")
    if faster:
        needs = faster[0]["acknowledge"]
        more = f", with vllm_serve_acknowledged: [{', '.join(needs)}]" if needs else ""
        lines.append(f"to switch to the first of them: vllm_serve_recipe: {faster[0]['name']}{more} (switch_model.yml)")
    return lines


def row_speed(row: Mapping[str, Any]) -> float:
    """Tokens/s of one stream, by which recipes are ranked: measured with these weights, else as planned at least."""
    measured_here = row.get("measured") or ()
    seen = [one["tokens_per_second"] for one in measured_here if one["streams"] == 1 and not one.get("weights")]
    return float(max(seen, default=0) or _planned_speed(row))


def _planned_speed(row: Mapping[str, Any]) -> float:
    """Tokens/s of one stream, as planned at least; 0 where none are."""
    return float((row.get("tokens_per_second") or [0])[0])


def _speed_words(row: Mapping[str, Any]) -> str:
    number = row_speed(row)
    same = number == _planned_speed(row)
    return outlook.words(row["tokens_per_second"]) if same else f"measured by others {number:g}"


def fastest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that can be run, the fastest first; of those without an acknowledgement all before the others."""
    possible = [row for row in rows if row["verdict"] != REFUSED and row_speed(row)]
    return sorted(possible, key=lambda row: (bool(row["acknowledge"]), -row_speed(row)))
