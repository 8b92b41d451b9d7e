# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of C(trtllm-serve) on one host.

It computes nothing, and nobody here has run the real one. It copies what NVIDIA/TensorRT-LLM's source at 00209af1, its
issues and others' logs say of it:

* its options are click's: one that it does not know ends it with 2, an unknown name in its file with 1
* its port is bound before the load and refuses until it is over; a port that is taken ends it with 1
* no key; a request's model is not looked at, and the answer names the model's folder
* C(/health) is 200 whatever the rank does, C(/metrics) is JSON that is gone once it was read, and the page for
  Prometheus is there with C(return_perf_metrics) alone, its gauges with C(enable_iter_perf_stats)
* tokens are counted at a request's end, pages of the cache while it runs
* the rank is a process of its own: killed, it ends everything; stopped, requests hang and all pages are 200
* SIGTERM: no more connections, up to 10 s for what runs, then 143

C(TRT_STAND_IN_RATE) are tokens a second, C(TRT_STAND_IN_LOAD) seconds of a load.
"""

from __future__ import annotations

import datetime
import http.server
import json
import os
import select
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

VERSION = "1.3.0rc13"
PAGE = 32
#: seconds for what runs at a SIGTERM
GRACE = 10.0
#: options with a value, by what they are called here
_VALUES = {
    **{f"--{name}": name for name in ("host", "port", "tool_parser", "log_level", "chat_template")},
    **dict.fromkeys(("--config", "--extra_llm_api_options"), "config"),
    **dict.fromkeys(("--tensor_parallel_size", "--tp_size"), "tp"),
    **{f"--{name}": name for name in ("max_batch_size", "max_num_tokens", "max_seq_len", "reasoning_parser")},
}
_NUMBERS = ("port", "tp", "max_batch_size", "max_num_tokens", "max_seq_len")
#: what its file may hold; the real one has some hundred
_OF_FILE = frozenset(
    (
        *("model", "max_seq_len", "max_batch_size", "max_num_tokens", "return_perf_metrics", "enable_iter_perf_stats"),
        *("enable_chunked_prefill", "kv_cache_config", "cuda_graph_config", "moe_config", "print_iter_log"),
        *("disable_overlap_scheduler", "reasoning_parser", "attn_backend", "stream_interval", "dtype"),
    )
)
#: the rank: a line for each token that it is asked for
RANK = "import sys\nfor line in sys.stdin:\n    print('token', flush=True)\n"


class Ends(Exception):
    """The program ends with this status, after these words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def log(text: str, part: str = "[TRT-LLM] [I]") -> None:
    stamp = datetime.datetime.now().strftime("[%m/%d/%Y-%H:%M:%S] ") if part.startswith("[TRT-LLM]") else ""
    print(f"{stamp}{part} {text}", file=sys.stderr, flush=True)


def parse(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"host": "localhost", "port": 8000}
    rest = iter(words[1:] if words[:1] == ["serve"] else words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            if "model" in found:
                raise Ends(2, f"Error: Got unexpected extra argument ({word})")
            found["model"] = word
        elif name in _VALUES:
            key = _VALUES[name]
            text = value if equals else next(rest, None)
            if text is None:
                raise Ends(2, f"Error: Option '{name}' requires an argument.")
            if key in _NUMBERS and not text.isdigit():
                raise Ends(2, f"Error: Invalid value for '{name}': '{text}' is not a valid integer.")
            found[key] = int(text) if key in _NUMBERS else text
        else:
            raise Ends(2, f"Error: No such option: {name}")
    if "model" not in found:
        raise Ends(2, "Error: Missing argument 'MODEL'.")
    return found


def scalar(text: str) -> Any:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text.strip("'\"")


def read_file(path: str) -> dict[str, Any]:
    """Its file, as far as two levels of names and values go."""
    found: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip() for line in file if line.strip() and not line.startswith("#")]
    for line in lines:
        name, _colon, value = line.strip().partition(":")
        if line.startswith(" "):
            inner[name] = scalar(value)
        else:
            inner = {}
            found[name] = scalar(value) if value.strip() else inner
    if unknown := sorted(set(found) - _OF_FILE):
        raise Ends(
            1,
            f"pydantic_core._pydantic_core.ValidationError: 1 validation error for TorchLlmArgs\n{unknown[0]}\n"
            "  Extra inputs are not permitted [type=extra_forbidden]",
        )
    return found


class Engine:
    """What it counts, and the process that computes."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.name = (
            os.path.basename(options["model"].rstrip("/")) if os.path.isdir(options["model"]) else options["model"]
        )
        self.lock = threading.Lock()
        self.step = threading.Lock()
        self.running = self.prompts = self.tokens = self.pages = self.used = 0
        self.first_count, self.first_sum = 0, 0.0
        self.iterations: list[dict[str, Any]] = []
        self.ending = False
        self.rank = subprocess.Popen(
            [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def load(self) -> None:
        pause = float(os.environ.get("TRT_STAND_IN_LOAD", "0.2"))
        print(f"[TensorRT-LLM] TensorRT-LLM version: {VERSION}", file=sys.stderr, flush=True)
        if not os.path.isdir(self.options["model"]):
            raise Ends(1, f"OSError: {self.options['model']} is not a local folder and is not a valid model identifier")
        for percent in (0, 50, 100):
            print(
                f"Loading weights: {percent:>3}%|{'#' * (percent // 10):<10}| {percent}/100",
                file=sys.stderr,
                flush=True,
            )
            time.sleep(pause / 3)
        tokens = (self.options.get("kv_cache_config") or {}).get("max_tokens", 65536)
        part = "[TensorRT-LLM][INFO]"
        log(f"[MemUsageChange] Allocated 1.00 GiB for max tokens in paged KV cache ({tokens}).", part)
        log("Running autotuner warmup...")
        sizes = {key: self.options.get(key, 0) for key in ("max_seq_len", "max_batch_size", "max_num_tokens")}
        log("max_seq_len={}, max_num_requests={}, max_num_tokens={}".format(*sizes.values()))

    def words(self, count: int) -> Iterator[str]:
        rate, began = float(os.environ.get("TRT_STAND_IN_RATE", "100")), time.monotonic()
        assert self.rank.stdin is not None
        assert self.rank.stdout is not None
        pages = 0
        try:
            for number in range(count):
                with self.step:
                    # a rank that is stopped never answers
                    self.rank.stdin.write("next\n")
                    self.rank.stdin.flush()
                    self.rank.stdout.readline()
                with self.lock:
                    if number == 0:
                        self.first_count, self.first_sum = (
                            self.first_count + 1,
                            self.first_sum + time.monotonic() - began,
                        )
                    if number % PAGE == 0:
                        pages, self.pages, self.used = pages + 1, self.pages + 1, self.used + 1
                    self.iterations.append({"iter": len(self.iterations), "numActiveRequests": self.running})
                yield " word"
                time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))
        finally:
            with self.lock:
                self.used -= pages

    def page(self) -> str:
        label = '{engine_type="undefined",model_name="undefined"}'
        with self.lock:
            found = {
                "trtllm_prompt_tokens_total": self.prompts,
                "trtllm_generation_tokens_total": self.tokens,
                "trtllm_time_to_first_token_seconds_sum": self.first_sum,
                "trtllm_time_to_first_token_seconds_count": self.first_count,
            }
            if self.options.get("enable_iter_perf_stats"):
                found |= {
                    "trtllm_num_requests_running": self.running,
                    "trtllm_num_requests_waiting": 0,
                    "trtllm_kv_cache_utilization": self.used / 2048,
                    "trtllm_kv_cache_gen_alloc_blocks_total": self.pages,
                }
        return "".join(f"{name}{label} {float(value)}\n" for name, value in found.items())


class Handler(http.server.BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"
    #: seconds that it keeps an idle connection
    timeout = 5

    def log_message(self, format: str, *args: Any) -> None:
        print(f"INFO:     {self.client_address[0]} - {format % args}", file=sys.stderr, flush=True)

    def answer(self, status: int, body: Any, kind: str = "application/json") -> None:
        text = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        engine = self.engine
        if self.path in ("/health", "/version"):
            self.answer(200, "" if self.path == "/health" else {"version": VERSION})
        elif self.path == "/v1/models":
            self.answer(
                200, {"object": "list", "data": [{"id": engine.name, "object": "model", "owned_by": "tensorrt_llm"}]}
            )
        elif self.path == "/metrics":
            with engine.lock:
                told, engine.iterations = engine.iterations, []
            self.answer(200, told)
        elif self.path.rstrip("/") == "/prometheus/metrics" and engine.options.get("return_perf_metrics"):
            self.answer(200, engine.page(), "text/plain")
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.path not in ("/v1/completions", "/v1/chat/completions"):
            self.answer(404, {"detail": "Not Found"})
            return
        engine, chat = self.engine, self.path.endswith("chat/completions")
        prompt = len(str(asked.get("prompt") or asked.get("messages") or "").split())
        count = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        with engine.lock:
            engine.running += 1
        made: list[str] = []
        try:
            if asked.get("stream"):
                self.stream(asked, engine.words(count), made, prompt)
                return
            for word in engine.words(count):
                made.append(word)
                if self.client_left():
                    return
            text = "".join(made)
            choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            self.answer(200, {"id": "cmpl", "object": "chat.completion" if chat else "text_completion",
                              "created": int(time.time()), "model": engine.name, "usage": usage(prompt, len(made)),
                              "choices": [{"index": 0, "finish_reason": "length", **choice}]})  # fmt: skip
        finally:
            with engine.lock:
                engine.running -= 1
                engine.prompts += prompt
                engine.tokens += len(made)

    def client_left(self) -> bool:
        readable, _writable, _odd = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def stream(self, asked: dict[str, Any], words: Iterator[str], made: list[str], prompt: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        chat = self.path.endswith("chat/completions")
        for word in words:
            made.append(word)
            part = {"delta": {"content": word}} if chat else {"text": word}
            self.event({"model": self.engine.name, "choices": [{"index": 0, "finish_reason": None, **part}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            self.event({"model": self.engine.name, "choices": [], "usage": usage(prompt, len(made))})
        self.wfile.write(b"data: [DONE]\n\n")

    def event(self, body: Any) -> None:
        self.wfile.write(f"data: {json.dumps(body)}\n\n".encode())


def usage(prompt: int, made: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made}


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    allow_reuse_address = True


def serve(words: list[str]) -> None:
    options = parse(words)
    if "config" in options:
        # the file's values go before those of the command line
        options |= read_file(options["config"])
    server = Server((options["host"], options["port"]), Handler, bind_and_activate=False)
    try:
        server.server_bind()
    except OSError as error:
        raise Ends(1, f"RuntimeError: Failed to bind socket to {options['host']}:{options['port']}: {error}") from None
    engine = Engine(options)
    try:
        engine.load()
    except Ends:
        engine.rank.kill()
        raise
    Handler.engine = engine

    def end(_number: int, _frame: Any) -> None:
        engine.ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server.server_activate()
    log(f"Started server process [{os.getpid()}]", "INFO:    ")
    log("Waiting for application startup.", "INFO:    ")
    log("Application startup complete.", "INFO:    ")
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    while not engine.ending:
        if engine.rank.poll() is not None:
            print("mpirun noticed that a process exited on signal: all of them end", file=sys.stderr, flush=True)
            os._exit(1)
        time.sleep(0.02)
    server.socket.close()
    left = time.monotonic() + GRACE
    while engine.running and time.monotonic() < left:
        time.sleep(0.02)
    engine.rank.kill()
    os._exit(128 + signal.SIGTERM)


def main() -> int:
    try:
        serve(sys.argv[1:])
    except Ends as error:
        print(error, file=sys.stderr, flush=True)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
