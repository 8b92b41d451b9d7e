# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model answers sensibly, without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers

SOUND = ("<think>copy</think> Blue harbour 4817", "17 + 25 = **42**.", "1,2,3, 4, 5, 6, 7, 8", "Paris")


@pytest.mark.parametrize(
    ("said", "right", "wrong"),
    [
        (SOUND, 4, ""),
        ((*SOUND[:3], "Parisian nights"), 3, "'Which city is the capital of France?"),
        (("!!!!!!!!!!!!",) * 4, 0, "'!!!!!!!!!!!!'"),
        (("142 420 1234567 8",) * 4, 0, "142 420"),
    ],
)
def test_simple_tasks(said: tuple[str, ...], right: int, wrong: str) -> None:
    asked = dict(zip((prompt for prompt, _right in answers.TASKS), said, strict=True))
    found = answers.ask(asked.__getitem__)
    assert (found["asked"], found["right"]) == (4, right)
    assert wrong in found["wrong"]
    assert bool(answers.problem(found)) is (right < 3)


def test_what_is_thought_counts() -> None:
    thought = {"choices": [{"message": {"reasoning": "it is 42", "content": None}}]}
    assert answers.answer_text(thought) == "it is 42"


def engine(request: Callable[..., tuple[int, str]]) -> dict[str, Any]:
    return answers.ask_engine("/s", "m", 60.0, request)


def test_an_engine_is_asked_by_its_chat() -> None:
    said, seen = iter(SOUND), []

    def request(path: str, method: str, route: str, seconds: float, body: dict[str, Any]) -> tuple[int, str]:
        seen.append((path, method, route, body["model"], body["temperature"], 0 < seconds <= 60))
        return 200, json.dumps({"choices": [{"message": {"content": next(said)}}]})

    assert engine(request) == {"asked": 4, "right": 4, "wrong": ""}
    assert seen == [("/s", "POST", "/v1/chat/completions", "m", 0, True)] * 4


def test_later_tasks_get_what_the_first_ones_left() -> None:
    given, now = [], iter((0.0, 0.0, 50.0, 70.0, 70.0))

    def request(path: str, method: str, route: str, seconds: float, body: dict[str, Any]) -> tuple[int, str]:
        given.append(seconds)
        return 200, json.dumps({"choices": [{"message": {"content": ""}}]})

    answers.ask_engine("/s", "m", 60.0, request, lambda: next(now))
    assert given == [60.0, 10.0, 1.0, 1.0]


def late(*_arguments: Any) -> tuple[int, str]:
    raise TimeoutError


def test_a_model_without_a_chat_template_cannot_be_asked() -> None:
    found = engine(lambda *_arguments: (400, '{"error": "no chat template"}'))
    assert found["asked"] == 0
    assert answers.problem(found) == ""


@pytest.mark.parametrize(
    "request_", [late, lambda *_arguments: (200, '{"choices": []}'), lambda *_arguments: (503, "busy")]
)
def test_no_answer_in_time_says_nothing(request_: Callable[..., tuple[int, str]]) -> None:
    assert engine(request_) == {}
    assert answers.problem({}) == ""
