# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Medians of what was measured, and the figures that have a bar."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple


class Bar(NamedTuple):
    """A figure and its limit; lower is better.  ``earlier`` is a first measurement that was over the limit."""

    name: str
    figure: float
    limit: float
    size: str  # the part that measures it
    cases: tuple[str, ...] = ()  # the cases it comes from
    earlier: float | None = None


def medians(samples: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure, with the spread of the wall time as ``wall_min`` and ``wall_max``."""
    found = {key: round(median(sample[key] for sample in samples), 3) for key in samples[0]}
    walls = [sample["wall"] for sample in samples]
    return {**found, "wall_min": min(walls), "wall_max": max(walls), "runs": len(samples)}


def cases(result: Mapping[str, Any], earlier: bool = False) -> dict[str, dict[str, float]]:
    """Medians by case; with ``earlier`` those of the first measurement where there were two."""
    samples = {**result.get("samples", {}), **(result.get("earlier", {}) if earlier else {})}
    return {name: medians(found) for name, found in samples.items() if found}


def _figures(results: Mapping[str, Any], earlier: bool) -> list[Bar]:
    rows: list[Bar] = []
    site = results.get("site") or {}
    found = cases(site, earlier)

    def ratio(name: str, case: str, limit: float, base: str = "floor") -> None:
        if case in found and base in found:
            rows.append(Bar(name, found[case]["wall"] / found[base]["wall"], limit, "site", (base, case)))

    ratio("no-op `site.yml`, 3 hosts, times the floor", "noop", 7.0)
    ratio("the same, times the same end state by stock modules", "noop", 0.35, "naive")
    ratio("the network alone, no-op, 3 hosts, times the floor", "network", 4.0)
    ratio("`status`, 3 hosts, times the floor", "status", 2.0)
    ratio("one variable, up to the restart, times the floor", "one_variable", 9.0)
    if "counts" in site:
        rows.append(Bar("module tasks per host, no-op", site["counts"]["module_tasks"], 16, "site"))
    if "noop" in found:
        rows.append(
            Bar("controller CPU s per host, no-op", found["noop"]["controller_cpu"] / 3, 2.5, "site", ("noop",))
        )
    for source, seconds in site.get("ray_info", {}).items():
        rows.append(Bar(f"`ray_info`, 3 hosts, {source}, s", seconds, 1.0, "site"))
    if "share" in site:
        rows.append(Bar("our share of a first deploy, 3 hosts, s", site["share"], 60.0, "site"))
    layer = cases(results.get("3") or {}, earlier)
    if "noop" in layer and "floor" in layer:
        name = "no-op `host_layer.yml`, 3 hosts, times the floor"
        rows.append(Bar(name, layer["noop"]["wall"] / layer["floor"]["wall"], 5.0, "3", ("floor", "noop")))
    few, many = (cases(results.get(size) or {}, earlier).get("noop") for size in ("4", "32"))
    if few and many:
        per_host = [few["controller_cpu"] / 4, many["controller_cpu"] / 32]
        name = "controller CPU per host, 32 hosts ÷ 4 hosts"
        rows.append(Bar(name, per_host[1] / per_host[0], 1.1, "32", ("noop",)))
    if "plan" in results and "seconds_256" in results["plan"]:
        rows.append(Bar("fabric plan and validation, 256 hosts, s", results["plan"]["seconds_256"], 2.0, "plan"))
    if "plan" in results and "doctor" in results["plan"]:
        rows.append(Bar("doctor, a log of 100,000 lines, judging, s", results["plan"]["doctor"], 10.0, "plan"))
    return rows


def bars(results: Mapping[str, Any]) -> list[Bar]:
    """Each figure that was measured, with its limit."""
    before = {row.name: row.figure for row in _figures(results, True)}
    found = []
    for row in _figures(results, False):
        repeated = set(row.cases) & set((results.get(row.size) or {}).get("earlier", {}))
        found.append(row._replace(earlier=before[row.name]) if repeated else row)
    return found
