# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which revision of each model the hosts serve: one for all of them, or none is planned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib.finding import Finding


def holders(cluster: Mapping[str, Any]) -> list[str]:
    """The hosts of a plan that have the model: all of them, but with some engines the head alone."""
    everywhere = (cluster.get("serving") or {}).get("everywhere", True)
    return list(cluster["hosts"]) if everywhere else [str(cluster["head"])]


def plan_revisions(
    nodes: Mapping[str, Mapping[str, Any]], declared: Mapping[str, str] | None, served: Collection[str]
) -> tuple[dict[str, str], list[Finding]]:
    """The revision's folder by the model's name.

    ``declared`` are the revisions that this run brings, as far as they are known already; None where the run brings
    none: then those that all hosts have are served, and of a model in ``served`` they must not differ.
    """
    by_name: dict[str, dict[str, str]] = {}
    for host, node in nodes.items():
        for name, folder in (node.get("models") or {}).items():
            by_name.setdefault(name, {})[host] = folder
    everywhere = {
        name: next(iter(folders.values()))
        for name, folders in by_name.items()
        if len(folders) == len(nodes) and len(set(folders.values())) == 1
    }
    if declared is not None:
        return {**everywhere, **declared}, []
    findings = []
    for name in sorted(set(served) & set(by_name) - set(everywhere)):
        has = ", ".join(f"{host} {by_name[name].get(host) or 'none'}" for host in nodes)
        findings.append(
            Finding(
                "revisions",
                f"the hosts have different revisions of it ({has})",
                "run site.yml without --tags, so that every host gets the same one",
                where="model_store_models",
                value=name,
            )
        )
    return everywhere, findings
