# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every block of docs/clients.md that says python or sh, as it stands there, and what browsers ask.

The file comes first in the scenario, and leaves the group as it found it.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.integration.serve.conftest import FIRST, MODEL, Serving
from tests.integration.serve.page import AGENTS, blocks, run

ORIGIN = "http://localhost:3000"
CHAT = [block for block in blocks() if block[0] not in {*AGENTS, "Embeddings"}]
ANSWERS = {
    "curl": (f'"id":"{MODEL}"', '"object":"chat.completion"', '"type":"message"'),
    "Python: the OpenAI package": (),
    "Python: the Anthropic package": ("input_tokens=",),
    "Python: LangChain": ("token_usage",),
}


def test_the_page_has_all_of_them() -> None:
    titles = [title for title, _kind, _text in blocks()]
    assert {*ANSWERS, *AGENTS, "Embeddings"} == set(titles)
    assert titles.count("Python: the OpenAI package") == 3


@pytest.mark.parametrize(("title", "kind", "text"), CHAT, ids=[f"{row[0]} {place}" for place, row in enumerate(CHAT)])
def test_a_client_gets_its_answer(serving: Serving, title: str, kind: str, text: str) -> None:
    output = run(serving, kind, text)
    assert len(output.strip()) > len("None None")
    for words in ANSWERS[title]:
        assert words in output


def ask(serving: Serving, method: str, origin: str, key: str = "") -> tuple[int, dict[str, str]]:
    headers = {"Origin": origin}
    if method == "OPTIONS":
        headers |= {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(f"{serving.cluster.endpoint}/v1/models", method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, {name.lower(): value for name, value in error.headers.items()}


def test_a_web_page_of_a_given_origin_may_use_the_api(serving: Serving) -> None:
    status, headers = ask(serving, "OPTIONS", ORIGIN)
    assert (status, headers["access-control-allow-origin"]) == (204, ORIGIN)
    assert headers["access-control-allow-headers"] == "authorization"
    status, headers = ask(serving, "GET", ORIGIN, serving.cluster.api_key)
    assert (status, headers["access-control-allow-origin"]) == (200, ORIGIN)


@pytest.mark.parametrize("origin", ["http://localhost:3001", "https://localhost:3000", f"{ORIGIN}.evil.example"])
def test_a_web_page_of_any_other_origin_may_not(serving: Serving, origin: str) -> None:
    status, headers = ask(serving, "OPTIONS", origin)
    assert status == 401
    assert "access-control-allow-origin" not in headers
    status, headers = ask(serving, "GET", origin, serving.cluster.api_key)
    assert (status, headers.get("access-control-allow-origin")) == (200, None)


def test_a_pooling_model_becomes_ready_and_gives_vectors(serving: Serving) -> None:
    pooling = {**FIRST, "vllm_serve_args": {**FIRST["vllm_serve_args"], "runner": "pooling", "convert": "embed"}}
    outcome = serving.site(**pooling)
    try:
        [(kind, text)] = [(kind, text) for title, kind, text in blocks() if title == "Embeddings"]
        assert "2 vectors of 192 numbers" in run(serving, kind, text)
        state = json.loads(serving.cluster.run(serving.cluster.head, "cat /run/sparkthor/state.json"))
        assert state["state"] == "serving"
        # what the run ends with is a command for such a model
        assert f"{serving.cluster.endpoint}/v1/embeddings" in outcome.output
    finally:
        serving.site(**FIRST)
