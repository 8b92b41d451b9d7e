# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Servers on real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest


class Server:
    """One canned answer per connection; ``drip`` sends it byte by byte."""

    def __init__(self, answer: bytes = b"", drip: float = 0.0) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answer, self.drip = answer, drip
        self.requests: list[str] = []
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                peer, _unused = self.socket.accept()
            except OSError:
                return
            with peer:
                self.requests.append(peer.recv(65536).decode())
                try:
                    if not self.drip:
                        peer.sendall(self.answer)
                    for byte in self.answer if self.drip else b"":
                        peer.sendall(bytes([byte]))
                        time.sleep(self.drip)
                except OSError:
                    pass
                if not self.answer:
                    peer.recv(1)  # mute until the asker gives up

    def close(self) -> None:
        # closing alone does not wake whoever waits in accept()
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def make(*args: Any, **kwargs: Any) -> Server:
        servers.append(Server(*args, **kwargs))
        return servers[-1]

    yield make
    for server in servers:
        server.close()
