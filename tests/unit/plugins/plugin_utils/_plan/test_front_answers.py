# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import contextlib
import http.server
import importlib.util
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ray_tls

from tests.unit.role_state import ROLES
from tests.unit.servers import serving

_SPEC = importlib.util.spec_from_file_location("front_answers", ROLES / "vllm_serve/files/front-answers.py")
assert _SPEC
assert _SPEC.loader
front_answers = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(front_answers)


class Front(http.server.BaseHTTPRequestHandler):
    """One whose model is away."""

    #: seconds for which its watchdog says nothing
    hangs = 0.0

    def do_GET(self) -> None:
        if self.path == "/health":
            time.sleep(self.hangs)
        self.send_response(503 if self.path == "/health" else 404)
        self.end_headers()
        self.wfile.write(b"absent\n")

    def log_message(self, *_arguments: object) -> None:
        pass


@contextlib.contextmanager
def front(folder: Path | None = None) -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front)
    if folder:
        key, certificate = ray_tls.key_and_certificate("t" * 20, ["127.0.0.1"])
        (folder / "both.pem").write_text(key + certificate, encoding="utf-8")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "both.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield server.server_address[1]


def test_a_front_proxy_without_its_model_answers() -> None:
    with front() as port:
        assert front_answers.main([str(port)]) == 0
    assert front_answers.main([str(port)]) == 1


def test_a_watchdog_that_hangs_moves_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Front, "hangs", 2.0)
    with front() as port:
        assert front_answers.answers(port, tls=False, seconds=1.0)
    # asked each second, so that its question is not in the access log
    template = (ROLES / "vllm_serve/templates/nginx.conf.j2").read_text(encoding="utf-8")
    assert f"    {front_answers.QUESTION.split()[1].decode()} 0;\n" in template


def test_one_with_a_certificate_of_its_own_answers(tmp_path: Path) -> None:
    with front(tmp_path) as port:
        assert front_answers.main([str(port), "tls"]) == 0
        assert front_answers.main([str(port)]) == 1


def test_one_that_says_nothing_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not front_answers.answers(silent.getsockname()[1], tls=False, seconds=0.1)


@pytest.mark.parametrize("arguments", [[], ["x"], ["1", "off"]])
def test_a_wrong_call_is_told_how(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert front_answers.main(arguments) == 2
    assert "usage: front-answers PORT [tls]" in capsys.readouterr().err
