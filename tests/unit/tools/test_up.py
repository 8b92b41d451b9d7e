# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make up`` without a lab: what it asks, what it shows while the answer comes, and when the answer is no answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tools import up

WORDS = ["The", " capital", " of", " France", " is", " Paris", "."]


class Api(BaseHTTPRequestHandler):
    """Two routes of an engine, the one model and one streamed completion."""

    asked: list[dict] = []

    def log_message(self, *_words: object) -> None:
        pass

    def _send(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        model = {"id": "m", "object": "model", "created": 0, "owned_by": "x"}
        self._send("application/json", json.dumps({"object": "list", "data": [model]}).encode())

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        chunks = [{"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]} for word in WORDS]
        lines = [json.dumps({"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", **chunk})
                 for chunk in [*chunks, {"choices": []}]]  # fmt: skip
        self._send("text/event-stream", "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode())


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


def test_the_answer_is_shown_as_it_comes(endpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    model, answer, _seconds = up.ask(endpoint, "key")
    assert (model, answer) == ("m", "The capital of France is Paris.")
    assert capsys.readouterr().out == f"--- m: {up.QUESTION}\n{answer}\n"
    [asked] = Api.asked
    assert (asked["stream"], asked["temperature"]) == (True, 0.0)


@pytest.mark.parametrize(
    ("model", "answer", "wrong"),
    [
        (up.SENSIBLE, "The capital of France is Paris.", False),
        (up.SENSIBLE, " deer among eye base", True),
        ("tiny-qwen3", " deer among eye base", False),
    ],
)
def test_a_model_that_can_has_to_answer_rightly(model: str, answer: str, wrong: bool) -> None:
    assert up.is_wrong(model, answer) == wrong
