# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan against what vLLM's own specification code answered (tests/truth/specs.json), without vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from tools.judge.__main__ import cases, compare, kept

ANSWERS = kept()
CASES = {case["id"]: case for case in cases([])}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_plan_says_what_vllm_says(name: str) -> None:
    result = compare(CASES[name], ANSWERS[name])
    assert isinstance(result, list), f"not known to the plan: {result}"
    assert [str(difference) for difference in result] == []


def test_a_wrong_plan_is_found() -> None:
    name = sorted(ANSWERS)[0]
    answer: dict[str, Any] = {**ANSWERS[name]}
    answer["stages"] = [{**stage, "request": stage["request"] * 2} for stage in answer["stages"]]
    result = compare(CASES[name], answer)
    assert isinstance(result, list)
    assert [difference.what for difference in result if difference.what == "one request"]
