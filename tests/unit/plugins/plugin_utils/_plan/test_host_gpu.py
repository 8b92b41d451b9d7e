# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A GPU that does not answer, and one that runs slower than it should."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import host_gpu

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"


def gpu(mhz: float | None, use: float = 95.0, slowed: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"sm_mhz": mhz, "celsius": 60.0, "watts": 40.0, "utilization": use, "slowed": list(slowed)}


@pytest.mark.parametrize(
    ("problem", "what", "fix"),
    [
        (MISMATCH, "the module of the kernel is 580.173.02", "reboot the host, so that"),
        ("it is not installed", "it is not installed", "install the driver"),
        ("No devices were found", "No devices were found", "unplug it for a minute"),
        ("", "its GPU does not answer", "unplug it for a minute"),
    ],
)
def test_a_spark_without_a_gpu_is_told_why(problem: str, what: str, fix: str) -> None:
    told = host_gpu.missing({"kind": "spark", "gpus": 0, "gpu_problem": problem, "driver": "580.173.02"})
    assert what in told[0]
    assert fix in told[1]


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "spark", "gpus": 1},
        {"kind": "thor", "gpus": 0},
        {"kind": "generic", "gpus": 0, "gpu_problem": "it is not installed"},
        {"kind": "spark"},
    ],
)
def test_nothing_is_said_of_others(node: dict[str, Any]) -> None:
    assert host_gpu.missing(node) == ("", "")


def test_the_owners_limit_counts() -> None:
    assert host_gpu.limit_mhz({"kind": "spark"}) == 2400
    assert host_gpu.limit_mhz({"kind": "spark", "gpu_clock_limit": 2000}) == 2000
    assert host_gpu.limit_mhz({"kind": "spark", "gpu_clock_limit": 3003}) == 2400
    assert host_gpu.limit_mhz({"kind": "thor"}) == 0


@pytest.mark.parametrize(
    ("clocks", "limit", "held"),
    [
        ([640], 2400, [0]),
        ([1500, 2400], 2400, [0]),
        ([2200, 2200], 2400, []),
        ([1990, 1990], 2000, []),
        ([1750, 2000], 2000, [0]),
        # above 0.9 of the limit, and below 0.9 of its peers
        ([2170, 2500, 2500], 2400, [0]),
        ([0], 2400, []),
    ],
)
def test_a_busy_gpu_far_below_its_limit_or_its_peers(clocks: list[float], limit: float, held: list[int]) -> None:
    hosts = [f"h{number}" for number in range(len(clocks))]
    read = {host: [gpu(clock)] for host, clock in zip(hosts, clocks, strict=True)}
    assert list(host_gpu.held_back(read, dict.fromkeys(hosts, limit))) == [hosts[number] for number in held]


def test_a_host_that_its_owner_limits_is_no_slow_peer() -> None:
    limits = {"a": 2400.0, "b": 2400.0, "c": 2000.0}
    read = {"a": [gpu(2400)], "b": [gpu(2450)], "c": [gpu(1990)]}
    assert host_gpu.held_back(read, limits) == {}
    assert list(host_gpu.held_back({**read, "c": [gpu(1700)]}, limits)) == ["c"]


def test_an_idle_gpu_and_one_of_an_unknown_kind_are_not_judged_by_clock() -> None:
    assert host_gpu.held_back({"a": [gpu(300, use=0)]}, {"a": 2400}) == {}
    assert host_gpu.held_back({"a": [gpu(300)], "b": [gpu(2400)]}, {"a": 0, "b": 2400}) == {}


def test_a_gpu_at_its_own_power_limit_is_held_back_only_where_its_clock_says_so() -> None:
    assert host_gpu.held_back({"a": [gpu(2390, 96, ("sw_power_cap",))]}, {"a": 2400}) == {}
    found = host_gpu.held_back({"a": [gpu(1500, 96, ("sw_power_cap",))]}, {"a": 2400})
    assert "62% of the 2400 MHz that it may reach, held by sw_power_cap" in found["a"][0]
    both = host_gpu.held_back({"a": [gpu(2390, 96, ("sw_power_cap", "hw_power_brake"))]}, {"a": 2400})
    assert "sw_power_cap, hw_power_brake" in both["a"][0]


def test_a_reason_that_the_driver_gives_counts_always() -> None:
    found = host_gpu.held_back({"a": [gpu(None, 0, ("hw_thermal_slowdown",))]}, {"a": 0})
    assert found == {"a": ["GPU 0: 0 MHz, 60 °C, 40 W: hw_thermal_slowdown"]}


def test_a_clock_that_somebody_set_is_named() -> None:
    told = host_gpu.held_back({"a": [{**gpu(1200), "locked": True}], "b": [gpu(2400)]}, {"a": 2400, "b": 2400})
    assert list(told) == ["a"]
    assert "held by a clock that somebody set (sudo nvidia-smi -rgc and -rac take it back)" in told["a"][0]
    assert host_gpu.held_back({"a": [{**gpu(2300), "locked": True}]}, {"a": 2400}) == {}
