# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Streams of completions against one address, and what they came to: tokens/s and the time to the first token.

    python -m tools.gpu.load --url URL|--socket PATH --model NAME [--key-file FILE] --streams N --seconds S

Every stream asks again as soon as it has its answer; its first one is of any length, so that streams do not march in
step. Tokens count that came after the first second and before the end, and of requests only those that began then, so
the figure is that of N streams at work. An answer that broke off has failed and counts for nothing. One process for
every eight streams, so that the client is not what is measured. The result is one line of JSON.

With --requests all streams begin at once, and the figure is that of all their answers from the first question to the
last token: of a long answer no second is left out, so more of them fit into a short visit.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import multiprocessing
import queue
import random
import socket
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

WARM = 1.0
EACH = 8

#: of a whole answer: when it was asked for, when each of its events came, and its tokens
Answer = tuple[float, list[float], int]


@dataclasses.dataclass(frozen=True)
class Aim:
    """Whom to ask, and for what."""

    url: str
    socket: str
    key: str
    model: str
    prompt: int
    tokens: int
    #: a stream asks the same each time, which the prefix cache knows
    same: bool = False
    #: of each stream; 0 = as many as fit into the seconds
    requests: int = 0

    def connection(self) -> http.client.HTTPConnection:
        if not self.socket:
            parts = urlsplit(self.url)
            return http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=300)
        connection = http.client.HTTPConnection("localhost", timeout=300)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(300)
        connection.sock.connect(self.socket)
        return connection


def ask(aim: Aim, dice: random.Random) -> tuple[float, list[float]]:
    """One streamed completion: when it began, and when each event came. A busy engine puts several tokens into one."""
    body = {
        "model": aim.model,
        # no two prompts are alike, so nothing comes out of a prefix cache, unless the dice are thrown anew
        "prompt": [dice.randrange(300, 1100) for _token in range(aim.prompt)],
        "max_tokens": aim.tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {aim.key}"}
    connection = aim.connection()
    try:
        begun = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(f"{answer.status}: {answer.read(200)!r}")
        came, last = [], b""
        for line in answer:
            if line.startswith(b"data: "):
                came.append(time.monotonic())
                last = line
                # an engine that fails later has said 200 already
                if line.startswith(b'data: {"error"'):
                    break
    finally:
        connection.close()
    if last.strip() != b"data: [DONE]":
        raise OSError(f"the answer broke off: {last[:200]!r}")
    return begun, came[:-1]


def work(aim: Aim, streams: int, start: float, seconds: float, seed: int, streams_in_all: int, results: Any) -> None:
    """A process: its streams, until the end."""
    kept: list[Answer] = []
    failed: list[str] = []

    def stream(number: int) -> None:
        dice = random.Random(seed * 1000 + number)
        length = aim.tokens if aim.requests or streams_in_all == 1 else dice.randint(1, aim.tokens)
        asked = 0
        while asked < aim.requests if aim.requests else time.monotonic() < start + WARM + seconds:
            asked += 1
            if aim.same:
                dice = random.Random(number)
            try:
                begun, came = ask(dataclasses.replace(aim, tokens=length), dice)
                kept.append((begun, came, length))
                length = aim.tokens
            except (OSError, http.client.HTTPException) as error:
                failed.append(f"{type(error).__name__}: {error}")
                time.sleep(0.2)

    threads = [threading.Thread(target=stream, args=(number,), daemon=True) for number in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results.put((kept, failed))


def figures(kept: list[Answer], start: float, seconds: float) -> dict[str, float]:
    """Tokens that came within the measured time, per second, and the median and 99th percentile of the first token."""
    return _figures(kept, start + WARM, start + WARM + seconds)


def whole(kept: list[Answer]) -> dict[str, float]:
    """The same of all answers, from the first question to the last token."""
    ends = [came[-1] for _begun, came, _count in kept if came]
    # the last token counts
    return _figures(kept, min(one[0] for one in kept), max(ends) + 1e-9) if ends else _figures([], 0.0, 1.0)


def _figures(kept: list[Answer], begin: float, end: float) -> dict[str, float]:
    tokens = sum(count / len(came) for _begun, came, count in kept for moment in came if begin <= moment < end)
    measured = [one for one in kept if one[1] and begin <= one[0] < end]
    first = sorted(came[0] - begun for begun, came, _count in measured)
    gaps = [(came[-1] - came[0]) / (count - 1) for _begun, came, count in measured if count > 1]
    return {
        "tokens_per_second": round(tokens / (end - begin), 2),
        "ttft_p50_ms": round(1000 * statistics.median(first), 2) if first else -1.0,
        "ttft_p99_ms": round(1000 * first[min(len(first) - 1, int(0.99 * len(first)))], 2) if first else -1.0,
        "tpot_ms": round(1000 * statistics.median(gaps), 3) if gaps else -1.0,
        "requests": len(first),
    }


def measure(aim: Aim, streams: int, seconds: float, seed: int = 0) -> dict[str, float]:
    context = multiprocessing.get_context("fork")
    results, start = context.Queue(), time.monotonic()
    parts = [min(EACH, streams - done) for done in range(0, streams, EACH)]
    processes = [
        context.Process(
            target=work, args=(aim, part, start, seconds, seed * 100 + number, streams, results), daemon=True
        )
        for number, part in enumerate(parts)
    ]
    for process in processes:
        process.start()
    kept: list[Answer] = []
    failed: list[str] = []
    for _process in processes:
        try:
            some, bad = results.get(timeout=seconds + 330)
        except queue.Empty:
            raise OSError("a process of the load does not end") from None
        kept += some
        failed += bad
    for process in processes:
        process.join()
    found = whole(kept) if aim.requests else figures(kept, start, seconds)
    return {**found, "failed": len(failed), **({"error": failed[0]} if failed else {})}  # type: ignore[dict-item]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.load", description=__doc__)
    parser.add_argument("--url", default="")
    parser.add_argument("--socket", default="")
    parser.add_argument("--key-file", default="")
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of an answer")
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--same", action="store_true", help="each stream asks the same each time")
    parser.add_argument("--requests", type=int, default=0, help="of each stream, instead of --seconds")
    options = parser.parse_args()
    key = Path(options.key_file).read_text(encoding="utf-8").strip() if options.key_file else ""
    aim = Aim(options.url, options.socket, key, options.model, options.prompt, options.tokens,
              options.same, options.requests)  # fmt: skip
    print(json.dumps(measure(aim, options.streams, options.seconds, options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
