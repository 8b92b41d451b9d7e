# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tokens per second of one stream, beside what was measured (tests/truth/speeds.json)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.memory import plan
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.shape import read_shape
from ansible_collections.sparkthor.cluster.plugins.module_utils._model.weights import reads

from tests.truth.speeds import holds, planned, rows, sentence
from tests.unit.published_models import model

DOCS = Path(__file__).resolve().parents[5] / "docs"


def speeds(name: str, **options: Any) -> dict[str, list[float]]:
    found: dict[str, list[float]] = plan(model(name), max_model_len=8192, **options)["tokens_per_second"]
    return found


def test_ranges_hold_four_fifths_of_the_rows_that_chose_no_figure() -> None:
    held = [row for row in rows() if not row.get("basis")]
    assert len(held) >= 30
    assert sum(holds(row) for row in held) >= 0.8 * len(held)
    for row in rows():
        least, most = planned(row)
        assert most <= 2.01 * least
        assert row["source"].startswith("https://")


def test_the_docs_say_how_often() -> None:
    assert sentence() in " ".join((DOCS / "planning.md").read_text().split())


def test_a_drafter_helps_structured_text_most() -> None:
    plain = speeds("qwen3.6-27b")["any"][0]
    drafted = speeds("qwen3.6-27b", speculative_config={"method": "mtp", "num_speculative_tokens": 3})
    assert plain < drafted["prose"][0] < drafted["code"][0] < drafted["structured"][0]


def test_a_split_pays_for_its_traffic() -> None:
    single, two, four = (speeds("gpt-oss-120b", tensor_parallel=ranks)["any"][0] for ranks in (1, 2, 4))
    assert single < two < 2 * single
    assert two < four < 2 * two
    # stages read one after the other
    staged = speeds("gpt-oss-120b", pipeline_parallel=2)["any"][0]
    assert staged == pytest.approx(single, rel=0.02)
    assert staged < single


def test_without_graphs_each_layer_takes_longer() -> None:
    assert speeds("gpt-oss-120b", enforce_eager=True)["any"][0] < 0.8 * speeds("gpt-oss-120b")["any"][0]


def test_a_smaller_checkpoint_has_smaller_experts() -> None:
    shape = read_shape(model("qwen3.5-122b-a10b-fp8"))
    whole, small = reads(shape, None), reads(shape, 75 * 10**9)
    assert small.always == whole.always
    assert small.experts < whole.experts
    dense = read_shape(model("qwen3.6-27b"))
    assert reads(dense, 20 * 10**9).always < reads(dense, None).always
    known = reads(shape, None, active_bytes=10**10)
    assert known.always + known.experts * known.share == pytest.approx(10**10)
