# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What vLLM takes by itself for a step, beside what it took in 0.32's EngineArgs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model import defaults, memory
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.values import SizingError

from tests.unit.published_models import model


@pytest.mark.parametrize(
    ("kind", "given", "step"),
    [
        ("spark", {}, (2048, 256)),
        ("thor", {}, (8192, 1024)),
        ("generic", {}, (2048, 256)),
        ("thor", {"batched": 512}, (512, 512)),
        ("thor", {"sequences": 4}, (8192, 4)),
        ("spark", {"batched": 16384, "sequences": 32}, (16384, 32)),
        ("spark", {"batched": 64, "sequences": 100}, (64, 100)),  # vLLM corrects nothing that is named
        ("spark", {"mode": "throughput"}, (4096, 512)),
        ("spark", {"mode": "throughput", "batched": 1000}, (1000, 512)),
        ("spark", {"mode": "interactivity"}, (2048, 256)),
        ("spark", {"chunked": False}, (32768, 256)),
        ("spark", {"chunked": False, "batched": 40000}, (40000, 256)),
        ("spark", {"length": 512, "sequences": 2}, (1024, 2)),
        ("thor", {"length": 512, "chunked": False}, (8192, 1024)),
    ],
)
def test_what_vllm_takes_where_nobody_names_it(kind: str, given: dict[str, Any], step: tuple[int, int]) -> None:
    assert defaults.step(kind, **{"length": 32768, **given}) == step


def test_another_platform_is_refused() -> None:
    with pytest.raises(SizingError, match=r"kind='gb10': is no platform\. Choose one of generic, spark, thor"):
        defaults.step("gb10", 8192)


def test_the_plan_takes_the_platforms_own_step() -> None:
    llama = model("llama-3.1-8b")
    options: dict[str, Any] = {"memory_bytes": 2**37, "max_model_len": 32768}
    spark, thor = (memory.plan(llama, kind=kind, **options) for kind in ("spark", "thor"))
    assert (spark["max_num_batched_tokens"], thor["max_num_batched_tokens"]) == (2048, 8192)
    assert thor["overhead_parts"]["activations"] == 4 * spark["overhead_parts"]["activations"]
    assert thor["overhead_parts"]["logits"] == 4 * spark["overhead_parts"]["logits"]
    for kind, step in (("spark", 2048), ("thor", 8192)):
        sequences = {"spark": 256, "thor": 1024}[kind]
        named = memory.plan(llama, max_num_batched_tokens=step, max_num_seqs=sequences, **options)
        assert named["overhead_parts"] == memory.plan(llama, kind=kind, **options)["overhead_parts"]
