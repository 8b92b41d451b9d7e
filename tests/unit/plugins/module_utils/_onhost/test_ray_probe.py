# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import location, ray_probe

from tests.unit.plugins.module_utils._onhost.ray_cluster import config, http


def test_http_sends_the_token(serve):
    server = serve(http(200, "success"))
    probe = ray_probe.probe_http("x", f"http://127.0.0.1:{server.port}/a?b=c", 2, "secret-token")
    assert probe.ok
    assert probe.data == "success"
    assert server.requests[0].startswith("GET /a?b=c HTTP/1.1\r\n")
    assert "Authorization: Bearer secret-token\r\n" in server.requests[0]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (http(401, "Unauthorized: Missing authentication token"), ray_probe.UNAUTHORIZED),
        (http(403, "Forbidden: Invalid authentication token"), ray_probe.UNAUTHORIZED),
        (http(503, "no raylet"), ray_probe.ERROR),
        (b"rubbish\r\n\r\n", ray_probe.ERROR),
    ],
)
def test_http_answers(serve, answer, status):
    probe = ray_probe.probe_http("x", f"http://127.0.0.1:{serve(answer).port}/", 2)
    assert probe.status == status
    assert "secret" not in probe.detail


@pytest.mark.parametrize("drip", [0.0, 0.05], ids=["mute", "dripping"])
def test_http_has_one_deadline(serve, drip):
    server = serve(http(200, "x" * 1000) if drip else b"", drip)
    start = time.monotonic()
    probe = ray_probe.probe_http("x", f"http://127.0.0.1:{server.port}/", 0.4)
    assert probe.status == ray_probe.SLOW
    assert time.monotonic() - start < 20  # the whole answer drips for 50 s


def test_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert ray_probe.probe_tcp("gcs", "127.0.0.1", port, 1).status == ray_probe.REFUSED
    assert ray_probe.probe_http("x", f"http://127.0.0.1:{port}/", 1).status == ray_probe.REFUSED


def test_auth_switched_off_leaves_no_token_in_the_environment():
    env = ray_probe.asking_environment(config(auth=False), {"RAY_AUTH_TOKEN_PATH": "/x", "PATH": "/bin"})
    assert env["RAY_AUTH_MODE"] == "disabled"
    assert "RAY_AUTH_TOKEN_PATH" not in env
    assert env["HOME"] == "/var/lib/sparkthor"


def test_another_user_reads_the_token_from_memory():
    handle = ray_probe._handle("0123456789abcdef", os.getuid())
    try:
        assert Path(f"/proc/self/fd/{handle}").read_text() == "0123456789abcdef"
        assert os.fstat(handle).st_mode & 0o777 == 0o400
    finally:
        os.close(handle)


def test_no_other_account_unless_root():
    account = ray_probe._account(config())
    assert account is None or (os.geteuid(), account.pw_uid) == (0, 0)
    inside = location.command("container", "python")
    assert ray_probe._account(config(engine=inside, user="no-such-user-here")) is None


def test_root_runs_no_engine_where_its_user_is_gone(tmp_path, monkeypatch):
    """It would run what that user prepared: bytecode, modules of the user's own site."""
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setattr(ray_probe.os, "geteuid", lambda: 0)
    found = ray_probe.probe_engine(config(engine=[str(program)], user="no-such-user-here"), 2.0)
    assert found.status == ray_probe.ABSENT
    assert "no user no-such-user-here" in found.detail
    assert not (tmp_path / "ran").exists()


def test_tls_goes_to_the_engine_as_the_unit_has_it_or_from_roots_files(tmp_path):
    env = ray_probe.asking_environment(config(tls=True), {"RAY_TLS_SERVER_KEY": "/credentials/key"})
    assert env["RAY_USE_TLS"] == "1"
    assert env["RAY_TLS_SERVER_KEY"] == "/credentials/key"
    assert env["RAY_TLS_CA_CERT"] == "/etc/sparkthor/secrets/ray_tls.crt"
    assert "RAY_USE_TLS" not in ray_probe.asking_environment(config(), {})
    paths = {}
    for name in ("RAY_AUTH_TOKEN_PATH", "RAY_TLS_SERVER_KEY", "RAY_TLS_SERVER_CERT", "RAY_TLS_CA_CERT"):
        paths[name] = str(tmp_path / name)
        (tmp_path / name).write_text(f"of {name}")
    found = ray_probe._secrets(config(tls=True), ray_probe.asking_environment(config(tls=True), paths))
    assert found == {name: f"of {name}" for name in paths}
