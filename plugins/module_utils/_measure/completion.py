# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client of the API gets: an answer, time to the first token, tokens a second.  Standard library only.

Through the front proxy, with its key, as every client; on the head, so that no network of the user's is measured.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import foreign, peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import answers, serving

PROMPT = "Describe, step by step, how a cable is made and tested."


class CompletionError(Exception):
    """Why there is no answer."""


class Client:
    def __init__(self, address: str, port: int, tls: bool, key: str, model: str, seconds: float) -> None:
        # our own front proxy on this very host; its certificate may be self-signed
        self._connect = peer.tcp(address, port, tls)
        self._seconds = seconds
        self._key = key
        self._model = model

    def _post(self, body: dict[str, Any], more: float = 0) -> tuple[peer.Exchange, http.client.HTTPResponse]:
        """The answer's beginning; all of it has to come within the client's seconds and so many ``more``."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        connection: peer.Exchange | None = None
        try:
            connection = peer.opened(self._connect, self._seconds + more)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            text = "" if answer.status == 200 else answer.read(2000).decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            if connection is not None:
                connection.close()
            raise CompletionError(f"the front proxy: {error or type(error).__name__}") from error
        if answer.status != 200:
            connection.close()
            raise CompletionError(f"the front proxy answered {answer.status}: {_message(text)}")
        return connection, answer

    def _body(self, tokens: int) -> dict[str, Any]:
        messages = [{"role": "user", "content": PROMPT}]
        return {"model": self._model, "messages": messages, "max_tokens": tokens, "temperature": 0}

    def complete(self, tokens: int) -> dict[str, Any]:
        begun = time.monotonic()
        text, count = self._said(self._body(tokens))
        return {"tokens": count, "characters": len(text), "seconds": round(time.monotonic() - begun, 4)}

    def answer(self, prompt: str) -> str:
        """What the model says and thinks."""
        return self._said(answers.task(self._model, prompt))[0]

    def _said(self, body: dict[str, Any]) -> tuple[str, int]:
        """(text, tokens) of a completion."""
        connection, answer = self._post(body)
        try:
            document = foreign.parse_object(answer.read(serving.ANSWER_LIMIT + 1), serving.ANSWER_LIMIT)
            return answers.answer_text(document), int(document["usage"]["completion_tokens"])
        except (
            OSError,
            http.client.HTTPException,
            ValueError,
            KeyError,
            IndexError,
            TypeError,
            AttributeError,
        ) as error:
            raise CompletionError(f"the answer is not a chat completion: {error!r}") from error
        finally:
            connection.close()

    def stream(self, tokens: int) -> dict[str, float]:
        begun = time.monotonic()
        options = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
        # nobody calls less than a token a second an answer
        connection, answer = self._post({**self._body(tokens), **options}, tokens)
        try:
            measured = read_stream(iter(answer.readline, b""), time.monotonic)
        except (OSError, http.client.HTTPException) as error:
            raise CompletionError(f"the stream broke: {error or type(error).__name__}") from error
        finally:
            connection.close()
        return {
            "tokens": measured["tokens"],
            "ttft": measured["first"] - begun,
            "first": measured["first"],
            "last": measured["last"],
        }


def _message(text: str) -> str:
    try:
        error = foreign.parse_object(text)["error"]
        return str(error.get("message", error))[:200]
    except (ValueError, KeyError, TypeError, AttributeError):
        return text.strip()[:200]


def read_stream(lines: Iterable[bytes], clock: Callable[[], float]) -> dict[str, Any]:
    """``first`` and ``last``: when a part with text came; ``tokens``: what the server counted, else the parts."""
    first = last = None
    parts = 0
    counted = 0
    for raw in lines:
        line = raw.strip()
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            break
        try:
            document = foreign.parse_object(data)
        except ValueError:
            continue
        if document.get("error"):
            raise CompletionError(_message(json.dumps(document)))
        counted = int((document.get("usage") or {}).get("completion_tokens") or counted)
        for choice in document.get("choices") or []:
            delta = choice.get("delta") or {}
            if delta.get("content") or delta.get("reasoning") or delta.get("reasoning_content"):
                last = clock()
                first = last if first is None else first
                parts += 1
    if first is None or last is None:
        raise CompletionError("the stream ended without a token")
    return {"first": first, "last": last, "tokens": counted or parts}


def measure(client: Client, tokens: int, streams: list[int], tasks: bool = False) -> dict[str, Any]:
    """A completion, simple tasks, then so many streams at once; ``error`` where it ends early."""
    measured: dict[str, Any] = {"streams": {}}
    try:
        measured["completion"] = client.complete(min(16, tokens))
        if tasks:
            measured["answers"] = answers.ask(client.answer)
        for count in streams:
            measured["streams"][str(count)] = _at_once(client, tokens, count)
    except CompletionError as error:
        measured["error"] = str(error)
    return measured


def _at_once(client: Client, tokens: int, count: int) -> dict[str, float]:
    results: list[dict[str, float]] = []
    errors: list[str] = []

    def one() -> None:
        try:
            results.append(client.stream(tokens))
        except CompletionError as error:
            errors.append(str(error))
        except Exception as error:
            # an answer that nobody foresaw fails a stream, and not a thread that nobody hears of
            errors.append(f"{type(error).__name__}: {error}")

    begun = time.monotonic()
    threads = [threading.Thread(target=one, daemon=True) for _number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise CompletionError(f"{len(errors)} of {count} streams failed: {errors[0]}")
    return summary(results, begun)


def summary(results: list[dict[str, float]], begun: float) -> dict[str, float]:
    """Tokens a second of all streams together, of one stream between its tokens, and waiting times."""
    total = sum(item["tokens"] for item in results)
    wall = max(item["last"] for item in results) - begun
    decode = [
        (item["tokens"] - 1) / (item["last"] - item["first"])
        for item in results
        if item["tokens"] > 1 and item["last"] > item["first"]
    ]
    return {
        "streams": len(results),
        "tokens": total,
        "tokens_per_second": round(total / wall, 3),
        "decode_tokens_per_second": round(statistics.median(decode), 3) if decode else 0.0,
        "ttft_seconds": round(statistics.median(item["ttft"] for item in results), 4),
        "ttft_max_seconds": round(max(item["ttft"] for item in results), 4),
    }
