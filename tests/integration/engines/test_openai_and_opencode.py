# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clients get of llama.cpp through a front proxy, with the cluster's key: the OpenAI package, and an agent.

The stand-in answers words to both. The Responses API, which it has not, is asked of the real programs alone. The last
test leaves a group changed; nothing asks this lab after it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.engines.conftest import ALONE, HEAD, LAYERS, SINGLE, Engines
from tests.integration.serve.conftest import Serving
from tests.integration.serve.page import agents, blocks, run

QUESTION = "Which city is the capital of France? Answer with one word."
SAID: list[Any] = [{"role": "user", "content": QUESTION}]
#: all that the model was trained for; an agent's prompt alone is longer than the other group's whole context
CONTEXT = 8192
#: whoever makes a small model call tools gets commands that nobody asked for, and opencode would run them here
WITHOUT_TOOLS = """export OPENCODE_PERMISSION='{"*": "deny"}'\n"""


@pytest.mark.parametrize("model", [LAYERS, ALONE])
def test_an_answer_to_the_openai_package_comes_in_parts(engines: Engines, model: str) -> None:
    parts = list(
        engines.client(HEAD).chat.completions.create(
            model=model,
            messages=SAID,
            max_tokens=24,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "Paris" in "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert parts[-1].usage is not None
    assert parts[-1].usage.completion_tokens > 0


if os.environ.get("LLAMA_PROGRAMS"):

    @pytest.mark.parametrize("model", [LAYERS, ALONE])
    def test_the_responses_api_answers(engines: Engines, model: str) -> None:
        responses, asked = engines.client(HEAD).responses, {"model": model, "max_output_tokens": 24, "temperature": 0}
        whole = responses.create(input=QUESTION, **asked)
        assert "Paris" in whole.output_text
        events = list(responses.create(input=QUESTION, stream=True, **asked))
        parts = [event.delta for event in events if event.type == "response.output_text.delta"]
        assert "".join(parts) == whole.output_text
        assert events[-1].type == "response.completed"


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tools_that_the_chat_template_does_not_know_are_passed_over(engines: Engines, choice: Any) -> None:
    """As 0.7.0 does, which refuses neither; agents name theirs with every question."""
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather: Any = {"name": "weather", "description": "Weather of a city", "parameters": city}
    reply = engines.client(HEAD).chat.completions.create(
        model=ALONE,
        messages=SAID,
        tools=[{"type": "function", "function": weather}],
        tool_choice=choice,
        max_tokens=24,
        temperature=0,
    )
    assert not reply.choices[0].message.tool_calls
    assert "Paris" in (reply.choices[0].message.content or "")


@pytest.fixture(scope="module")
def large(engines: Engines) -> Iterator[Engines]:
    """The group on one host with a context that an agent's prompt fits."""
    with engines.given(SINGLE, vllm_serve_max_model_len=CONTEXT):
        outcome = engines.play("site.yml")
        assert outcome.rc == 0, outcome.failures
        yield engines


def test_an_agent_gets_words(large: Engines, tmp_path: Path) -> None:
    """By the page's own lines, at the door of another head than the model's."""
    [(kind, text)] = [(kind, text) for title, kind, text in blocks() if title == "opencode"]
    assert "Say hello." in text
    asked = WITHOUT_TOOLS + text.replace("Say hello.", QUESTION)
    path = agents()
    said = [run(Serving(large.cluster), kind, asked, folder=tmp_path, path=path, model=ALONE) for _ask in range(3)]
    assert any("Paris" in words for words in said), said
