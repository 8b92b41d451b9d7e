# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-in of llama.cpp ends as the real programs were measured to end, and counts as they count.

What is expected here is what ggml-org/llama.cpp 0c1e570 did with SmolLM2 on CPUs (scripts l1, l2, r1, r2 and r3).
"""

from __future__ import annotations

import contextlib
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

PROGRAM = Path(__file__).parents[1] / "engine" / "llama_stand_in.py"
LONG = {"prompt": "Once upon a time", "max_tokens": 100_000, "ignore_eos": True}
SHORT = {"prompt": "The capital of France is", "max_tokens": 8}
PATIENCE = 60
ASK = """
import socket, sys
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect(sys.argv[1])
    body = sys.argv[2].encode()
    asking.sendall(b"POST /v1/completions HTTP/1.1\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    asking.recv(1)
"""


def until(what: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.02)
    return found


class Unix(http.client.HTTPConnection):
    def __init__(self, path: Path, seconds: float) -> None:
        super().__init__("x", timeout=seconds)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Bench:
    """Programs of one test, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "s.sock"
        self.model = folder / "m.gguf"
        self.model.write_bytes(b"GGUF" + bytes(4096))
        self.started: list[subprocess.Popen[bytes]] = []
        for name in ("llama-server", "ggml-rpc-server"):
            (folder / name).symlink_to(PROGRAM)

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{name}{len(self.started)}.log"
        environment = {"PATH": os.environ["PATH"], "LLAMA_STAND_IN_LOAD": "0.1"}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, str(self.folder / name), *words], stdout=output, stderr=output, env=environment
            )
        process.log = log  # type: ignore[attr-defined]
        self.started.append(process)
        return process

    def worker(self) -> tuple[subprocess.Popen[bytes], str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = self.start("ggml-rpc-server", "-H", "127.0.0.1", "-p", str(port))
        until(lambda: b"transport" in process.log.read_bytes())  # type: ignore[attr-defined]
        time.sleep(0.1)
        return process, f"127.0.0.1:{port}"

    def head(self, *words: str, sock: Path | None = None) -> subprocess.Popen[bytes]:
        place = ["--host", str(sock or self.socket)]
        return self.start(
            "llama-server", "-m", str(self.model), *place, "--alias", "smol", "--metrics", "-np", "1", *words
        )

    def ready(self, *words: str) -> subprocess.Popen[bytes]:
        process = self.head(*words)
        until(lambda: self.code("/health") == 200)
        return process

    def ask(self, path: str, body: Any = None, seconds: float = PATIENCE, sock: Path | None = None) -> tuple[int, str]:
        connection = Unix(sock or self.socket, seconds)
        with contextlib.closing(connection):
            connection.request("POST" if body is not None else "GET", path, json.dumps(body) if body else None)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def code(self, path: str, **more: Any) -> int:
        try:
            return self.ask(path, **more)[0]
        except OSError:
            return 0

    def about_itself(self) -> list[int]:
        return [self.code(path) for path in ("/health", "/metrics", "/v1/models", "/slots")]

    def figure(self, name: str) -> int:
        lines = self.ask("/metrics")[1].splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"llamacpp:{name} "))

    def long_request(self, **more: Any) -> tuple[threading.Thread, list[Any]]:
        """A request under way, and what comes of it."""
        came: list[Any] = []

        def run() -> None:
            try:
                came.append(self.ask("/v1/completions", {**LONG, **more}))
            except (OSError, http.client.HTTPException) as error:
                came.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        until(lambda: self.figure("requests_processing") == 1)
        return thread, came

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return process.log.read_text()  # type: ignore[attr-defined,no-any-return]


@pytest.fixture
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    # a socket's path has 107 bytes at most
    made = Bench(tmp_path_factory.mktemp("l"))
    yield made
    for process in made.started:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def test_a_start_and_its_answers(bench: Bench) -> None:
    head = bench.head()
    seen = []
    until(lambda: seen.append(bench.code("/health")) or seen[-1] == 200)
    assert [code for code in dict.fromkeys(seen) if code] == [503, 200]
    lines = bench.log(head).splitlines()
    order = ["initializing ...", "loading model", "model loaded", f"listening on unix://{bench.socket}"]
    places = [next(number for number, line in enumerate(lines) if text in line) for text in order]
    assert places == sorted(places)
    code, text = bench.ask("/v1/completions", {**SHORT, "model": "nosuch"})
    answer = json.loads(text)
    assert (code, answer["model"], "Paris" in answer["choices"][0]["text"]) == (200, "smol", True)
    assert next(iter(answer["usage"])) == "completion_tokens"
    message = {"model": "smol", "max_tokens": 8, "messages": [{"role": "user", "content": "capital of France?"}]}
    used = json.loads(bench.ask("/v1/messages", message)[1])["usage"]
    assert next(iter(used)) == "cache_read_input_tokens"
    assert bench.code("/v1/embeddings", body={"input": "hi"}) == 501


def test_what_moves_within_a_request(bench: Bench) -> None:
    bench.ready()
    bench.ask("/v1/completions", SHORT)
    before = bench.figure("tokens_predicted_total"), bench.figure("prompt_tokens_total")
    bench.long_request()
    first = bench.figure("n_decode_total")
    until(lambda: bench.figure("n_decode_total") > first)
    assert (bench.figure("tokens_predicted_total"), bench.figure("prompt_tokens_total")) == before
    assert bench.figure("requests_processing") == 1


def test_keys_are_taken_in_both_forms(bench: Bench) -> None:
    bench.ready("--api-key", "k1")
    codes = {path: bench.code(path) for path in ("/health", "/v1/health", "/v1/models", "/metrics", "/slots")}
    assert codes == {"/health": 200, "/v1/health": 200, "/v1/models": 401, "/metrics": 401, "/slots": 401}
    for headers in ({"Authorization": "Bearer k1"}, {"x-api-key": "k1"}):
        connection = Unix(bench.socket, PATIENCE)
        connection.request("GET", "/metrics", headers=headers)
        assert connection.getresponse().status == 200


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["--nosuch", "1", "--version"], 1, "error: invalid argument: --nosuch"),
        (["-ctk", "q9", "--version"], 1, "Unsupported cache type: q9"),
        (["-c", "abc", "--version"], 1, "stoi"),
        (["-np", "0", "--version"], 1, "invalid value for n_parallel"),
        (["-c", "2048", "--version"], 0, "version: 1 (0c1e570)"),
        (["--version", "--nosuch"], 0, "version: 1 (0c1e570)"),
        (["-m", "/nonexist.gguf", "--host", "{folder}/t.sock"], 1, "exiting due to model loading error"),
    ],
)
def test_options_and_models_that_are_wrong(bench: Bench, words: list[str], code: int, text: str) -> None:
    process = bench.start("llama-server", *(word.format(folder=bench.folder) for word in words))
    assert process.wait(PATIENCE) == code
    assert text in bench.log(process)


def test_a_socket_that_is_there_is_in_the_way(bench: Bench) -> None:
    bench.ready().kill()
    second = bench.head()
    assert second.wait(PATIENCE) == 1
    assert "couldn't bind HTTP server socket" in bench.log(second)


def test_a_head_without_its_worker_aborts(bench: Bench) -> None:
    head = bench.head("--rpc", "127.0.0.1:1")
    assert head.wait(PATIENCE) == -signal.SIGABRT
    assert "Failed to connect to 127.0.0.1:1" in bench.log(head)


def test_a_worker_killed_while_idle_is_noticed_by_the_next_request(bench: Bench) -> None:
    worker, place = bench.worker()
    head = bench.ready("--rpc", place)
    assert bench.code("/v1/completions", body=SHORT) == 200
    worker.kill()
    worker.wait()
    time.sleep(0.5)
    assert head.poll() is None
    assert bench.about_itself() == [200] * 4
    with pytest.raises((OSError, http.client.HTTPException)):
        bench.ask("/v1/completions", SHORT)
    assert head.wait(PATIENCE) == -signal.SIGABRT
    assert "Remote RPC server crashed or returned malformed response" in bench.log(head)


def test_a_worker_killed_in_a_request_ends_the_head(bench: Bench) -> None:
    worker, place = bench.worker()
    head = bench.ready("--rpc", place)
    thread, came = bench.long_request()
    worker.kill()
    assert head.wait(PATIENCE) == -signal.SIGABRT
    thread.join(PATIENCE)
    assert isinstance(came[0], Exception)


def test_a_stopped_worker_hangs_the_request_and_nothing_says_so(bench: Bench) -> None:
    worker, place = bench.worker()
    bench.ready("--rpc", place)
    bench.long_request()
    worker.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    stood = bench.figure("n_decode_total")
    time.sleep(0.5)
    assert bench.about_itself() == [200] * 4
    assert (bench.figure("n_decode_total"), bench.figure("requests_processing")) == (stood, 1)
    worker.send_signal(signal.SIGCONT)
    until(lambda: bench.figure("n_decode_total") > stood)


def test_a_worker_that_answers_a_head_that_is_gone_ends(bench: Bench) -> None:
    worker, place = bench.worker()
    head = bench.ready("--rpc", place)
    bench.long_request()
    worker.send_signal(signal.SIGSTOP)
    time.sleep(0.3)
    head.kill()
    head.wait()
    worker.send_signal(signal.SIGCONT)
    assert worker.wait(PATIENCE) == -signal.SIGPIPE


def test_an_idle_worker_takes_the_next_head_and_a_second_one_waits(bench: Bench) -> None:
    worker, place = bench.worker()
    first = bench.ready("--rpc", place)
    other = bench.folder / "b.sock"
    second = bench.head("--rpc", place, sock=other)
    time.sleep(0.5)
    assert second.poll() is None
    assert bench.code("/health", sock=other) == 0
    assert bench.code("/v1/completions", body=SHORT) == 200
    first.send_signal(signal.SIGTERM)
    assert first.wait(PATIENCE) == 0
    until(lambda: bench.code("/health", sock=other) == 200)
    assert "Client connection closed" in bench.log(worker)
    worker.terminate()
    assert worker.wait(PATIENCE) == -signal.SIGTERM


def test_sigterm_waits_for_a_client_and_a_second_one_does_not(bench: Bench) -> None:
    head = bench.ready()
    bench.long_request()
    head.terminate()
    until(lambda: bench.code("/health") == 0)
    time.sleep(0.3)
    assert head.poll() is None
    head.terminate()
    assert head.wait(PATIENCE) == 1
    assert bench.socket.exists()


def test_sigterm_ends_once_the_client_has_left(bench: Bench) -> None:
    head = bench.ready()
    asking = subprocess.Popen(
        [sys.executable, "-c", ASK, str(bench.socket), json.dumps(LONG)], stdout=subprocess.DEVNULL
    )
    until(lambda: bench.figure("requests_processing") == 1)
    head.terminate()
    time.sleep(0.3)
    assert head.poll() is None
    asking.kill()
    asking.wait()
    assert head.wait(PATIENCE) == 0


def test_sigterm_cuts_a_stream(bench: Bench) -> None:
    head = bench.ready()
    _thread, _came = bench.long_request(stream=True)
    head.terminate()
    assert head.wait(PATIENCE) == 0


def test_an_empty_variable_for_workers_aborts(bench: Bench) -> None:
    done = subprocess.run(
        [sys.executable, str(bench.folder / "llama-server"), "-m", str(bench.model)],
        env={"PATH": os.environ["PATH"], "LLAMA_ARG_RPC": ""},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGABRT
