# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

from ansible_collections.sparkthor.cluster.plugins.module_utils._model import overhead
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.overhead import Step, overhead_parts
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape

from tests.unit.published_models import model

GIB = 2**30
STEP = Step(batched=8192, sequences=256)


def test_each_argument_moves_its_own_part() -> None:
    shape = read_shape(model("qwen3-30b-a3b-thinking-2507-fp8"))
    parts = overhead_parts(shape, 1, 1, STEP)
    assert set(parts) == {"runtime", "activations", "logits", "graphs"}
    assert overhead_parts(shape, 1, 1, replace(STEP, batched=2048))["activations"] * 4 == parts["activations"]
    assert "graphs" not in overhead_parts(shape, 1, 1, replace(STEP, eager=True))
    assert overhead_parts(shape, 1, 1, replace(STEP, sequences=16))["logits"] * 16 == parts["logits"]
    two = overhead_parts(shape, 2, 2, STEP)
    assert two["runtime"] == parts["runtime"] + overhead.LINKS
    assert two["activations"] < parts["activations"]
    whole = overhead_parts(shape, 2, 2, replace(STEP, expert_parallel=True))
    assert whole["experts"] == overhead.EXPERTS
    assert whole["activations"] > two["activations"]
    staged = overhead_parts(shape, 1, 1, replace(STEP, load_format="instanttensor"))
    assert staged["loader"] == int(4.4 * GIB)


def test_a_model_without_experts_has_no_buffers_for_them() -> None:
    shape = read_shape(model("llama-3.1-8b"))
    assert "experts" not in overhead_parts(shape, 2, 2, replace(STEP, expert_parallel=True))


def test_measured_activations_of_deepseek_v4() -> None:
    # 3.9 GiB between 8224 and 2048 tokens on one rank were reported
    shape = read_shape(model("deepseek-v4-flash"))
    spared = (8224 - 2048) * overhead.token_bytes(shape, 1) / GIB
    assert 2.9 < spared < 4.9
