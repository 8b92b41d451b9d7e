# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Key and certificate of Ray's nodes: always the same ones for a token, and accepted in both directions."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan import ray_tls

TOKEN = "token-0123456789abcdef"


def context(folder: Path, name: str, token: str, purpose: int) -> ssl.SSLContext:
    """As a node has it: its own key and certificate, and trust in nothing but that certificate."""
    key, certificate = ray_tls.key_and_certificate(token, ["127.0.0.2", "10.0.0.1"])
    (folder / f"{name}.key").write_text(key)
    (folder / f"{name}.crt").write_text(certificate)
    made = ssl.SSLContext(purpose)
    made.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    made.load_verify_locations(folder / f"{name}.crt")
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def shake_hands(folder: Path, client: str, server: str, address: str) -> str:
    ours, theirs = socket.socketpair()
    accepting = context(folder, "server", server, ssl.PROTOCOL_TLS_SERVER)
    calling = context(folder, "client", client, ssl.PROTOCOL_TLS_CLIENT)

    def serve() -> None:
        try:
            accepting.wrap_socket(theirs, server_side=True).sendall(b"hello")
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with calling.wrap_socket(ours, server_hostname=address) as connection:
            return connection.recv(10).decode()
    finally:
        thread.join(10)
        ours.close()
        theirs.close()


def test_nodes_of_one_token_take_each_other() -> None:
    assert ray_tls.key_and_certificate(TOKEN, ["10.0.0.1", "10.0.0.2"]) == ray_tls.key_and_certificate(
        TOKEN, ["10.0.0.2", "10.0.0.1"]
    )


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1"])
def test_both_directions(tmp_path: Path, address: str) -> None:
    assert shake_hands(tmp_path, TOKEN, TOKEN, address) == "hello"


@pytest.mark.parametrize(("client", "address"), [("token-of-another-one", "10.0.0.1"), (TOKEN, "10.0.0.9")])
def test_strangers_are_refused(tmp_path: Path, client: str, address: str) -> None:
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, client, TOKEN, address)


def test_without_cryptography_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_tls, "MISSING", ImportError("No module named 'cryptography'"))
    with pytest.raises(ray_tls.TlsError, match=r"ray_node_tls.*cryptography"):
        ray_tls.key_and_certificate(TOKEN, [])
