# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of llama.cpp's two programs: under the name C(ggml-rpc-server) a worker, else C(llama-server).

It computes nothing. It copies what was measured of ggml-org/llama.cpp 0c1e570: the order of a start, its log, routes,
counters that move within a request and those that do not, and above all how each program ends:

* a worker killed while idle: the head goes on saying 200 to everything, and aborts (SIGABRT) with the next request
* a worker killed in a request: the client's connection is cut and the head aborts
* a worker stopped: the request hangs for ever, and the head says 200 to everything else
* a worker whose head is gone before it answers ends by SIGPIPE; one that is idle takes the next head
* a worker has one client: a second head waits for it, and has no HTTP until then
* no worker at the start: the head aborts
* a socket's file that is there already: the head ends with 1
* SIGTERM: idle at once 0; with a request no more connections and, unless it streams, the end waits for the client; a
  second one ends it at once with 1

C(LLAMA_STAND_IN_RATE) are tokens a second, C(LLAMA_STAND_IN_LOAD) seconds of a load.
"""

from __future__ import annotations

import http.server
import json
import os
import select
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Generator, Iterator
from typing import Any

PROTOCOL = "7.0.0"
VERSION = "version: 1 (0c1e570)\nbuilt with the stand-in for the lab"
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
#: options with a value, by what they are called here
_VALUES = {
    **dict.fromkeys(("-m", "--model"), "model"),
    **dict.fromkeys(("-a", "--alias"), "alias"),
    **dict.fromkeys(("-c", "--ctx-size"), "ctx"),
    **dict.fromkeys(("-np", "--parallel"), "parallel"),
    **dict.fromkeys(("-ngl", "--gpu-layers", "--n-gpu-layers"), "layers"),
    **dict.fromkeys(("-ts", "--tensor-split"), "split"),
    **dict.fromkeys(("-ctk", "--cache-type-k"), "type_k"),
    **dict.fromkeys(("-ctv", "--cache-type-v"), "type_v"),
    **dict.fromkeys(("-cram", "--cache-ram"), "cache_ram"),
    **dict.fromkeys(("-ub", "--ubatch-size"), "ubatch"),
    **dict.fromkeys(("-b", "--batch-size"), "batch"),
    **dict.fromkeys(("-t", "--threads"), "threads"),
    **dict.fromkeys(("-fit", "--fit"), "fit"),
    **dict.fromkeys(("-lv", "--verbosity", "--log-verbosity"), "verbosity"),
    **dict.fromkeys(("-fa", "--flash-attn"), "flash"),
    **{f"--{name}": name for name in ("host", "port", "rpc", "api-key", "api-key-file", "reasoning-format")},
}
_SWITCHES = {
    **{
        f"--{name}": name
        for name in ("metrics", "offline", "no-ui", "jinja", "no-warmup", "slots", "no-slots", "props")
    },
    **dict.fromkeys(("--embeddings", "--embedding"), "embeddings"),
}
_NUMBERS = ("ctx", "parallel", "layers", "cache_ram", "ubatch", "batch", "threads", "port", "verbosity")
BEGAN = time.monotonic()


def rate() -> float:
    return float(os.environ.get("LLAMA_STAND_IN_RATE", "100"))


def log(letter: str, component: str, function: str, text: str) -> None:
    passed = time.monotonic() - BEGAN
    stamp = f"{int(passed) // 60}.{int(passed) % 60:02d}.{int(passed * 1e3) % 1000:03d}.{int(passed * 1e6) % 1000:03d}"
    print(f"{stamp} {letter} {component:<4} {function[:12]:>12}: {text}", file=sys.stderr, flush=True)


def abort(text: str) -> None:
    """As ggml_abort ends: one line, and SIGABRT."""
    print(f"ggml-rpc.cpp: {text}", file=sys.stderr, flush=True)
    os.abort()


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    return data


# -- the worker --------------------------------------------------------------------------------------------------


def rpc_server(words: list[str]) -> int:
    options = {"-H": "127.0.0.1", "-p": "50052"}
    names = {"--host": "-H", "--port": "-p", "--threads": "-t", "--device": "-d"}
    rest = iter(words)
    for word in rest:
        name = names.get(word, word)
        if name in ("-H", "-p", "-t", "-d"):
            options[name] = next(rest, "")
        elif name not in ("-c", "--cache"):
            print(f"error: unknown argument: {word}", file=sys.stderr)
            return 0
    # as a program in C has it; Python would raise
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    place = (options["-H"], int(options["-p"]))
    if place[0] != "127.0.0.1":
        print(f"WARNING: Host ('{place[0]}') is != '127.0.0.1'", file=sys.stderr)
        print("         Never expose the RPC server to an open network!", file=sys.stderr)
    print(f"Starting RPC server v{PROTOCOL}\n  endpoint       : {place[0]}:{place[1]}\n  local cache    : n/a")
    print("Devices:\n  CPU: stand-in (24105 MiB, 24105 MiB free)\n  transport      : TCP", flush=True)
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(place)
        except OSError:
            print("Failed to create server socket", file=sys.stderr)
            return 1
        server.listen(1)
        while True:
            connection, _peer = server.accept()
            print("Accepted client connection", flush=True)
            with connection:
                serve_head(connection)
            print("Client connection closed", flush=True)


def serve_head(connection: socket.socket) -> None:
    """Commands of 5 bytes, a letter and the size of what follows: (H)ello, (T)ensors, (C)ompute."""
    held = bytearray()
    try:
        while True:
            letter, size = struct.unpack("<cI", read_exactly(connection, 5))
            body = read_exactly(connection, size)
            if letter == b"T":
                held += body
            if letter == b"C":
                time.sleep(0.5 / rate())
            answer = PROTOCOL.encode() if letter == b"H" else b"done"
            # the real one writes the size and then the answer: where the head is gone, the second write ends it
            connection.sendall(struct.pack("<I", len(answer)))
            time.sleep(0.001)
            connection.sendall(answer)
    except (ConnectionError, OSError):
        return


# -- the head ----------------------------------------------------------------------------------------------------


class WrongOption(Exception):
    """What llama-server says before it ends with 1."""


class Version(Exception):
    """All options before C(--version) are right."""


def parse(words: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"host": "127.0.0.1", "port": 8080, "ctx": 4096, "parallel": 4, "rpc": ""}
    if "LLAMA_ARG_RPC" in os.environ:
        found["rpc"] = os.environ["LLAMA_ARG_RPC"]
        if not found["rpc"]:
            abort("Failed to parse endpoint: ")
    rest = iter(words)
    for word in rest:
        if word == "--version":
            raise Version
        if word in _SWITCHES:
            found[_SWITCHES[word]] = True
            continue
        if word not in _VALUES:
            raise WrongOption(f"error: invalid argument: {word}")
        name, value = _VALUES[word], next(rest, None)
        if value is None:
            raise WrongOption("expected value for argument")
        if name in ("type_k", "type_v") and value not in _CACHE_TYPES:
            raise WrongOption(f"Unsupported cache type: {value}")
        if name in _NUMBERS:
            try:
                value = int(value)
            except ValueError:
                raise WrongOption(f'error while handling argument "{word}": stoi') from None
        if name == "parallel" and value == 0:
            raise WrongOption("error: invalid value for n_parallel")
        found[name] = value
        if name == "rpc":
            # the real one asks them while it reads its options, before --version
            for place in filter(None, str(value).split(",")):
                host, _colon, port = place.rpartition(":")
                try:
                    socket.create_connection((host, int(port))).close()
                except (OSError, ValueError):
                    abort(f"Failed to connect to {place}")
    return found


class Workers:
    """The connections to all workers; a step goes through each in turn."""

    def __init__(self, places: list[str]) -> None:
        self.lock = threading.Lock()
        self.connections: list[socket.socket] = []
        for place in places:
            host, _colon, port = place.rpartition(":")
            try:
                self.connections.append(socket.create_connection((host, int(port))))
            except (OSError, ValueError):
                abort(f"Failed to connect to {place}")
            version = self.ask(len(self.connections) - 1, b"H", b"").decode()
            if version != PROTOCOL:
                log("E", "rpc", "check_server", f"RPC server version mismatch: {version}")
                abort("Failed to initialize RPC")

    def ask(self, index: int, letter: bytes, body: bytes) -> bytes:
        connection = self.connections[index]
        try:
            connection.sendall(struct.pack("<cI", letter, len(body)) + body)
            (size,) = struct.unpack("<I", read_exactly(connection, 4))
            return read_exactly(connection, size)
        except OSError:
            abort("Remote RPC server crashed or returned malformed response")
            raise

    def load(self, chunk: bytes) -> None:
        for index in range(len(self.connections)):
            self.ask(index, b"T", chunk[: len(chunk) // max(len(self.connections), 1)])

    def step(self) -> None:
        with self.lock:
            for index in range(len(self.connections)):
                self.ask(index, b"C", b"")
        time.sleep(1 / rate())


class Model:
    """What the head knows of itself, and its counters."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.workers = Workers([place for place in options["rpc"].split(",") if place])
        self.ready = self.ending = False
        self.lock = threading.Condition()
        self.slots, self.running, self.deferred, self.streams = options["parallel"], 0, 0, 0
        self.decoded = self.predicted = self.prompts = 0
        self.keys = set(filter(None, [options.get("api-key")]))
        if path := options.get("api-key-file"):
            with open(path, encoding="utf-8") as file:
                self.keys |= {line.strip() for line in file if line.strip()}

    @property
    def name(self) -> str:
        return str(self.options.get("alias") or os.path.basename(self.options["model"])).partition(",")[0]

    def load(self) -> bool:
        path = str(self.options.get("model", ""))
        log("I", "srv", "load_model", f"loading model '{path}'")
        pause = float(os.environ.get("LLAMA_STAND_IN_LOAD", "0.2"))
        try:
            with open(path, "rb") as file:
                if file.read(4) != b"GGUF":
                    raise OSError("no GGUF")
                size = os.fstat(file.fileno()).st_size
                while chunk := file.read(8 << 20):
                    self.workers.load(chunk)
                    time.sleep(pause * len(chunk) / size)
        except OSError:
            log("E", "srv", "load_model", f"failed to load model, '{path}'")
            log("E", "srv", "llama_server", "exiting due to model loading error")
            return False
        context = self.options["ctx"] // self.slots
        log(
            "I",
            "srv",
            "load_model",
            f"initializing, n_slots = {self.slots}, n_ctx_slot = {context}, kv_unified = 'false'",
        )
        self.workers.step()
        return True

    def tokens(self, prompt: str, most: int, endless: bool) -> Generator[str, None, None]:
        """One word after the other, each a step of all workers; the counters of requests move at the end alone."""
        with self.lock:
            self.deferred += 1
            self.lock.wait_for(lambda: self.running < self.slots)
            self.deferred -= 1
            self.running += 1
        made = 0
        try:
            for word in words_for(prompt, endless):
                if made >= most:
                    break
                self.workers.step()
                made += 1
                self.decoded += 1
                yield word
        finally:
            with self.lock:
                self.running -= 1
                self.predicted += made
                self.prompts += len(prompt.split())
                self.lock.notify()

    def metrics(self) -> str:
        counters = {
            "prompt_tokens_total": self.prompts,
            "prompt_tokens_cached_total": 0,
            "tokens_predicted_total": self.predicted,
            "n_decode_total": self.decoded,
            "spec_decode_num_draft_tokens_total": 0,
            "spec_decode_num_accepted_tokens_total": 0,
        }
        gauges = {"requests_processing": self.running, "requests_deferred": self.deferred}
        kinds = (("counter", counters), ("gauge", gauges))
        return "".join(
            f"# TYPE llamacpp:{name} {kind}\nllamacpp:{name} {value}\n"
            for kind, held in kinds
            for name, value in held.items()
        )


def words_for(prompt: str, endless: bool) -> Iterator[str]:
    """An answer that makes sense where the collection asks for one, else words without an end."""
    known = {
        "France": "Paris",
        "17 + 25": "42",
        "1 to 8": "1, 2, 3, 4, 5, 6, 7, 8",
        "blue harbour": "blue harbour 4817",
    }
    answer = next((text for mark, text in known.items() if mark in prompt), "This answer is from a stand-in.")
    yield from (f" {word}" for word in answer.split())
    while endless:
        yield " more"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: Model

    def log_message(self, *_words: Any) -> None:
        pass

    def address_string(self) -> str:
        return "unix"

    def answer(self, code: int, body: Any, kind: str = "application/json; charset=utf-8") -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body, separators=(",", ":")).encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code: int, kind: str, text: str) -> None:
        self.answer(code, {"error": {"message": text, "type": kind, "code": code}})

    def allowed(self, path: str) -> bool:
        keys = self.model.keys
        given = self.headers.get("Authorization", "").removeprefix("Bearer "), self.headers.get("x-api-key", "")
        if path in ("/health", "/v1/health") or not keys or keys & set(given):
            return True
        self.refuse(401, "authentication_error", "Invalid API Key")
        return False

    def do_GET(self) -> None:
        model, path = self.model, self.path.partition("?")[0]
        if not self.allowed(path):
            return
        if not model.ready:
            return self.refuse(503, "unavailable_error", "Loading model")
        if path in ("/health", "/v1/health"):
            return self.answer(200, {"status": "ok"})
        if path == "/v1/models":
            return self.answer(
                200, {"object": "list", "data": [{"id": model.name, "object": "model", "owned_by": "llamacpp"}]}
            )
        if path == "/metrics" and model.options.get("metrics"):
            return self.answer(200, model.metrics(), "text/plain; version=0.0.4")
        if path == "/metrics":
            return self.refuse(
                501, "not_supported_error", "This server does not support metrics endpoint. Start it with `--metrics`"
            )
        if path == "/slots":
            return self.answer(
                200, [{"id": number, "is_processing": number < model.running} for number in range(model.slots)]
            )
        if path == "/props":
            return self.answer(200, {"total_slots": model.slots, "model_path": model.options["model"]})
        return self.refuse(404, "not_found_error", "File Not Found")

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.allowed(path):
            return
        if not self.model.ready:
            return self.refuse(503, "unavailable_error", "Loading model")
        try:
            asked = json.loads(raw)
        except ValueError as error:
            return self.refuse(400, "invalid_request_error", str(error))
        if path == "/v1/embeddings" and not self.model.options.get("embeddings"):
            return self.refuse(
                501, "not_supported_error", "This server does not support embeddings. Start it with `--embeddings`"
            )
        if path == "/v1/messages/count_tokens":
            return self.answer(200, {"input_tokens": len(said(asked).split())})
        if path not in ("/v1/completions", "/v1/chat/completions", "/v1/messages"):
            return self.refuse(404, "not_found_error", "File Not Found")
        self.generate(path, asked)

    def generate(self, path: str, asked: dict[str, Any]) -> None:
        prompt = said(asked)
        most = int(asked.get("max_tokens") or asked.get("n_predict") or 4096)
        words = self.model.tokens(prompt, most, bool(asked.get("ignore_eos")))
        if asked.get("stream") and path != "/v1/messages":
            return self.stream(path, asked, words)
        made = []
        for word in words:
            made.append(word)
            if self.client_left():
                self.close_connection = True
                return words.close()
        text, counted = "".join(made), {"completion_tokens": len(made), "prompt_tokens": len(prompt.split())}
        name = str(asked.get("model") or self.model.name)
        usage = {**counted, "total_tokens": sum(counted.values()), "prompt_tokens_details": {"cached_tokens": 0}}
        end = "length" if len(made) >= most else "stop"
        if path == "/v1/messages":
            used = {"cache_read_input_tokens": 0, "input_tokens": counted["prompt_tokens"], "output_tokens": len(made)}
            return self.answer(200, {"id": "msg", "type": "message", "role": "assistant", "model": self.model.name,
                                     "content": [{"type": "text", "text": text}], "usage": used})  # fmt: skip
        choice = {"text": text} if path == "/v1/completions" else {"message": {"role": "assistant", "content": text}}
        kind = "text_completion" if path == "/v1/completions" else "chat.completion"
        self.answer(200, {"choices": [{**choice, "index": 0, "finish_reason": end}], "created": int(time.time()),
                          "model": self.model.name or name, "object": kind, "usage": usage, "id": "cmpl"})  # fmt: skip

    def client_left(self) -> bool:
        readable, _writable, _odd = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def stream(self, path: str, asked: dict[str, Any], words: Iterator[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        made = 0
        self.model.streams += 1
        try:
            for word in words:
                made += 1
                part = {"text": word} if path == "/v1/completions" else {"delta": {"content": word}}
                self.event({"choices": [{"index": 0, "finish_reason": None, **part}], "model": self.model.name})
                if self.model.ending:
                    return
            self.event({"choices": [{"index": 0, "finish_reason": "stop", "delta": {}}], "model": self.model.name})
            if (asked.get("stream_options") or {}).get("include_usage"):
                count = len(said(asked).split())
                usage = {"completion_tokens": made, "prompt_tokens": count, "total_tokens": made + count}
                self.event({"choices": [], "usage": usage, "model": self.model.name})
            self.wfile.write(b"data: [DONE]\n\n")
        finally:
            self.model.streams -= 1

    def event(self, body: Any) -> None:
        self.wfile.write(f"data: {json.dumps(body, separators=(',', ':'))}\n\n".encode())


def said(asked: dict[str, Any]) -> str:
    if "messages" in asked:
        return " ".join(str(message.get("content")) for message in asked["messages"])
    return str(asked.get("prompt", ""))


class UnixServer(socketserver.ThreadingMixIn, http.server.HTTPServer):
    address_family = socket.AF_UNIX
    daemon_threads = True

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "unix", 0


def endpoints(options: dict[str, Any], handler: type[Handler]) -> list[tuple[str, http.server.HTTPServer]]:
    found: list[tuple[str, http.server.HTTPServer]] = []
    for place in options["host"].split(","):
        try:
            if place.endswith(".sock"):
                # one of an earlier program is in its way, though nobody listens there
                found.append((f"unix://{place}", UnixServer(place, handler)))  # type: ignore[arg-type]
            else:
                server = http.server.ThreadingHTTPServer((place, options["port"]), handler)
                found.append((f"http://{place}:{options['port']}", server))
        except OSError:
            where = f"hostname: {place}, port: {options['port']}"
            log("E", "srv", "start", f"couldn't bind HTTP server socket, {where}")
            log("E", "srv", "llama_server", "exiting due to HTTP server error")
            sys.exit(1)
    return found


def llama_server(words: list[str]) -> int:
    try:
        options = parse(words)
    except Version:
        print(VERSION, file=sys.stderr)
        return 0
    except WrongOption as error:
        print(error, file=sys.stderr)
        return 1
    model = Model(options)
    log("I", "srv", "llama_server", "initializing ...")
    log("I", "cmn", "common_param", "common_params_print_info: build 1 (0c1e570) with the stand-in")
    for index, place in enumerate(filter(None, options["rpc"].split(","))):
        log("I", "cmn", "common_param", f"  - RPC{index}    : {place} (24105 MiB, 24105 MiB free)")
    if not model.keys:
        log("W", "srv", "llama_server", "security: no API key is set and CORS allows all origins")
    places = endpoints(options, type("Own", (Handler,), {"model": model}))
    for _name, server in places:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    if not model.load():
        return 1

    def end(_number: int, _frame: Any) -> None:
        if model.ending:
            os._exit(1)
        # and nothing that takes a lock, which the main thread may hold just now
        model.ending = True

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    model.ready = True
    log("I", "srv", "llama_server", "model loaded")
    for name, _server in places:
        log("I", "srv", "llama_server", f"listening on {name}")
    while not model.ending:
        time.sleep(0.02)
    for _name, server in places:
        server.socket.close()
        server.shutdown()
    # what streams is cut; for any other request its client is waited for
    while model.running > model.streams:
        time.sleep(0.02)
    log("I", "srv", "operator()", "operator(): cleaning up before exit...")
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    program = os.path.basename(sys.argv[0])
    sys.exit(rpc_server(sys.argv[1:]) if "rpc-server" in program else llama_server(sys.argv[1:]))
