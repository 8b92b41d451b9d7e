# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of TensorRT-LLM starts, answers and ends as the source of the real one, its issues and logs say."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[1] / "engine" / "trt_stand_in.py"
METRICS = {"return_perf_metrics": "true", "enable_iter_perf_stats": "true"}


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "did not come to be"
        time.sleep(0.02)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, folder / "tiny@1"
        self.model.mkdir()
        self.log = folder / "log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str, load: str = "0.05", **config: Any) -> subprocess.Popen[bytes]:
        file = self.folder / "trtllm.yaml"
        file.write_text("".join(f"{name}: {value}\n" for name, value in config.items()))
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(PROGRAM), "serve", str(self.model), *place, *words, "--config", str(file)],
                stdout=output,
                stderr=output,
                env={"PATH": os.environ["PATH"], "TRT_STAND_IN_LOAD": load},
            )
        self.started.append(process)
        return process

    def ready(self, **config: Any) -> subprocess.Popen[bytes]:
        process = self.start(**{**METRICS, **config})
        until(lambda: self.code("/health") == 200)
        return process

    def ask(self, path: str, body: Any = None, seconds: float = 60.0) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body else None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def code(self, path: str) -> int:
        try:
            return self.ask(path, seconds=5)[0]
        except (OSError, http.client.HTTPException):
            return 0

    def figure(self, name: str) -> float:
        lines = self.ask("/prometheus/metrics")[1].splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"trtllm_{name}{{"))

    def long_request(self, tokens: int) -> tuple[threading.Thread, list[Any]]:
        came: list[Any] = []

        def run() -> None:
            try:
                came.append(self.ask("/v1/completions", {"prompt": "a b", "max_tokens": tokens}))
            except (OSError, http.client.HTTPException) as error:
                came.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until(lambda: self.figure("num_requests_running") == 1)
        return thread, came


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for process in made.started:
        process.kill()
        process.wait()


def test_the_log_comes_in_order_and_the_port_answers_after_it(bench: Bench) -> None:
    bench.start(load="1.5", **METRICS)
    until(lambda: b"Loading weights" in bench.log.read_bytes())
    # bound, and not open yet
    assert bench.code("/health") == 0
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", bench.port))
    until(lambda: bench.code("/health") == 200)
    text = bench.log.read_text()
    words = ("version: 1.3.0rc13", "100%|", "in paged KV cache (65536)", "max_seq_len=", "Application startup complete")
    places = [text.index(word) for word in words]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("words", "config", "status", "said"),
    [
        (["--served_model_name", "a"], {}, 2, "Error: No such option: --served_model_name"),
        (["--max_batch_size", "a"], {}, 2, "Invalid value for '--max_batch_size'"),
        ([], {"flux": 1}, 1, "Extra inputs are not permitted"),
    ],
)
def test_what_it_does_not_know_ends_it(
    bench: Bench, words: list[str], config: dict[str, Any], status: int, said: str
) -> None:
    assert bench.start(*words, **config).wait(60) == status
    assert said in bench.log.read_text()


def test_a_port_that_is_taken_ends_it(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", bench.port)):
        assert bench.start().wait(60) == 1
    assert f"Failed to bind socket to 127.0.0.1:{bench.port}" in bench.log.read_text()


def test_no_name_and_no_key_is_looked_at_and_the_folder_answers(bench: Bench) -> None:
    bench.ready()
    answer = json.loads(bench.ask("/v1/chat/completions", {"model": "other", "messages": [], "max_tokens": 2})[1])
    assert (answer["model"], answer["choices"][0]["message"]["content"]) == ("tiny@1", " word word")
    assert bench.code("/v1/messages") == 404


def test_its_json_is_read_once_and_the_other_page_comes_by_its_options(bench: Bench) -> None:
    bench.ready()
    bench.ask("/v1/completions", {"prompt": "a", "max_tokens": 3})
    assert len(json.loads(bench.ask("/metrics")[1])) == 3
    assert json.loads(bench.ask("/metrics")[1]) == []
    assert bench.figure("generation_tokens_total") == 3
    bench.started[0].kill()
    bench.started[0].wait()
    bench.ready(enable_iter_perf_stats="false")
    assert "trtllm_num_requests_running" not in bench.ask("/prometheus/metrics")[1]
    bench.started[1].kill()
    bench.started[1].wait()
    bench.ready(return_perf_metrics="false")
    assert bench.code("/prometheus/metrics") == 404


def test_tokens_are_counted_at_the_end_and_pages_before(bench: Bench) -> None:
    bench.ready()
    thread, _came = bench.long_request(120)
    until(lambda: bench.figure("kv_cache_gen_alloc_blocks_total") >= 2)
    assert bench.figure("generation_tokens_total") == 0
    assert bench.figure("kv_cache_utilization") > 0
    thread.join(60)
    until(lambda: bench.figure("generation_tokens_total") == 120)


def rank_of(process: subprocess.Popen[bytes]) -> int:
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def test_a_rank_that_is_killed_ends_everything(bench: Bench) -> None:
    process = bench.ready()
    os.kill(rank_of(process), signal.SIGKILL)
    assert process.wait(60) == 1


def test_a_rank_that_is_stopped_leaves_all_pages_as_they_are(bench: Bench) -> None:
    process = bench.ready()
    thread, _came = bench.long_request(400)
    os.kill(rank_of(process), signal.SIGSTOP)
    time.sleep(0.3)
    before = bench.figure("kv_cache_gen_alloc_blocks_total")
    time.sleep(1)
    assert bench.figure("kv_cache_gen_alloc_blocks_total") == before
    assert [bench.code(path) for path in ("/health", "/metrics", "/v1/models")] == [200, 200, 200]
    assert thread.is_alive()
    os.kill(rank_of(process), signal.SIGCONT)
    thread.join(60)
    assert not thread.is_alive()


def test_sigterm_takes_no_more_and_lets_what_runs_end(bench: Bench) -> None:
    process = bench.ready()
    thread, came = bench.long_request(100)
    process.terminate()
    until(lambda: bench.code("/health") == 0)
    assert process.poll() is None
    assert process.wait(60) == 143
    thread.join(10)
    assert came[0][0] == 200
