# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible, in the services that the front proxy asks:
# pylint: disable=ansible-bad-function
"""HTTP over a UNIX socket that the front proxy alone may open."""

from __future__ import annotations

import contextlib
import grp
import http.server
import os
import socketserver
from collections.abc import Mapping
from typing import Any


class FrontHandler(http.server.BaseHTTPRequestHandler):
    """Answers with a length, and says nothing in the journal."""

    server_version, sys_version = "sparkthor", ""
    #: seconds for a request that was begun
    timeout = 10

    def reply(self, status: int, body: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """The front proxy has an access log; a line for each question would bury what matters."""


class FrontSocket(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """A thread for each question; root, or whoever is of ``group``, may ask."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, path: str, group: str, handler: type[FrontHandler]) -> None:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        super().__init__(path, handler)
        os.chmod(path, 0o660)
        with contextlib.suppress(KeyError, PermissionError):
            os.chown(path, -1, grp.getgrnam(group).gr_gid)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""
