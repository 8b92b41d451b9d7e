# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part ``bench`` of ``docs/benchmarks.md`` from the results: ratios first, because seconds are the machine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .figures import bars, cases, medians

CASES = {
    "floor": "floor: one `ping` task",
    "noop": "no-op converge",
    "network": "no-op, `--tags network`",
    "check": "`--check --diff`, converged",
    "first": "first converge, virgin hosts",
    "status": "`status.yml`",
    "one_variable": "new context length, up to the restart",
    "shell": "the guides' shell lines, one ssh a host",
    "naive": "the same end state by stock modules",
}

_HEAD = """\
## What a run costs

Written by `make bench` (`tests/bench`). A case is run in turns with all others on the same hosts; figures are medians,
with the fastest and slowest run in brackets. Controller CPU is user and system time of everything the command started,
ssh's shared connections included; target CPU is that of all hosts together. `shell` and `naive` write and check exactly
the files, sysctls and units that the collection's host layer has put there, and find nothing to do; `shell` applies the
network again, as guides do.
"""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _sizes(results: Mapping[str, Any]) -> list[str]:
    found = [part for part in results if part.isdigit() or part == "site"]
    return sorted(found, key=lambda size: (not size.isdigit(), int(size) if size.isdigit() else 0))


def _bars(results: Mapping[str, Any]) -> list[str]:
    found = bars(results)
    if not found:
        return []
    lines = ["### Figures with a bar", "", _row(["figure", "measured", "bar", ""]), "|---|---|---|---|"]
    for row in found:
        # one that was over its bar was measured once more: both are shown
        figure = f"{row.figure:.2f}" if row.earlier is None else f"{row.earlier:.2f}, once more {row.figure:.2f}"
        verdict = "holds" if row.figure <= row.limit else "**missed**"
        lines.append(_row([row.name, figure, f"≤ {row.limit:g}", verdict]))
    return [*lines, ""]


def _hosts(size: str, result: Mapping[str, Any]) -> list[str]:
    title = "3 hosts, serving (`site.yml`)" if size == "site" else f"{size} hosts, host layer"
    counts = result["counts"]
    head = ["case", "wall s", "÷ floor", "controller CPU s", "target CPU s", "CPU stolen", "load before", "runs"]
    lines = [
        f"### {title.replace('1 hosts', '1 host') if size == '1' else title}",
        "",
        f"{result['machine']}, {result['date']}. A no-op run: {counts['module_tasks']} module tasks, "
        f"{counts['round_trips']} ssh round trips and {counts['kilobytes']} kB for each host.",
        "",
        _row(head),
        "|---|" + "---:|" * 7,
    ]
    found = cases(result)
    earlier = {name: medians(samples) for name, samples in result.get("earlier", {}).items()}
    for name, text in CASES.items():
        for case, mark in ((earlier.get(name), ", first measurement"), (found.get(name), "")):
            if case is None:
                continue
            cells = [
                text + mark,
                f"{case['wall']:.2f} ({case['wall_min']:.2f}–{case['wall_max']:.2f})",
                f"{case['wall'] / found['floor']['wall']:.1f}",
                f"{case['controller_cpu']:.2f}",
                f"{case['target_cpu']:.2f}",
                f"{100 * case['steal']:.1f} %",
                f"{case['load']:.1f}",
                str(case["runs"]),
            ]
            lines.append(_row(cells))
    return [*lines, ""]


def _plan(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "### No hosts: plan and render",
        "",
        _row(["hosts", "planned, s", "rendered, s", "CPU s"]),
        "|---:" * 4 + "|",
    ]
    for count, rendered in result["rendered"].items():
        lines.append(_row([count, str(result[f"seconds_{count}"]), str(rendered["wall"]), str(rendered["cpu"])]))
    return [*lines, ""]


def _fleet(result: Mapping[str, Any]) -> list[str]:
    lines = [
        "### Several clusters: jobs of ansible-runner",
        "",
        f"{result['clusters']} clusters of {result['hosts']} hosts, `host_layer.yml` with nothing to do, one job each "
        f"(`tests/bench/fleet.py`); medians of {result['runs']}.",
        "",
        _row(["jobs at a time", "wall s for all"]),
        "|---:|---:|",
    ]
    return [*lines, *(_row([workers, f"{wall:.2f}"]) for workers, wall in result["walls"].items()), ""]


def render(results: Mapping[str, Any]) -> str:
    """The page; ``results`` by part as ``__main__`` keeps them."""
    lines = [_HEAD, *_bars(results)]
    for size in _sizes(results):
        lines += _hosts(size, results[size])
    if "plan" in results:
        lines += _plan(results["plan"])
    if "fleet" in results:
        lines += _fleet(results["fleet"])
    return "\n".join(lines).rstrip("\n") + "\n"
