# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long prompts take to be read, beside what was measured (tests/truth/prefills.json)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan

from tests.truth.prefills import held_out, holds, planned, rows, sentence
from tests.unit.published_models import model

DOCS = Path(__file__).resolve().parents[5] / "docs"


def prompts(name: str, **options: Any) -> dict[int, dict[str, list[float]]]:
    found: dict[int, dict[str, list[float]]] = plan(model(name), **{"max_model_len": 65536, **options})["prompts"]
    return found


def rate(name: str, prompt: int = 32768, **options: Any) -> float:
    return prompts(name, **options)[prompt]["tokens_per_second"][0]


def test_ranges_hold_four_fifths_of_the_half_that_no_figure_was_chosen_by() -> None:
    every, held = rows(), held_out()
    assert len(every) >= 63
    assert [row["id"] for row in every] == sorted(row["id"] for row in every)
    assert held == every[1::2]
    assert sum(holds(row) for row in held) >= 0.8 * len(held)
    for row in every:
        least, most = planned(row)
        assert most <= 2.01 * least
        assert row["source"].startswith("https://")


def test_the_docs_say_how_often() -> None:
    assert sentence() in " ".join((DOCS / "planning.md").read_text().split())


def test_only_prompts_that_the_context_holds_are_planned() -> None:
    found = prompts("minimax-m2.7", tensor_parallel=2)
    assert list(found) == [2048, 8192, 32768]
    for prompt, row in found.items():
        assert row["seconds_to_first_token"][1] > prompt / row["tokens_per_second"][1]


def test_a_split_pays_for_its_traffic() -> None:
    one, two, four = (rate("gpt-oss-120b", tensor_parallel=ranks) for ranks in (1, 2, 4))
    assert one < two < 2 * one
    assert two < four < 2 * two


def test_streams_beside_each_other_are_passed_over_on_every_rank() -> None:
    """Hyper-connections: eight Sparks read a prompt of Qwen3.8-Flash-Next hardly faster than four (3,678 and 3,538)."""
    row = next(row for row in rows() if row["id"] == "flash-next-cap4-16k")
    four, eight = (planned({**row, "tensor_parallel": ranks})[0] for ranks in (4, 8))
    assert four < eight < 1.25 * four


def test_a_dense_model_of_few_bits_computes_faster() -> None:
    row = next(row for row in rows() if row["id"] == "qwen3.8-27b-fp8-8k")
    of_8_bits, of_16 = (planned({**row, "quantization": name})[0] for name in ("fp8", ""))
    assert of_8_bits > 2 * of_16


def test_stages_help_from_the_second_step_on() -> None:
    step = {"max_num_batched_tokens": 2048}
    assert rate("gpt-oss-120b", 2048, pipeline_parallel=2, **step) == rate("gpt-oss-120b", 2048, **step)
    assert rate("gpt-oss-120b", pipeline_parallel=2, **step) > 1.5 * rate("gpt-oss-120b", **step)


def test_small_steps_read_the_weights_more_often() -> None:
    small, large = (rate("minimax-m2.7", max_num_batched_tokens=tokens) for tokens in (512, 8192))
    assert small < 0.7 * large


def test_attention_to_all_slows_a_long_prompt_and_that_to_a_few_does_not() -> None:
    long = {"max_model_len": 262144, "tensor_parallel": 2}
    whole, few = (rate(name, 131072, **long) / rate(name, 8192, **long) for name in ("mimo-v2-flash", "glm-5.2"))
    assert whole < 0.7
    assert few == pytest.approx(1, abs=0.15)
