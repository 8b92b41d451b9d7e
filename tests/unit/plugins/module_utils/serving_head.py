# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The head of a serving group: a vLLM that answers as told, a systemd that notes what it is asked, a watchdog."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import socketserver
import threading
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import watchdog_service as service


class Engine:
    """A vLLM on a UNIX socket that answers as told."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.status = 200
        self.body: Any = {"choices": [{"text": "x"}]}
        #: what a route answers instead
        self.routes: dict[str, tuple[int, Any]] = {}
        self.delay = 0.0
        #: ends the delay of those who wait
        self.released = threading.Event()
        self.metrics = 'vllm:prompt_tokens_total{engine="0"} 1.0\nvllm:num_requests_running{engine="0"} 0.0\n'
        self.asked: list[dict[str, Any]] = []
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.reply(200, engine.metrics)

            def do_POST(self) -> None:
                engine.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                engine.released.wait(engine.delay)
                status, body = engine.routes.get(self.path, (engine.status, engine.body))
                self.reply(status, json.dumps(body))

            def reply(self, status: int, text: str) -> None:
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    # no length: whoever asks reads until the connection is closed, and then nobody counts it any more
                    self.end_headers()
                    self.wfile.write(text.encode())

            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True

            def verify_request(self, request: Any, client_address: Any) -> bool:
                # who only looks whether somebody listens is done with before the next one is accepted, as in vLLM
                return bool(request.recv(1, socket.MSG_PEEK))

            def shutdown_request(self, request: Any) -> None:
                request.close()

        self.server = Server(path, Handler)


class Systemd:
    """systemctl and journalctl as far as they are asked."""

    def __init__(self) -> None:
        self.unit = {
            "LoadState": "loaded",
            "ActiveState": "active",
            "SubState": "running",
            "InvocationID": "aaa",
            "MainPID": "7",
            "Result": "success",
            "NRestarts": "0",
        }
        self.log = ["INFO Starting to load model tiny"]
        self.enabled = True
        self.calls: list[list[str]] = []

    def __call__(self, argv: list[str], seconds: float) -> tuple[int, str, str]:
        if argv[:2] == ["systemctl", "show"]:
            return 0, "".join(f"{key}={value}\n" for key, value in self.unit.items()), ""
        if argv[:2] == ["systemctl", "is-enabled"]:
            return (0, "enabled\n", "") if self.enabled else (1, "disabled\n", "")
        if argv[0] == "journalctl":
            return 0, "\n".join(json.dumps({"MESSAGE": line}) for line in self.log), ""
        self.calls.append(argv[1:])
        if "enable" in argv:
            self.enabled = True
        if "disable" in argv:
            self.enabled = False
        if "stop" in argv:
            self.unit.update(ActiveState="inactive", SubState="dead", MainPID="0")
        if "start" in argv or "restart" in argv:
            self.unit.update(ActiveState="activating", SubState="start-pre", InvocationID="bbb", MainPID="0")
        return 0, "", ""


def make_service(tmp_path: Path, config: str, systemd: Systemd, **more: Any) -> tuple[service.Service, list[str]]:
    said: list[str] = []
    watchdog = service.Service(
        json.loads(Path(config).read_text()),
        runner=systemd,
        say=said.append,
        state_path=str(tmp_path / "run/state.json"),
        metrics_path=str(tmp_path / "run/metrics.prom"),
        draining_path=str(tmp_path / "draining"),
        maintenance_paths=(str(tmp_path / "maintenance"),),
        starts_path=str(tmp_path / "starts.json"),
        **more,
    )
    return watchdog, said


def settle(one: service.Service) -> None:
    assert one._probe_thread is not None
    one._probe_thread.join(10)


def record(tmp_path: Path, invocation: str = "aaa") -> None:
    serving.record_start([str(tmp_path / "vllm.yaml")], invocation, str(tmp_path / "record.json"))
