# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that know the answer: what one host alone says to the same prompt, greedily."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tools.chaos.judge import WRONG
from tools.faults.observe import Endpoint, answer_problem, stream_problem
from tools.faults.site import FaultError
from tools.playbooks import TOP

PROMPT = "hello"
#: of the long requests; shorter answers are the beginning of this one
TOKENS = 200
#: the same where a cluster is its own reference: it may not take long on a GPU that many share
FEW_TOKENS = 24


def reference() -> str:
    """From the cache where it was asked before; else one host's engine is started for it."""
    words = [
        sys.executable,
        str(TOP / "lab/engine/reference_answer.py"),
        "--prompt",
        PROMPT,
        "--max-tokens",
        str(TOKENS),
    ]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return str(json.loads(done.stdout.splitlines()[-1])["content"])


def said(text: str, stream: bool) -> str:
    """What an answer says, out of its JSON or its events."""
    if not stream:
        message = json.loads(text)["choices"][0]["message"]
        return message.get("content") or message.get("reasoning") or ""
    parts = []
    for line in text.splitlines():
        data = line.removeprefix("data: ")
        if data != line and data != "[DONE]":
            for choice in json.loads(data)["choices"]:
                parts.append(choice["delta"].get("content") or choice["delta"].get("reasoning") or "")
    return "".join(parts)


def wrong(answer: str, expected: str, whole: bool) -> str:
    """Empty when it is the reference, or its beginning where fewer tokens were asked for."""
    if answer == expected or (answer and not whole and expected.startswith(answer)):
        return ""
    return f"{WRONG}: {answer[:60]!r} instead of {expected[:60]!r}"


@dataclass
class Asking(Endpoint):
    expected: str = ""
    #: of an answer that has to be all of what is expected
    whole: int = TOKENS

    def complete(
        self,
        tokens: int,
        *,
        stream: bool,
        timeout: float,
        prompt: str = PROMPT,
        connected: Callable[[socket.socket], None] = lambda _socket: None,
    ) -> str:
        answer, problem = self.answer(tokens, stream=stream, timeout=timeout, prompt=prompt, connected=connected)
        return problem or wrong(answer, self.expected, tokens >= self.whole)

    def answer(
        self,
        tokens: int,
        *,
        stream: bool,
        timeout: float,
        prompt: str = PROMPT,
        connected: Callable[[socket.socket], None] = lambda _socket: None,
    ) -> tuple[str, str]:
        """(what it said, what became of it otherwise)."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": stream,
        }
        text, error = self.exchange("/v1/chat/completions", body, timeout, connected)
        problem = error or (stream_problem(text) if stream else answer_problem(text))
        return ("", problem) if problem else (said(text, stream), "")


def agreed(endpoint: Asking, timeout: float = 180.0) -> str:
    """What the cluster itself answers, alone and in company; where that differs, nothing is proved."""

    def ask(tokens: int, stream: bool) -> str:
        answer, problem = endpoint.answer(tokens, stream=stream, timeout=timeout)
        if problem or not answer:
            raise FaultError(f"no reference: {problem or 'an empty answer'}")
        return answer

    many = endpoint.whole
    with ThreadPoolExecutor(4) as pool:
        answers = [ask(many, False), ask(many, True)]
        answers += pool.map(lambda number: ask(many, number % 2 == 1), range(4))
        short = [ask(1, False), *pool.map(lambda tokens: ask(tokens, False), (1, many, 1, many))]
    found = sorted({*answers, *(one for one in short if not answers[0].startswith(one))})
    if len(found) > 1:
        raise FaultError(f"no reference: greedy answers differ: {'; '.join(repr(one[:60]) for one in found)}")
    return answers[0]
