# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.base import EngineDemands
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.vllm import PlannedVllm


class Small(PlannedVllm):
    """One host, whole layers alone, without a smaller model."""

    can = dataclasses.replace(PlannedVllm.can, hosts=1, tensor=False, pipeline=False, degraded=False)


@pytest.mark.parametrize(
    ("wanted", "variable", "words"),
    [
        (EngineDemands(2, "mp"), "", "2 hosts"),
        (EngineDemands(1, "mp", tensor_parallel=2), "vllm_serve_tensor_parallel_size", "TP=2"),
        (EngineDemands(1, "mp", pipeline_parallel=3), "vllm_serve_pipeline_parallel_size", "PP=3"),
        (EngineDemands(1, "mp", degraded=True), "vllm_serve_degraded_after", "a smaller model while a host is away"),
    ],
)
def test_a_split_that_an_engine_has_not_is_named(wanted: EngineDemands, variable: str, words: str) -> None:
    assert Small().lacks(wanted) == [(variable, words)]
    assert not PlannedVllm().lacks(wanted)
