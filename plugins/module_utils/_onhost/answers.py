# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model answers sensibly: simple tasks whose right answer is known.

Broken kernels give fluent nonsense, or one token again and again, and count as fast as sound ones. Standard library
only: the watchdog asks after each start, a play after its own, and verify.yml whenever it runs.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from .._lib import foreign
from . import serving
from .engines import registry
from .engines.base import EngineOnHost

#: what a sound model of any size gets right, and what has to stand in the answer
TASKS = (
    ("Repeat this line exactly as it is: blue harbour 4817", r"blue harbour 4817"),
    ("What is 17 + 25? Answer with the number.", r"\b42\b"),
    ("Write the numbers from 1 to 8, separated by commas.", r"1, ?2, ?3, ?4, ?5, ?6, ?7, ?8"),
    ("Which city is the capital of France? Answer with one word.", r"\bparis\b"),
)
#: share of the tasks that a sound model answers rightly
SENSE = 0.75
#: a model that thinks first gets to the answer within so many
TASK_TOKENS = 256
#: what to do about it
_FIX = "compare the model's files (site.yml --tags model_store) and its chat template"


def fix(engine: EngineOnHost = registry.DEFAULT) -> str:
    """What to do about an engine that computes no sense."""
    return f"{engine.nonsense}. Else {_FIX}" if engine.nonsense else _FIX


def task(model: str, prompt: str) -> dict[str, Any]:
    """The request of one simple task."""
    messages = [{"role": "user", "content": prompt}]
    return {"model": model, "messages": messages, "max_tokens": TASK_TOKENS, "temperature": 0}


def answer_text(document: Any) -> str:
    """What a chat completion says; what was thought comes first."""
    message = document["choices"][0]["message"]
    thought = message.get("reasoning") or message.get("reasoning_content") or ""
    return str(thought) + str(message.get("content") or "")


def ask(answer: Callable[[str], str]) -> dict[str, Any]:
    """How many simple tasks are answered rightly, and the first answer that is wrong."""
    wrong = []
    for prompt, right in TASKS:
        text = answer(prompt)
        if not re.search(right, text, re.IGNORECASE):
            wrong.append(f"{prompt!r}: {' '.join(text.split())[:80]!r}")
    return {"asked": len(TASKS), "right": len(TASKS) - len(wrong), "wrong": wrong[0] if wrong else ""}


class _NoChat(Exception):
    """The engine refuses the question, as without a chat template: nothing can be known."""


def ask_engine(
    socket: str,
    model: str,
    seconds: float,
    request: Callable[..., tuple[int, str]] = serving.request,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """The same of the engine behind its socket: empty without answers in time, ``asked`` 0 where it cannot be asked."""
    ends = clock() + seconds

    def answer(prompt: str) -> str:
        status, text = request(socket, "POST", "/v1/chat/completions", max(1.0, ends - clock()), task(model, prompt))
        if 400 <= status < 500 and status != 429:
            raise _NoChat
        return answer_text(foreign.parse_object(text, serving.ANSWER_LIMIT))

    try:
        return ask(answer)
    except _NoChat:
        return {"asked": 0, "right": 0, "wrong": ""}
    except (OSError, http.client.HTTPException, ValueError, KeyError, IndexError, TypeError, AttributeError):
        return {}


def problem(found: Mapping[str, Any]) -> str:
    """What to say about a model that answers most simple tasks wrongly."""
    asked, right = found.get("asked") or 0, found.get("right") or 0
    if right >= SENSE * asked:
        return ""
    return f"the model answers {right} of {asked} simple tasks rightly ({found.get('wrong')})"
