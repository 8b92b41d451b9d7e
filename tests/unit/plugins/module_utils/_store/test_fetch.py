# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host goes on with a download where it was, and keeps nothing that is not what the controller knows."""

from __future__ import annotations

import http.server
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fetch as _fetch
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fetch import Fetched, fetch
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import StoreError
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.store import Store, private_store
from ansible_collections.sparkthor.cluster.plugins.modules import store_fetch

from tests.unit import trickle
from tests.unit.servers import serving
from tests.unit.stores import entries, sha

DATA = bytes(range(256)) * 40


@dataclass
class Files:
    url: str = ""
    data: bytes = DATA
    #: bytes that one answer has at most, as where a line breaks
    most: int = len(DATA)
    ranges: bool = True
    status: int = 200
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def files() -> Iterator[Files]:
    found = Files()

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.asked.append(self.headers.get("Range") or "")
            begin = int((self.headers.get("Range") or "bytes=0-")[6:-1]) if found.ranges else 0
            whole = found.data[begin:]
            self.send_response(206 if begin and found.status == 200 else found.status)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole[: found.most])

        def log_message(self, *_arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    with serving(server):
        found.url = f"http://127.0.0.1:{server.server_port}/model.safetensors?key=opens-it"
        yield found


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return private_store(str(tmp_path / "models"))


def test_it_comes_whole_and_waits_for_the_commit(files: Files, store: Store) -> None:
    assert fetch(store, sha(DATA), len(DATA), files.url, 20) == Fetched(len(DATA), "")
    wanted = entries({"model.safetensors": DATA})
    plan = store.plan("tiny", wanted)
    assert plan.need == []
    store.commit("tiny", wanted, plan.wrong)
    assert Path(store.root, "tiny/model.safetensors").read_bytes() == DATA
    # and what is there is not asked for again
    assert fetch(store, sha(DATA + b"x"), len(DATA) + 1, files.url, 20).have == len(DATA)
    files.asked.clear()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_line_is_gone_on_with(files: Files, store: Store, ranges: bool) -> None:
    files.most, files.ranges = 4000, ranges
    found = fetch(store, sha(DATA), len(DATA), files.url, 20)
    assert found.have == 4000
    assert found.problem.startswith("127.0.0.1")
    files.most = len(DATA)
    assert fetch(store, sha(DATA), len(DATA), files.url, 20) == Fetched(len(DATA), "")
    assert files.asked == ["", "bytes=4000-"]
    # proved: nobody is asked
    assert fetch(store, sha(DATA), len(DATA), files.url, 20) == Fetched(len(DATA), "")
    assert len(files.asked) == 2


def test_a_full_disk_is_not_the_hubs_fault(files: Files, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, mode: str) -> IO[bytes]:
        assert mode == "ab"
        return open("/dev/full", "wb")

    monkeypatch.setattr(_fetch, "open", full, raising=False)
    # a device knows no such call
    monkeypatch.setattr(_fetch.os, "fsync", lambda _handle: None)
    with pytest.raises(OSError, match="No space left on device"):
        fetch(store, sha(DATA), len(DATA), files.url, 20)


def test_the_time_that_it_may_take(files: Files, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fetch.content, "BLOCK", 1000)
    assert fetch(store, sha(DATA), len(DATA), files.url, -1) == Fetched(0, "")
    assert fetch(store, sha(DATA), len(DATA), files.url, 20) == Fetched(len(DATA), "")


def test_who_sends_a_byte_now_and_then_gets_no_more_time(store: Store) -> None:
    """Each byte begins the limit of a connection anew; 100 of them come in ten seconds."""
    with trickle.server(trickle.slowly(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")) as port:
        found = fetch(store, sha(DATA), 100, f"http://127.0.0.1:{port}/x", 0.5)
    assert 0 < found.have < 100
    assert found.problem == ""


def test_what_is_something_else_is_discarded(files: Files, store: Store) -> None:
    files.data = DATA[:-1] + b"x"
    with pytest.raises(StoreError, match="it was discarded"):
        fetch(store, sha(DATA), len(DATA), files.url, 20)
    assert list(Path(store.incoming).iterdir()) == []


def test_who_does_not_answer_is_named_and_not_what_opens_it(files: Files, store: Store) -> None:
    files.status = 403
    found = fetch(store, sha(DATA), len(DATA), files.url, 20)
    assert found == Fetched(0, "127.0.0.1: HTTP Error 403: Forbidden")
    nobody = fetch(store, sha(DATA), len(DATA), "http://127.0.0.1:1/x?key=opens-it", 20)
    assert "refused" in nobody.problem
    assert "opens-it" not in found.problem + nobody.problem


@pytest.mark.parametrize("url", ["file:///etc/shadow", "ftp://127.0.0.1/x", "/etc/shadow"])
def test_only_the_web_is_asked(store: Store, url: str) -> None:
    with pytest.raises(StoreError, match="only http and https"):
        fetch(store, sha(DATA), len(DATA), url, 20)


def test_the_module_tells_how_far_it_is(files: Files, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(**more: Any) -> dict[str, Any]:
        given = {"root": str(tmp_path / "models"), "sha256": sha(DATA), "size": len(DATA), "url": files.url, **more}
        with patch_module_args(given), pytest.raises(SystemExit):
            store_fetch.main()
        return dict(json.loads(capsys.readouterr().out))

    found = call()
    assert (found["changed"], found["have"], found["problem"]) == (True, len(DATA), "")
    assert "opens-it" not in json.dumps(found)
    refused = call(sha256="../x")
    assert (refused["failed"], refused["msg"]) == (True, "'../x' is not a SHA-256")
