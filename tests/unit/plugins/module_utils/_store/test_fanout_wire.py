# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import time

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout, fanout_wire

from tests.unit.fanout_ring import FILES, WHOLE, Ring, contents, sha


def test_a_wrong_key_gets_and_gives_nothing(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "REPLACE_LIMIT", 1.0)
    seed = ring.begin(1, [], [2], ring.source(), patience=3)
    node = ring.begin(2, [1], key="22" * 32)
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "n1 (127.0.1.1) does not hold the key of this run" in report["error"]
    assert (node.received, seed.sent) == (0, 0)
    assert sha(FILES[0]) not in ring.have(2)


def test_a_peer_that_still_serves_an_earlier_run_is_waited_for(ring: Ring) -> None:
    former = ring.begin(1, [], [2], ring.source(), key="22" * 32)
    ring.listening(1)
    node = ring.begin(2, [1])
    end = time.monotonic() + 20
    while "does not hold the key" not in node.problem and time.monotonic() < end:
        time.sleep(0.01)
    assert "does not hold the key" in node.problem
    # as systemd ends it when the host begins this run
    former.error = "replaced"
    ring.threads[1].join(30)
    for listener in former.listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    ring.begin(1, [], [2], ring.source())
    assert ring.end(2)["state"] == "done"
    assert ring.have(2) == WHOLE


def test_a_client_without_the_key_is_refused_by_the_server(ring: Ring) -> None:
    seed = ring.begin(1, [], [2], ring.source())
    ring.listening(1)
    with socket.create_connection((ring.address(1), ring.port), source_address=(ring.address(2), 0)) as sock:
        sock.settimeout(5)
        sock.sendall(fanout_wire.MAGIC + fanout_wire.HELLO.pack(b"ab" * 8, b"n2", b"n" * 32))
        assert len(sock.recv(96, socket.MSG_WAITALL)) == 96
        sock.sendall(b"?" * 32)
        assert sock.recv(1) == b""
    assert list(seed.own_report()["refused"]) == ["127.0.1.2: a peer without the key of this run"]
    assert seed.sent == 0


def test_another_manifest_is_refused(ring: Ring) -> None:
    ring.begin(1, [], [2], ring.source())
    ring.begin(2, [1], wanted=contents([FILES[0], b"other"]))
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "another manifest" in report["error"]
