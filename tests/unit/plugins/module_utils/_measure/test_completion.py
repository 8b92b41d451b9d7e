# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client against a front proxy that is a few lines of Python: streams, usage, keys, errors."""

from __future__ import annotations

import http.client
import http.server
import io
import itertools
import json

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._measure import completion as serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers

from tests.unit import servers


def part(**delta):
    return b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode() + b"\n"


USAGE = b'data: {"choices": [], "usage": {"completion_tokens": 9}}\n'
DONE = b"data: [DONE]\n"


def test_times_of_the_first_and_the_last_part_with_text():
    clock = itertools.count(10).__next__
    lines = [
        part(role="assistant"),
        b"\n",
        b": ping\n",
        part(content="a"),
        part(reasoning="b"),
        USAGE,
        DONE,
        part(content="z"),
    ]
    assert serving.read_stream(lines, clock) == {"first": 10, "last": 11, "tokens": 9}


def test_parts_count_where_the_server_does_not():
    assert serving.read_stream([part(content="a"), part(content="b"), DONE], lambda: 1.0)["tokens"] == 2


@pytest.mark.parametrize("lines", [[], [DONE], [part(role="assistant"), DONE], [b"garbage\n", b"data: {torn\n"]])
def test_a_stream_without_a_token_is_an_error(lines):
    with pytest.raises(serving.CompletionError, match="without a token"):
        serving.read_stream(lines, lambda: 1.0)


def test_an_error_inside_the_stream():
    with pytest.raises(serving.CompletionError, match="out of memory"):
        serving.read_stream([b'data: {"error": {"message": "out of memory"}}\n'], lambda: 1.0)


def test_the_summary_of_streams():
    results = [
        {"tokens": 11, "ttft": 0.5, "first": 100.5, "last": 101.5},
        {"tokens": 11, "ttft": 1.5, "first": 101.5, "last": 103.5},
    ]
    found = serving.summary(results, 100.0)
    assert found["tokens_per_second"] == pytest.approx(22 / 3.5, abs=0.001)
    assert found["decode_tokens_per_second"] == 7.5
    assert (found["ttft_seconds"], found["ttft_max_seconds"]) == (1.0, 1.5)


class Front(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer right":
            return self._send(401, b'{"error": {"message": "Incorrect API key provided."}}')
        if body.get("stream"):
            words = [part(content=f"w{number} ") for number in range(body["max_tokens"])]
            return self._send(200, b"".join([*words, USAGE, DONE]))
        said = self.server.said.get(body["messages"][0]["content"], "hello")
        answer = {"choices": [{"message": {"content": said}}], "usage": {"completion_tokens": 3}}
        return self._send(200, json.dumps(answer).encode())

    def _send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments):
        pass


#: what the model behind the front proxy says
SAID: dict[str, str] = {}


@pytest.fixture
def port():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
    server.said = SAID
    with servers.serving(server):
        yield server.server_address[1]


def test_completion_one_stream_and_several(port):
    client = serving.Client("127.0.0.1", port, False, "right", "m", 10)
    found = serving.measure(client, 5, [1, 3])
    assert found["completion"]["tokens"] == 3
    assert found["streams"]["3"]["streams"] == 3
    assert found["streams"]["3"]["tokens"] == 27
    assert "error" not in found


def test_a_wrong_key_is_told_in_the_fronts_words(port):
    found = serving.measure(serving.Client("127.0.0.1", port, False, "wrong", "m", 10), 5, [1])
    assert found["error"] == "the front proxy answered 401: Incorrect API key provided."
    assert "completion" not in found


def test_nobody_there():
    found = serving.measure(serving.Client("127.0.0.1", 1, False, "right", "m", 2), 5, [1])
    assert "refused" in found["error"]


def test_a_stream_that_nobody_foresaw_is_a_failed_stream(port, monkeypatch):
    def odd(lines, clock):
        raise AttributeError("'list' object has no attribute 'get'")

    monkeypatch.setattr(serving, "read_stream", odd)
    found = serving.measure(serving.Client("127.0.0.1", port, False, "right", "m", 10), 5, [2])
    assert found["error"] == "2 of 2 streams failed: AttributeError: 'list' object has no attribute 'get'"


def test_simple_tasks_are_asked_through_the_front_proxy(port, monkeypatch):
    for (prompt, _right), said in zip(answers.TASKS, ("Blue harbour 4817", "42", "one, two", "Paris"), strict=True):
        monkeypatch.setitem(SAID, prompt, said)
    client = serving.Client("127.0.0.1", port, False, "right", "m", 10)
    found = serving.measure(client, 5, [], tasks=True)["answers"]
    assert (found["asked"], found["right"]) == (4, 3)
    assert "'one, two'" in found["wrong"]


def test_what_is_thought_counts(port, monkeypatch):
    client = serving.Client("127.0.0.1", port, False, "right", "m", 10)
    monkeypatch.setattr(client, "_post", lambda body: (http.client.HTTPConnection("x"), io.BytesIO(THOUGHT)))
    assert client.answer("q") == "it is 42"
    assert "answers" not in serving.measure(client, 5, [])


THOUGHT = b'{"choices": [{"message": {"reasoning": "it is 42", "content": null}}], "usage": {"completion_tokens": 1}}'
