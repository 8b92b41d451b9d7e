# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What our chain costs, from figures that were measured in turns; byhand.py says who is asked."""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools.faults.site import WATCHDOG, Site
from tools.gpu.load import Aim


def front(site: Site, prompt: int, tokens: int) -> Aim:
    point = site.endpoint
    return Aim(f"http://{point.address}:{point.port}", "", point.key, site.model, prompt, tokens)


@contextlib.contextmanager
def no_watchdog(site: Site) -> Iterator[None]:
    pid = int(site.shown(site.head, WATCHDOG, "MainPID") or 0)
    if pid:
        site.signal(site.head, pid, "STOP")
    try:
        yield
    finally:
        if pid:
            site.signal(site.head, pid, "CONT")


def _measured(row: Mapping[str, Any]) -> bool:
    """Without an answer there is no figure, only failed requests."""
    return bool(row["tokens_per_second"] > 0 and row["ttft_p50_ms"] >= 0)


def spread(values: Sequence[float]) -> list[float]:
    """What holds the median 95 times of 100, whatever the values' distribution; of fewer than six, least and most."""
    ordered, last = sorted(values), len(values) - 1
    # the chance that so few values lie on one side of the median, twice for both sides
    held = [low for low in range(len(ordered) // 2)
            if 2 * sum(math.comb(len(ordered), k) for k in range(low + 1)) <= 0.05 * 2 ** len(ordered)]  # fmt: skip
    low = max(held, default=0)
    return [ordered[low], ordered[last - low]]


def summary(rows: Sequence[Mapping[str, Any]], ours: str, bare: str) -> list[dict[str, Any]]:
    """By number of streams: medians of both ways, of the pairs' ratio, and of the added time to the first token."""
    lines = []
    for count in sorted({int(row["streams"]) for row in rows}):
        of = {
            way: {int(row["round"]): row for row in rows if row["streams"] == count and row["way"] == way}
            for way in (ours, bare)
        }
        both = sorted(n for n in of[ours].keys() & of[bare].keys() if all(_measured(of[way][n]) for way in of))
        if not both:
            continue

        def middle(way: str, key: str, of: Any = of, both: Any = both) -> float:
            return float(statistics.median(of[way][number][key] for number in both))

        ratios = [of[ours][n]["tokens_per_second"] / of[bare][n]["tokens_per_second"] for n in both]
        added = [of[ours][n]["ttft_p50_ms"] - of[bare][n]["ttft_p50_ms"] for n in both]
        slowest = [of[ours][n]["ttft_p99_ms"] - of[bare][n]["ttft_p99_ms"] for n in both]
        lines.append(
            {
                "streams": count,
                "pairs": len(both),
                "ours": middle(ours, "tokens_per_second"),
                "bare": middle(bare, "tokens_per_second"),
                "ratio": round(statistics.median(ratios), 4),
                "ratios": [round(ratio, 4) for ratio in spread(ratios)],
                "ttft_ours": middle(ours, "ttft_p50_ms"),
                "ttft_bare": middle(bare, "ttft_p50_ms"),
                "ttft_added": round(statistics.median(added), 2),
                "ttft_spread": [round(one, 2) for one in spread(added)],
                "p99_added": round(statistics.median(slowest), 2),
                "p99_spread": [round(one, 2) for one in spread(slowest)],
                "failed": sum(row["failed"] for rows_of in of.values() for row in rows_of.values()),
            }
        )
    return lines
