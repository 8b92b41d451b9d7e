# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``docs/benchmarks.md`` from the results: ratios first, because seconds are the machine's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
# Benchmarks

Written by `make bench` (`tests/bench`); not edited by hand. Simulated hosts on one machine: compare ratios, not
seconds. A case is run in turns with all others on the same hosts; figures are medians, with the fastest and slowest
run in brackets. Controller CPU is user and system time of everything the command started, ssh's shared connections
included; target CPU is that of all hosts together. `shell` and `naive` write and check exactly the files, sysctls and
units that the collection's host layer has put there, and find nothing to do; `shell` applies the network again, as
guides do.
"""


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _sizes(results: Mapping[str, Any]) -> list[str]:
    return sorted(results, key=lambda size: (not size.isdigit(), int(size) if size.isdigit() else 0))


def render(results: Mapping[str, Any], bars: Sequence[tuple[str, float, float]]) -> str:
    """The page.  ``results`` by size as ``__main__`` keeps them, ``bars`` as (name, figure, limit)."""
    lines = [_HEAD]
    if bars:
        lines += ["## Figures with a bar", "", _row(["figure", "measured", "bar", ""]), "|---|---|---|---|"]
        for name, figure, limit in bars:
            lines.append(_row([name, f"{figure:.2f}", f"≤ {limit:g}", "holds" if figure <= limit else "**missed**"]))
        lines.append("")
    for size in _sizes(results):
        result = results[size]
        title = "3 hosts, serving (`site.yml`)" if not size.isdigit() else f"{size} hosts, host layer"
        lines += [f"## {title.replace('1 hosts', '1 host')}", ""]
        counts = result["counts"]
        lines.append(
            f"{result['machine']}, {result['date']}. A no-op run: {counts['module_tasks']} module tasks, "
            f"{counts['round_trips']} ssh round trips and {counts['kilobytes']} kB for each host."
        )
        head = ["case", "wall s", "÷ floor", "controller CPU s", "target CPU s", "CPU stolen", "load before", "runs"]
        lines += ["", _row(head), "|---|" + "---:|" * 7]
        floor = result["cases"]["floor"]["wall"]
        for name, text in CASES.items():
            case = result["cases"].get(name)
            if case is None:
                continue
            lines.append(
                _row(
                    [
                        text,
                        f"{case['wall']:.2f} ({case['wall_min']:.2f}–{case['wall_max']:.2f})",
                        f"{case['wall'] / floor:.1f}",
                        f"{case['controller_cpu']:.2f}",
                        f"{case['target_cpu']:.2f}",
                        f"{100 * case['steal']:.1f} %",
                        f"{case['load']:.1f}",
                        str(case["runs"]),
                    ]
                )
            )
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"
