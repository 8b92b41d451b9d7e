# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who floods the page, or kills its process, keeps nobody from an answer of the model."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_service

from tests.integration.page.conftest import CHATS, LOOKS, OPERATES, Cluster

#: clients of each of three kinds, a thousand of them, and completions that are measured
CLIENTS, ASKED = 334, 100
#: bytes of all processes of nginx together while they are there
MEMORY = 250e6
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True})


def completion(cluster: Cluster) -> float:
    """Seconds of one whole answer to a client of another address than the attackers'."""
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=60, source_address=("127.0.1.1", 0))
    headers = {"Authorization": f"Bearer {CHATS}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", BODY, headers)
    answer = connection.getresponse()
    body = answer.read()
    assert (answer.status, b"[DONE]" in body) == (200, True), body
    connection.close()
    return time.monotonic() - begun


def slowest(cluster: Cluster) -> float:
    """Of the completions all but one are faster, in seconds: p99."""
    return sorted(completion(cluster) for _one in range(ASKED))[-2]


def memory(cluster: Cluster) -> int:
    """Bytes that nginx and its workers have."""
    assert cluster.nginx
    master = str(cluster.nginx.pid)
    children = Path(f"/proc/{master}/task/{master}/children").read_text(encoding="ascii").split()
    pages = [int(Path(f"/proc/{one}/statm").read_text(encoding="ascii").split()[1]) for one in (master, *children)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def head(method: str, path: str, key: str, length: int = 0) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {key}", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {length}", "", ""]).encode()


@contextlib.contextmanager
def clients(cluster: Cluster, number: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """As many connections from as many addresses, each with the same bytes sent and nothing read."""
    with contextlib.ExitStack() as stack:
        made = []
        for one in range(number):
            source = (f"127.0.{2 + one // 200}.{1 + one % 200}", 0)
            connection = socket.create_connection(("127.0.0.1", cluster.port), 30, source_address=source)
            made.append(stack.enter_context(connection))
            connection.sendall(sent)
        yield made


def test_a_thousand_slow_clients_delay_no_answer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some poll and never read, some never end their question, some hold a stream of a chat."""
    cluster.parts, cluster.pause = ["word"], 0.0
    asked: list[str] = []
    inner = console_service.Handler.do_GET
    inside = [0, 0]

    def counted(self: Any) -> None:
        asked.append(self.path)
        inside[0] += 1
        inside[1] = max(inside)
        inner(self)
        inside[0] -= 1

    monkeypatch.setattr(console_service.Handler, "do_GET", counted)
    before, small = slowest(cluster), memory(cluster)
    poll, begun = head("GET", "/console/state", LOOKS), time.monotonic()
    stream = head("POST", "/v1/chat/completions", LOOKS, len(BODY)) + BODY.encode()
    cluster.parts, cluster.pause = ["word " * 50] * 400, 1.0
    with (
        clients(cluster, CLIENTS, stream),
        clients(cluster, CLIENTS, poll),
        clients(cluster, CLIENTS, poll[:-2]),
    ):
        end = time.monotonic() + 120
        while len(cluster.asked) < ASKED + CLIENTS:
            assert time.monotonic() < end, len(cluster.asked)
            time.sleep(0.1)
        cluster.parts, cluster.pause = ["word"], 0.0
        during, large = slowest(cluster), memory(cluster)
        took = time.monotonic() - begun
    print(f"\np99 of {ASKED} completions: {before:.3f} s, with {3 * CLIENTS} slow clients {during:.3f} s")
    print(f"nginx has {large / 1e6:.0f} MB, {small / 1e6:.0f} MB before")
    assert during < 5 * before + 1.0
    assert large < MEMORY
    # each question that the page's process has at once is a thread of it
    assert 0 < inside[1] <= 16
    # however many look, the page's process is asked once a second
    assert 0 < asked.count("/state") <= took + 2


def test_a_wish_that_never_ends_reaches_nobody(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may not operate is refused before a body; who may, and sends it for ever, holds up neither page nor model."""
    cluster.parts, cluster.pause = ["word"], 0.0
    wishes: list[str] = []
    monkeypatch.setattr(console_service.Handler, "do_POST", lambda self: wishes.append(self.path))
    for key, status in (("x" * 20, 401), (CHATS, 401), (LOOKS, 403)):
        with clients(cluster, 1, head("POST", "/console/do", key, 2000)) as (connection,):
            connection.settimeout(10)
            assert connection.recv(100).startswith(b"HTTP/1.1 %d " % status), key
    before = slowest(cluster)
    with clients(cluster, CLIENTS, head("POST", "/console/do", OPERATES, 2000) + b"{") as slow:
        for connection in slow:
            connection.sendall(b" ")
        during = slowest(cluster)
        asked = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=10)
        asked.request("GET", "/console/state", headers={"Authorization": f"Bearer {LOOKS}"})
        assert asked.getresponse().status == 200
        asked.close()
    assert during < 5 * before + 0.5
    assert wishes == []


def test_a_flood_of_polls_and_logs_reaches_the_process_once_a_second(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.parts, cluster.pause = ["word"], 0.0
    asked: list[str] = []
    inner = console_service.Handler.do_GET

    def counted(self: Any) -> None:
        asked.append(self.path)
        inner(self)

    monkeypatch.setattr(console_service.Handler, "do_GET", counted)
    before, over, answers = slowest(cluster), threading.Event(), []

    def flood(path: str) -> None:
        while not over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=30)
            connection.request("GET", path, headers={"Authorization": f"Bearer {OPERATES}"})
            answers.append(connection.getresponse().status)
            connection.close()

    threads = [threading.Thread(target=flood, args=(path,)) for path in ("/console/state", "/console/log?group=") * 4]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        during = slowest(cluster)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)
    took = time.monotonic() - begun
    print(f"\n{len(answers)} answers, slowest completion {before:.3f} s, during the flood {during:.3f} s")
    # what is beyond the limits of an address is refused
    assert 200 in answers
    assert set(answers) <= {200, 429}
    assert during < 5 * before + 1.0
    for path in ("/state", "/log?group="):
        assert 0 < asked.count(path) <= took + 2, (path, took)


def test_an_address_has_the_limits_of_the_api(cluster: Cluster) -> None:
    """Of thousands of questions at once some get 429, and another address is answered meanwhile."""
    question, found = head("GET", "/console/state", LOOKS), b""
    for _connection in range(3):
        with socket.create_connection(("127.0.0.1", cluster.port), 30, source_address=("127.0.3.1", 0)) as connection:
            connection.settimeout(30)
            ended = threading.Thread(target=lambda to=connection: to.sendall(question * 900), daemon=True)
            ended.start()
            while found.count(b"HTTP/1.1 ") < 900 * (_connection + 1):
                part = connection.recv(1 << 20)
                assert part
                found += part
            ended.join(30)
    assert found.count(b"HTTP/1.1 200 ") >= 1000
    assert found.count(b"HTTP/1.1 429 ") > 0
    assert completion(cluster) < 10
    asked = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=10, source_address=("127.0.4.1", 0))
    asked.request("GET", "/console/state", headers={"Authorization": f"Bearer {LOOKS}"})
    assert asked.getresponse().status == 200
    asked.close()


def test_a_key_that_changes_the_group_reads_no_more_of_the_journal(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made-up groups are one for the cache, and what is asked for is what is kept."""
    asked: list[str] = []
    inner = console_service.Handler.do_GET

    def counted(self: Any) -> None:
        asked.append(self.path)
        inner(self)

    monkeypatch.setattr(console_service.Handler, "do_GET", counted)

    def status(query: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=30)
        connection.request("GET", f"/console/log?{query}", headers={"Authorization": f"Bearer {LOOKS}"})
        found = connection.getresponse().status
        connection.close()
        return found

    begun = time.monotonic()
    assert {status(f"group=made-up-{number}&x={number}") for number in range(200)} == {404}
    took = time.monotonic() - begun
    assert 0 < len(asked) <= took + 2
    # by another spelling the process was asked for one group and the cache kept it for another
    assert [status(query) for query in ("%67roup=nowhere", "group=&group=nowhere")] == [200, 200]
    assert {path.partition("?")[2] for path in asked} == {"group=-", "group="}


def test_without_its_process_the_page_says_so_and_the_model_answers(cluster: Cluster) -> None:
    cluster.parts, cluster.pause = ["word"], 0.0
    (cluster.folder / "console" / "console.sock").unlink()
    time.sleep(1.1)
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=30)
    connection.request("GET", "/console/state", headers={"Authorization": f"Bearer {LOOKS}"})
    answer = connection.getresponse()
    assert (answer.status, "own process is away" in answer.read().decode()) == (503, True)
    connection.close()
    assert completion(cluster) < 10
