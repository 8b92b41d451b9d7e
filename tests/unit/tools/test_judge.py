# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan against what vLLM's own specification code answered (tests/truth/specs.json), without vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.published_models import NOT_KNOWN
from tools.judge.__main__ import TOP, cases, compare, kept, tally

ANSWERS = kept()
CASES = {case["id"]: case for case in cases([])}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_the_plan_says_what_vllm_says(name: str) -> None:
    result = compare(CASES[name], ANSWERS[name])
    if kind := NOT_KNOWN.get(name.partition(" ")[0]):
        assert isinstance(result, str)
        assert f"model_type {kind!r}" in result
        return
    assert isinstance(result, list), f"not known to the plan: {result}"
    assert [str(difference) for difference in result] == []


def test_a_hundred_architectures_are_held_against_vllm_and_the_docs_say_how_many() -> None:
    said = tally(ANSWERS)
    assert said in " ".join((TOP / "docs" / "developers.md").read_text().split())
    known = {CASES[name]["config"]["architectures"][0] for name in ANSWERS if name.partition(" ")[0] not in NOT_KNOWN}
    assert len(known) >= 100


def test_a_wrong_plan_is_found() -> None:
    name = sorted(ANSWERS)[0]
    answer: dict[str, Any] = {**ANSWERS[name]}
    answer["stages"] = [{**stage, "request": stage["request"] * 2} for stage in answer["stages"]]
    result = compare(CASES[name], answer)
    assert isinstance(result, list)
    assert [difference.what for difference in result if difference.what == "one request"]
