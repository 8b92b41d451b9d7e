# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import gpu_state

IDLE = {"watts": 10.42, "celsius": 46.0, "sm_mhz": 208.0, "utilization": 0.0, "slowed": []}


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("10.42, 46, 208, 0, 0x0000000000000001\n", [IDLE]),
        ("10.42, 46, 208, 0, 0x0000000000000002\n", [{**IDLE, "locked": True}]),
        (
            "95.10, 88, 1650, 99, 0x0000000000000060\n",
            [
                {
                    "watts": 95.1,
                    "celsius": 88.0,
                    "sm_mhz": 1650.0,
                    "utilization": 99.0,
                    "slowed": ["sw_thermal_slowdown", "hw_thermal_slowdown"],
                }
            ],
        ),
        (
            "[N/A], 46, [Not Supported], [N/A], [N/A]\n",
            [{"watts": None, "celsius": 46.0, "sm_mhz": None, "utilization": None, "slowed": []}],
        ),
        ("No devices were found\n", []),
        ("1, 2, 3, 4, 0x01, 6\n", []),
        ("", []),
    ],
)
def test_parse(text: str, gpus: list[dict[str, object]]) -> None:
    assert gpu_state.parse(text) == gpus


def test_a_tool_that_fails_or_does_not_know_a_field_gives_nothing() -> None:
    assert gpu_state.read(lambda argv: (127, "", "not installed")) == []
    assert gpu_state.read(lambda argv: (2, 'Field "clocks.sm" is not a valid field to query.\n', "")) == []
