# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a serving group shows the watchdog, in one or two processes.

``stand_in_engine.py SOCKET rank|steps FILE|loads SECONDS``

``rank`` has a second process, and answers while that one lives and runs; it hangs when it does not.
``steps`` computes one step at a time, as a GPU does: a long prompt takes the seconds in FILE, or ``wedge``; a probe
waits for the step that runs.
``loads`` computes for so long before it listens, and says nothing meanwhile.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

#: from this length on, a prompt takes its time
LONG = 100


def ranked() -> Callable[[str], None]:
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "a-rank"])

    def compute(_prompt: str) -> None:
        while rank.poll() is not None or Path(f"/proc/{rank.pid}/stat").read_text().split()[2] == "T":
            time.sleep(0.1)

    return compute


def stepped(path: str) -> Callable[[str], None]:
    gpu = threading.Lock()

    def compute(prompt: str) -> None:
        with gpu:
            if len(prompt) >= LONG:
                hold(Path(path).read_text())

    return compute


def hold(word: str) -> None:
    if word == "wedge":
        threading.Event().wait()
    end = time.monotonic() + float(word)
    while time.monotonic() < end:
        begun = time.monotonic()
        while time.monotonic() - begun < 0.005:
            pass
        time.sleep(0.095)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    compute: Callable[[str], None]
    tokens = 0


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_words: object) -> None:
        pass

    def say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.say(b"vllm:generation_tokens_total %d.0" % self.server.tokens)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.compute(asked["prompt"])
        self.server.tokens += 1
        self.say(json.dumps({"choices": [{"text": "x"}]}).encode())


def main() -> None:
    path, kind, *more = sys.argv[1:]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    if kind == "loads":
        hold(more[0])
    server = Server(path, Handler)
    server.compute = stepped(*more) if kind == "steps" else (lambda _prompt: None) if kind == "loads" else ranked()
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
