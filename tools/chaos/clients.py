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
from dataclasses import dataclass

from tools.chaos.judge import WRONG
from tools.faults.observe import Endpoint, answer_problem, stream_problem
from tools.playbooks import TOP

PROMPT = "hello"
#: of the long requests; shorter answers are the beginning of this one
TOKENS = 200


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

    def complete(
        self,
        tokens: int,
        *,
        stream: bool,
        timeout: float,
        prompt: str = PROMPT,
        connected: Callable[[socket.socket], None] = lambda _socket: None,
    ) -> str:
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": tokens,
            "temperature": 0,
            "stream": stream,
        }
        text, error = self.exchange("/v1/chat/completions", body, timeout, connected)
        problem = error or (stream_problem(text) if stream else answer_problem(text))
        return problem or wrong(said(text, stream), self.expected, tokens >= TOKENS)
