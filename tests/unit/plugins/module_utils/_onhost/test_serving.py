# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import serving

from tests.unit import trickle
from tests.unit.plugins.module_utils.serving_head import Engine


def test_a_command_does_not_speak_to_systemd_for_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("KEPT", "yes")
    status, out, _err = serving.run(["env"], 5)
    assert status == 0
    assert {"KEPT=yes", "LC_ALL=C"} <= set(out.split())
    assert "NOTIFY_SOCKET" not in out


def test_complete_kinds(engine: Engine, tmp_path: Path) -> None:
    assert serving.complete(engine.path, "tiny", 5).ok
    assert engine.asked == [{"model": "tiny", "prompt": "1", "max_tokens": 1, "temperature": 0}]
    engine.status, engine.body = 404, {"error": {"message": "no such model"}}
    probe = serving.complete(engine.path, "tiny", 5)
    assert (probe.kind, probe.text) == ("rejected", "completion answered 404: no such model")
    engine.status, engine.body = 500, {}
    assert serving.complete(engine.path, "tiny", 5).kind == "http"
    engine.status, engine.body = 503, {"error": {"message": "Loading model"}}
    probe = serving.complete(engine.path, "tiny", 5)
    assert (probe.kind, probe.text) == ("unready", "completion answered 503: Loading model")
    engine.status, engine.body = 200, {"choices": []}
    assert serving.complete(engine.path, "tiny", 5).kind == "http"
    engine.delay = 1.0
    slow = serving.complete(engine.path, "tiny", 0.1)
    assert (slow.kind, slow.text) == ("timeout", "completion timed out after 0 s")
    assert serving.complete(str(tmp_path / "none.sock"), "tiny", 5).kind == "refused"


def test_a_pooling_model_is_asked_for_a_vector(engine: Engine) -> None:
    engine.status, engine.body = 404, {"detail": "Not Found"}
    engine.routes["/pooling"] = (200, {"data": [{"data": [0.1]}]})
    assert serving.complete(engine.path, "embedder", 5).ok
    assert engine.asked[-1] == {"model": "embedder", "input": "1"}
    engine.routes["/pooling"] = (200, {"data": []})
    assert serving.complete(engine.path, "embedder", 5).kind == "http"
    # a model that generates has no such route: the completion's own answer counts
    engine.routes["/pooling"] = (404, {"detail": "Not Found"})
    assert serving.complete(engine.path, "other", 5).text == "completion answered 404: None"
    engine.status = 500
    engine.asked.clear()
    serving.complete(engine.path, "embedder", 5)
    assert len(engine.asked) == 1


def test_starts_that_never_serve_slow_down(tmp_path: Path) -> None:
    path = str(tmp_path / "starts.json")
    assert [serving.note_start(path) for _unused in range(9)] == [0, 0, 0, 10, 20, 40, 80, 160, 300]
    (tmp_path / "starts.json").write_text("rubbish")
    assert serving.note_start(path) == 0


def test_open_connections_are_counted_from_their_first_moment(tmp_path: Path) -> None:
    path = str(tmp_path / "a socket")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        assert serving.connections(path) == 0
        client.connect(path)
        assert serving.connections(path) == 1, "not accepted yet"
        door, _address = server.accept()
        assert serving.connections(path) == 1
        door.close()
        assert serving.connections(path) == 0
    assert serving.connections(path, str(tmp_path / "absent")) is None


def test_the_engine_answers_in_time_or_not_at_all() -> None:
    """Each byte begins a socket's own limit anew: one now and then would hold the watchdog's round for ever."""
    with trickle.server(trickle.slowly(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n")) as port:
        connect = peer.tcp("127.0.0.1", port)
        began = time.monotonic()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peer, "unix", lambda _path: connect)
            assert serving.complete("engine", "tiny", 0.5).kind == "timeout"
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("text", ["[" * 100_000, '{"choices": NaN}', "[1]", '"choices"', '{"choices": "\\ud800"}'])
def test_an_answer_of_whatever_shape_is_one_that_failed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for status in (200, 500):
        monkeypatch.setattr(serving, "request", lambda *_words, status=status: (status, text))
        assert serving.complete("engine", "tiny", 5).kind == "http"
