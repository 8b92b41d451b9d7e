# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark's figures: medians, bars, and a figure that was measured twice."""

from __future__ import annotations

from typing import Any

from tests.bench import table
from tests.bench.figures import bars, cases


def sample(wall: float, cpu: float = 1.0) -> dict[str, float]:
    return {"wall": wall, "controller_cpu": cpu, "target_cpu": 2.0, "steal": 0.0, "load": 0.5}


def site(**more: Any) -> dict[str, Any]:
    samples = {
        "floor": [sample(1.0), sample(3.0), sample(1.2)],
        "noop": [sample(5.0, 6.0)] * 3,
        "network": [sample(2.0)] * 3,
        "naive": [sample(10.0)] * 3,
    }
    counts = {"module_tasks": 7, "round_trips": 2.0, "kilobytes": 9.0}
    about = {"date": "2026-01-01", "machine": "2 × CPU", "hosts": 3}
    return {"samples": samples, "counts": counts, "share": 42.0, **about, **more}


def test_medians_with_their_spread() -> None:
    floor = cases(site())["floor"]
    assert (floor["wall"], floor["wall_min"], floor["wall_max"], floor["runs"]) == (1.2, 1.0, 3.0, 3)


def test_figures_and_their_bars() -> None:
    found = {row.name: (round(row.figure, 2), row.limit) for row in bars({"site": site()})}
    assert found["no-op `site.yml`, 3 hosts, times the floor"] == (4.17, 7.0)
    assert found["the same, times the same end state by stock modules"] == (0.5, 0.35)
    assert found["controller CPU s per host, no-op"] == (2.0, 2.5)
    assert found["our share of a first deploy, 3 hosts, s"] == (42.0, 60.0)
    assert not any("status" in name for name in found)


def test_health_has_a_bar_for_each_way_to_ask() -> None:
    found = {row.name: (row.figure, row.limit) for row in bars({"site": site(ray_info={"head engine": 0.8})})}
    assert found["`ray_info`, 3 hosts, head engine, s"] == (0.8, 1.0)


def test_the_host_layer_alone_has_its_own_bar() -> None:
    (row,) = bars({"3": {"samples": {"floor": [sample(1.0)], "noop": [sample(3.0)]}}})
    assert (row.name, row.figure, row.limit) == ("no-op `host_layer.yml`, 3 hosts, times the floor", 3.0, 5.0)


def test_cpu_of_few_hosts_and_of_many() -> None:
    results = {"4": {"samples": {"noop": [sample(1, 4.0)]}}, "32": {"samples": {"noop": [sample(1, 48.0)]}}}
    (row,) = bars(results)
    assert (row.figure, row.limit, row.size) == (1.5, 1.1, "32")


def test_a_figure_that_was_over_its_bar_is_shown_with_its_repetition() -> None:
    result = site(earlier={"noop": [sample(12.0, 9.0)] * 3})
    noop = next(row for row in bars({"site": result}) if row.name.startswith("no-op"))
    assert (round(noop.figure, 2), round(noop.earlier or 0, 2)) == (4.17, 10.0)
    page = table.render({"site": result})
    assert "| 10.00, once more 4.17 | ≤ 7 | holds |" in page
    assert "no-op converge, first measurement | 12.00" in page


def test_a_page_of_parts_without_hosts() -> None:
    plan = {"rendered": {"4": {"wall": 2.5, "cpu": 2.0}}, "seconds_4": 0.001, "seconds_256": 0.08, "doctor": 3.5}
    fleet = {"clusters": 4, "hosts": 2, "walls": {"1": 9.0, "4": 5.5}, "runs": 3}
    page = table.render({"plan": plan, "fleet": fleet})
    assert "| fabric plan and validation, 256 hosts, s | 0.08 | ≤ 2 | holds |" in page
    assert "| doctor, a log of 100,000 lines, judging, s | 3.50 | ≤ 10 | holds |" in page
    assert "| 4 | 5.50 |" in page
