# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an engine listens, with real sockets of this host."""

from __future__ import annotations

import http.server
import socket
import threading
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import endpoint, serving


def test_a_text_is_a_path_or_a_port() -> None:
    assert endpoint.endpoint_of("/run/a:1") == endpoint.UnixEndpoint("/run/a:1")
    assert endpoint.endpoint_of("127.0.0.1:30000") == endpoint.TcpEndpoint("127.0.0.1", 30000)


def test_connections_to_a_port_are_counted_at_the_engine_s_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        assert serving.listening(place)
        server.accept()[0].close()
        with socket.create_connection(server.getsockname()) as client:
            taken, _address = server.accept()
            assert serving.connections(place) == 1
            client.close()
            taken.close()
    assert not serving.listening(place)
    assert serving.connections(place) == 0


def test_a_table_of_the_kernel_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert serving.connections("127.0.0.1:1", str(tmp_path / "absent")) is None


def test_a_port_is_asked_like_a_socket() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a 1\n")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert serving.metrics(f"127.0.0.1:{server.server_port}", 10) == "a 1\n"


def test_a_listener_is_seen_without_a_connection(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        place = endpoint.TcpEndpoint("127.0.0.1", server.getsockname()[1])
        assert place.is_open()
        assert not endpoint.TcpEndpoint("127.0.0.2", place.port).is_open()
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not place.is_open()
    assert not place.is_open(str(tmp_path / "absent"))
