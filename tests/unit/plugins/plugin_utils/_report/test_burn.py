# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs under load, judged.  Field-made: a GB10 that negotiated too little power runs at 650 MHz and about 14 W."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._report import burn

NODE = {"kind": "spark"}


def answer(clock: float | None = 2400.0, tflops: float = 60.0, device: str = "cuda", **more: Any) -> dict[str, Any]:
    gpu = {"name": "NVIDIA GB10", "tflops": tflops, "sm_mhz": clock, "watts": 61.0, "celsius": 71.0, "slowed": []}
    return {"device": device, "gpus": [{**gpu, **more}]}


def judged(*answers: dict[str, Any] | None, **node: Any) -> list[tuple[str, str]]:
    found = {host: answers[at] for at, host in enumerate("abcd"[: len(answers)])}
    lines = burn.burn_lines(found, {host: {**NODE, **node} for host in found})
    return [(line["verdict"], line["note"]) for line in lines]


def test_sound_ones_pass_with_what_they_show() -> None:
    assert judged(answer(), answer(2380.0, 59.0)) == [
        ("pass", "NVIDIA GB10, 2400 MHz, 61 W, 71 °C"),
        ("pass", "NVIDIA GB10, 2380 MHz, 61 W, 71 °C"),
    ]


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (answer(650.0, 16.0, watts=14.0), "27% of the 2400 MHz that it may reach"),
        (answer(2100.0, 60.0), "88% of the 2400 MHz"),
        (answer(2400.0, 50.0), "83% of its peers' 60.0 TFLOP/s"),
        (answer(None, 50.0), "83% of its peers' 60.0 TFLOP/s"),
        (answer(slowed=["hw_thermal_slowdown"]), "the driver slows it down (hw_thermal_slowdown)"),
        ({"error": "no end after 180 s"}, "no end after 180 s"),
        (None, "no engine with torch"),
    ],
)
def test_a_slow_one_among_sound_ones_is_named(slow: dict[str, Any] | None, words: str) -> None:
    first, second, third = judged(answer(), slow, answer())
    assert (first[0], second[0], third[0]) == ("pass", "fail", "pass")
    assert words in second[1]


def test_a_limit_that_the_owner_set_is_what_a_gpu_may_reach() -> None:
    assert [verdict for verdict, _note in judged(answer(1980.0), answer(1990.0), gpu_clock_limit=2000)] == ["pass"] * 2


def test_one_host_that_its_owner_limits_is_judged_by_its_own_limit() -> None:
    nodes = {"a": NODE, "b": NODE, "c": {**NODE, "gpu_clock_limit": 2000}}
    found = {"a": answer(), "b": answer(), "c": answer(1990.0, 50.0)}
    assert [line["verdict"] for line in burn.burn_lines(found, nodes)] == ["pass"] * 3
    found["c"] = answer(1700.0, 42.0)
    assert [line["verdict"] for line in burn.burn_lines(found, nodes)] == ["pass", "pass", "fail"]


def test_other_gpus_are_no_peers() -> None:
    other = answer(1500.0, 200.0, name="NVIDIA Thor")
    found = {"a": answer(), "b": other}
    lines = burn.burn_lines(found, {"a": NODE, "b": {"kind": "thor"}})
    assert [line["verdict"] for line in lines] == ["pass", "pass"]
    assert [line["threshold"] for line in lines] == [None, None]


def test_cpus_in_a_gpus_place_are_shown_and_their_gpus_clock_is_judged_beside_its_peers() -> None:
    sound, slow = answer(208.0, 0.1, "cpu", name="CPU"), answer(104.0, 0.01, "cpu", name="CPU")
    first, second = judged(sound, slow)
    assert first == ("info", "CPUs, as torch sees no GPU, 208 MHz, 61 W, 71 °C")
    assert second[0] == "fail"
    assert "50% of its peers' 208 MHz" in second[1]


@pytest.mark.parametrize(
    ("units", "use", "expected"),
    [
        ({}, 0.0, True),
        ({"sparkthor-vllm": {"active": "inactive"}, "sparkthor-ray": {"active": "active"}}, None, True),
        ({"sparkthor-vllm": {"active": "active"}}, 0.0, False),
        ({"sparkthor-vllm-embed": {"active": "activating"}}, 0.0, False),
        # a container of somebody's own
        ({}, 95.0, False),
    ],
)
def test_nothing_that_serves_is_disturbed(units: dict[str, Any], use: float | None, expected: bool) -> None:
    assert burn.idle({"a": {"units": units, "gpus": [{"utilization": use}]}, "b": {}}) is expected


def test_a_sound_gpu_at_its_own_power_limit_passes() -> None:
    """What the burn of one H100 came to."""
    gpu = {
        "name": "NVIDIA H100 80GB HBM3", "tflops": 729.2265536699922, "readings": 22, "sm_mhz": 1470.0,
        "watts": 698.4, "celsius": 64.0, "slowed": ["sw_power_cap"],
    }  # fmt: skip
    [found] = burn.burn_lines({"one": {"device": "cuda", "gpus": [gpu]}}, {"one": {"kind": "other"}})
    assert (found["verdict"], found["value"], found["unit"]) == ("pass", 729.2, "TFLOP/s")
    assert found["note"] == "NVIDIA H100 80GB HBM3, 1470 MHz, 698.4 W, 64 °C, at its power limit (sw_power_cap)"
    both = {**gpu, "slowed": ["hw_thermal_slowdown", "sw_power_cap"]}
    [failed] = burn.burn_lines({"one": {"device": "cuda", "gpus": [both]}}, {"one": {"kind": "other"}})
    assert failed["verdict"] == "fail"
