# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The doctor's checks of the engine's arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._doctor.case import Case, Serve

from tests.unit.plugins.plugin_utils._doctor.sound_cluster import ev, found, process, world


def token_in_process(case: Case) -> None:
    argv = ("/opt/venv/bin/python", "/opt/venv/bin/vllm", "serve", "m", "--host", "0.0.0.0")
    ev(case, "a")["processes"].append(process("vllm", *argv, api_key="empty"))


def test_odd_arguments_trip_nothing() -> None:
    case = world()
    odd = {"gpu-memory-utilization": "much", "tensor-parallel-size": [2], "reasoning-parser": None, "model": 7}
    case.serves = [Serve("a", "x", copy.deepcopy(odd), "0.x")]
    assert found(case) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (token_in_process, [("api-key-empty", ("a",))]),
    ],
)
def test_what_a_lab_cannot_lay(change: Callable[[Case], None], expected: list[Any]) -> None:
    case = world()
    change(case)
    assert found(case) == expected
