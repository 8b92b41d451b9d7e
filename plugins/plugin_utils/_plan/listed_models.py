# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which form the models of ``model_store_models`` come to hosts: in that which the engine reads that serves them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import gguf
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._inventory import model_source


def in_form(
    listed: Sequence[Mapping[str, Any]], name: str, own: Sequence[Mapping[str, Any]], formats: Collection[str]
) -> list[dict[str, Any]]:
    """The list with the model ``name`` in a form that its engine reads, of these; ``own`` where nobody listed any."""
    if not listed or formats != {"gguf"}:
        return [{**one} for one in listed or own]
    pattern = next((str(one["pattern"]) for one in own if one.get("pattern")), gguf.ANY)
    return [{**one, "pattern": pattern} if one["name"] == name and _open(one) else {**one} for one in listed]


def agree(clusters: Iterable[Mapping[str, Any]]) -> None:
    """In the plans of all serving groups, each model in the form that the group wants which serves it."""
    plans = [cluster["serving"] for cluster in clusters if cluster.get("serving")]
    for plan in plans:
        plan["models"] = as_served(plan, [other for other in plans if other is not plan])


def as_served(plan: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The models of a plan, those that it does not serve itself in the form in which one of the others has them."""
    chosen = {
        (one["name"], one.get("source")): one["pattern"]
        for other in others
        for one in other["models"]
        if one["name"] in _served(other) and one.get("pattern")
    }
    mine = _served(plan)
    found = []
    for one in plan["models"]:
        pattern = chosen.get((one["name"], one.get("source"))) if one["name"] not in mine and _open(one) else None
        found.append({**one, "pattern": pattern} if pattern else {**one})
    return found


def _served(plan: Mapping[str, Any]) -> set[str]:
    return {str(plan["model"]), str((plan.get("degraded") or {}).get("model") or ""), *plan.get("beside", ())}


def _open(listed: Mapping[str, Any]) -> bool:
    """Whether an entry leaves the form open."""
    source = str(listed.get("source") or "")
    said = listed.get("pattern") or listed.get("files") or listed.get("layout", "flat") != "flat"
    return not said and "://" not in source and not model_source.in_gguf(source)
