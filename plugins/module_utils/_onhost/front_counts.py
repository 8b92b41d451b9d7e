# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the exporter:
# pylint: disable=ansible-bad-function
"""Who asked for which model, counted from the lines that the front proxy sends for each request that it ended.

nginx fills in nothing but names of keys and of served models (roles/vllm_serve/templates/nginx.conf.j2), so there are
as many series as the inventory has keys and models.  It never waits for a reader: what nobody reads is not counted.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

#: of the front proxy, in each line that it sends
TAG = b"sparkthor_front: "
#: name of the key, model, status, seconds, and the tokens of prompt and completion, with ~ where the answer did not say
#: them and they are estimated (roles/vllm_serve/files/tokens.js)
_LINE = re.compile(
    r"([a-z0-9_-]{1,32}) (\S{1,256}) ([1-5][0-9]{2}) ([0-9]+\.[0-9]{3})(?: -| ([0-9]{1,15}) ([0-9]{1,15})( ~)?)?"
)
#: of a histogram of seconds: from a refused request to a long answer
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def parsed(datagram: bytes) -> re.Match[str] | None:
    """The words of a line of nginx."""
    return _LINE.fullmatch(datagram.partition(TAG)[2].decode("utf-8", "replace").strip())


@dataclass
class Answered:
    """Requests with one key to one model that were answered with 200."""

    #: by bucket; the last one is of those that took longer than all of them
    slots: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    #: answers that said how many tokens they took
    counted_answers: int = 0

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """As Prometheus has it: how many took at most this long."""
        so_far = 0
        for bound, slot in zip((*map(str, BUCKETS), "+Inf"), self.slots, strict=True):
            so_far += slot
            yield bound, so_far


class FrontCounts:
    """Safe to fill in one thread and read in others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._answered: dict[tuple[str, str], Answered] = {}

    def take(self, datagram: bytes) -> None:
        """Count a line of nginx; what is none is passed over."""
        match = parsed(datagram)
        if not match:
            return
        key, model, status, seconds, prompt, completion, estimated = match.groups()
        with self._lock:
            self._requests[key, model, status] += 1
            if status != "200":
                return
            answered = self._answered.setdefault((key, model), Answered())
            took = float(seconds)
            answered.slots[sum(took > bound for bound in BUCKETS)] += 1
            answered.seconds += took
            if prompt is not None and not estimated:
                answered.prompt_tokens += int(prompt)
                answered.completion_tokens += int(completion)
                answered.counted_answers += 1

    def lines(self) -> list[str]:
        """All counts in Prometheus' text format."""
        with self._lock:
            requests = [
                f'{{key="{key}",model="{_label(model)}",status="{status}"}} {count}'
                for (key, model, status), count in sorted(self._requests.items())
            ]
            metrics = _family("requests_total", "counter", "Requests that ended, by key, model and status.", requests)
            answered = [
                (f'key="{key}",model="{_label(model)}"', counter)
                for (key, model), counter in sorted(self._answered.items())
            ]
            seconds = []
            for labels, counter in answered:
                seconds += [f'_bucket{{{labels},le="{bound}"}} {count}' for bound, count in counter.cumulated()]
                seconds += [f"_sum{{{labels}}} {counter.seconds:.3f}", f"_count{{{labels}}} {sum(counter.slots)}"]
            metrics += _family(
                "request_seconds", "histogram", "Time from a request's begin to its answer's end.", seconds
            )
            for name, text in (
                ("prompt_tokens", "Tokens of prompts, of the answers that said it."),
                ("completion_tokens", "Tokens of completions, of the answers that said it."),
                ("counted_answers", "Answers that said how many tokens they took."),
            ):
                samples = [
                    f"{{{labels}}} {getattr(counter, name)}" for labels, counter in answered if counter.counted_answers
                ]
                metrics += _family(f"{name}_total", "counter", text, samples)
        return metrics


def _label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _family(name: str, kind: str, text: str, samples: list[str]) -> list[str]:
    full = f"sparkthor_front_{name}"
    head = [f"# HELP {full} {text}", f"# TYPE {full} {kind}"]
    return [*head, *(f"{full}{sample}" for sample in samples)] if samples else []


def listen(path: str) -> socket.socket:
    """The socket of the front proxy's lines, for this process' user and group alone.  Raises OSError."""
    if os.path.lexists(path):
        os.unlink(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    before = os.umask(0o117)
    try:
        made.bind(path)
    finally:
        os.umask(before)
    return made


def follow(counts: FrontCounts, made: socket.socket) -> None:
    """Count what comes, until an empty datagram does, which nginx never sends."""
    with made:
        while datagram := made.recv(4096):
            counts.take(datagram)
