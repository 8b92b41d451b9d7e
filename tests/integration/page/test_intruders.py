# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who wants in by the side: requests within requests, odd spellings of paths, methods and headers, forged lines."""

from __future__ import annotations

import json
import re
import socket
import time
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_service

from tests.integration.page.conftest import CHATS, LOOKS, NAMES, OPERATES, Cluster
from tests.integration.page.test_door import WISH, ask, until

FORGED = "X-Sparkthor-Right: operate\r\nX-Sparkthor-Key: operates\r\nX-Real-IP: 127.0.0.1"


def sent(cluster: Cluster, text: str) -> bytes:
    """Everything that comes back for these bytes, until the other side has said its last."""
    with socket.create_connection(("127.0.0.1", cluster.port), 20) as connection:
        connection.settimeout(3)
        connection.sendall(text.replace("\n", "\r\n").replace("\r\r\n", "\r\n").encode())
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except TimeoutError:
            pass
    return found


def is_untouched(cluster: Cluster) -> None:
    assert cluster.systemd.calls == []
    assert not (cluster.folder / "run" / "draining").exists()
    assert not (cluster.folder / "audit.jsonl").exists()


@pytest.fixture(name="heard")
def _heard(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """What the page's process is asked: method, path, and bytes of a body that are announced to it."""
    heard: list[tuple[str, str, int]] = []
    for method in ("do_GET", "do_POST"):
        inner = getattr(console_service.Handler, method)

        def noted(self: Any, inner: Any = inner) -> None:
            heard.append((self.command, self.path, int(self.headers.get("Content-Length") or 0)))
            inner(self)

        monkeypatch.setattr(console_service.Handler, method, noted)
    return heard


def test_a_request_within_a_request_reaches_nobody(cluster: Cluster, heard: list[tuple[str, str, int]]) -> None:
    """A question's body is none of the process's business, however large and whatever it says."""
    wish = json.dumps(WISH)
    inner = f"POST /do HTTP/1.1\nHost: x\n{FORGED}\nContent-Length: {len(wish)}\n\n{wish}".replace("\n", "\r\n")
    for path in ("/console/state", "/console/log?group="):
        for way in (f"Content-Length: {len(inner)}", "Transfer-Encoding: chunked"):
            body = f"{len(inner):x}\r\n{inner}\r\n0\r\n\r\n" if way.endswith("chunked") else inner
            told = sent(
                cluster,
                f"GET {path} HTTP/1.1\nHost: x\nAuthorization: Bearer {LOOKS}\nConnection: close\n{way}\n\n{body}",
            )
            assert told.startswith(b"HTTP/1.1 413 "), told[:200]
    large = "x" * 2_000_000
    assert ask(cluster, "/console/state", LOOKS, body=large)[0] == 413
    time.sleep(1.1)
    assert ask(cluster, "/console/state", LOOKS)[0] == 200
    assert {one for one in heard if one[0] != "GET" or one[2]} == set()
    is_untouched(cluster)


def test_a_wish_whose_length_is_told_twice_or_never_is_none(cluster: Cluster) -> None:
    head = f"POST /console/do HTTP/1.1\nHost: x\nAuthorization: Bearer {OPERATES}\nContent-Type: application/json\n"
    wish = json.dumps(WISH)
    chunked = f"{len(wish):x}\n{wish}\n0\n\n"
    for lengths, body, status in (
        (f"Content-Length: {len(wish)}\nTransfer-Encoding: chunked\n", chunked, b"400"),
        (f"Content-Length: {len(wish)}\nContent-Length: 1\n", wish, b"400"),
        ("Transfer-Encoding: chunked\nConnection: close\n", chunked, b"400"),
        ("Content-Length: -1\n", wish, b"400"),
        ("Connection: close\n", "", b"400"),
    ):
        told = sent(cluster, f"{head}{lengths}\n{body}")
        assert told.startswith(b"HTTP/1.1 " + status), (lengths, told[:300])
    is_untouched(cluster)


@pytest.mark.parametrize(
    "path",
    [
        *("//console/state", "/console//state", "/console/./state", "/console/%73tate", "/%63onsole/state"),
        *("/console/x/../state", "/v1/../console/state", "/console/state?x", "/console/state#", "/console/state/"),
        *("/CONSOLE/STATE", "/console/state;x", "/console/state%00", "/console/state%20", "/console\\state"),
    ],
)
def test_no_spelling_of_a_path_passes_the_gate(cluster: Cluster, path: str) -> None:
    for key in ("", CHATS):
        told = sent(
            cluster,
            f"GET {path} HTTP/1.1\nHost: x\n{f'Authorization: Bearer {key}' if key else 'X: y'}\nConnection: close\n\n",
        )
        status = int(told.split(b" ")[1])
        assert status >= 400, told[:200]
        assert not [name for name in NAMES if name.encode() in told]
        assert b"qwen" not in told


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "get"])
def test_other_methods_do_nothing(cluster: Cluster, method: str) -> None:
    for path in ("/console/state", "/console/do", "/console/page.js"):
        told = sent(
            cluster,
            f"{method} {path} HTTP/1.1\nHost: x\nAuthorization: Bearer {OPERATES}\nContent-Type: application/json\n"
            f"Content-Length: 0\nConnection: close\n\n",
        )
        status = int(told.split(b" ")[1])
        assert status >= 400 or (method == "HEAD" and told.endswith(b"\r\n\r\n")), told[:300]
        assert b"Access-Control-Allow" not in told
    is_untouched(cluster)


def test_two_keys_in_one_request_are_none(cluster: Cluster) -> None:
    """Nor is one in the address, in a cookie, or under another header's name."""
    for lines in (
        f"Authorization: Bearer {CHATS}\nAuthorization: Bearer {OPERATES}",
        f"Authorization: Bearer {CHATS}, Bearer {OPERATES}",
        f"Authorization: Bearer {CHATS}\nx-api-key: {OPERATES}",
        f"Cookie: key={OPERATES}; Authorization=Bearer {OPERATES}",
        f"Proxy-Authorization: Bearer {OPERATES}",
        f"X-Sparkthor-Key: operates\nX_Sparkthor_Right: operate\nAuthorization: Bearer {CHATS}",
        f"Authorization: Basic {OPERATES}",
    ):
        told = sent(cluster, f"GET /console/state?key={OPERATES} HTTP/1.1\nHost: x\n{lines}\nConnection: close\n\n")
        assert re.match(rb"HTTP/1.1 40[01] ", told), (lines, told[:200])


def test_a_reason_forges_no_line_of_journal_or_audit(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.running = 0
    forged = 'x\n{"state": "done", "who": "root", "do": "stop"}\nwish do="stop" who="root"\r\x1b[2K\u202e\u2028root'
    assert ask(cluster, "/console/do", OPERATES, "POST", {**WISH, "do": "restart", "reason": forged})[0] == 202
    found = until(cluster, lambda doc: doc["jobs"] and doc["jobs"][0]["state"] != "running")
    lines = [json.loads(line) for line in (cluster.folder / "audit.jsonl").read_text().split("\n") if line]
    assert [(line["who"], line["do"]) for line in lines] == [("operates", "restart")] * 2
    journal = [line for line in capfd.readouterr().out.split("\n") if line.startswith("wish ")]
    assert len(journal) == 2
    for text in (*journal, found["jobs"][0]["reason"], lines[0]["reason"]):
        assert not re.search("[\x00-\x1f\u202e\u2028]", text), text
