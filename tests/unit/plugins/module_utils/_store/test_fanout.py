# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a fan-out as threads on loopback addresses, each with a folder of its own."""

from __future__ import annotations

import hashlib
import json
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fanout import FanoutError, Node, Parts

from tests.unit.ports import free_port

PART = 1000
FILES = [random.Random(size).randbytes(size) for size in (2500, 0, 1000, 999, 12345)]
KEY = "11" * 32


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def contents(files: list[bytes] | None = None) -> list[list[Any]]:
    return [
        [sha(data), len(data), [sha(data[start : start + PART]) for start in range(0, len(data), PART)]]
        for data in (FILES if files is None else files)
    ]


class Ring:
    """Any number of hosts on 127.0.1.N, begun in any order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.nodes: dict[int, Node] = {}
        self.threads: dict[int, threading.Thread] = {}

    def address(self, number: int) -> str:
        return f"127.0.1.{number}"

    def incoming(self, number: int) -> Path:
        path = self.folder / str(number)
        path.mkdir(exist_ok=True)
        return path

    def source(self, files: list[bytes] | None = None) -> dict[str, str]:
        folder = self.folder / "source"
        folder.mkdir(exist_ok=True)
        for data in FILES if files is None else files:
            (folder / sha(data)).write_bytes(data)
        return {path.name: str(path) for path in folder.iterdir()}

    def begin(
        self, number: int, ups: list[int], behind: list[int] | None = None, local: dict[str, str] | None = None,
        spare: list[str] | None = None, wanted: list[list[Any]] | None = None,
        before: Callable[[Parts], None] = lambda parts: None, **changes: Any,
    ) -> Node:  # fmt: skip
        parts = Parts(str(self.incoming(number)), PART, contents() if wanted is None else wanted)

        def prepare() -> None:
            before(parts)
            parts.adopt(local or {}, spare or [])

        job = {
            "run": "ab" * 8, "node": f"n{number}", "key": KEY, "port": self.port, "listen": [self.address(number)],
            "peers": [self.address(other) for other in range(1, 9)], "names": {}, "streams": 2, "patience": 20,
            "upstreams": [{"node": f"n{up}", "paths": [[self.address(number), self.address(up)]]} for up in ups],
            "behind": [f"n{other}" for other in behind or []], **changes,
        }  # fmt: skip
        node = Node(job, parts, str(self.folder / f"{number}.json"))
        self.nodes[number] = node
        self.threads[number] = threading.Thread(target=node.run, args=(prepare,), daemon=True)
        self.threads[number].start()
        return node

    def listening(self, number: int) -> None:
        end = time.monotonic() + 30
        while not self.nodes[number].listeners and time.monotonic() < end:
            time.sleep(0.01)

    def end(self, number: int, seconds: float = 60) -> dict[str, Any]:
        self.threads[number].join(seconds)
        assert not self.threads[number].is_alive(), f"n{number} did not end: {self.nodes[number].own_report()}"
        return self.nodes[number].own_report()

    def close(self) -> None:
        """On a host the process ends; here everything that waits for others is told to stop."""
        for node in self.nodes.values():
            node.error = node.error or "the test is over"
            node.finished.set()
        for thread in self.threads.values():
            thread.join()
        for node in self.nodes.values():
            for listener in node.listeners:
                # closing alone does not wake whoever waits in accept()
                listener.shutdown(socket.SHUT_RDWR)
                listener.close()

    def have(self, number: int) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.incoming(number).iterdir()}


WHOLE = {sha(data): data for data in FILES}
TOTAL = sum(len(data) for data in FILES)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    ring = Ring(tmp_path)
    yield ring
    ring.close()


def test_a_chain_brings_everything_to_all_and_the_first_knows(ring: Ring) -> None:
    # the last begins first: everyone waits for the one before
    ring.begin(3, [2, 1])
    ring.begin(2, [1], [3])
    ring.begin(1, [], [2, 3], ring.source())
    for number in (1, 2, 3):
        assert ring.end(number)["state"] == "done"
    assert ring.have(2) == ring.have(3) == WHOLE
    assert (ring.nodes[2].received, ring.nodes[3].received) == (TOTAL, TOTAL)
    # each sends it once
    assert (ring.nodes[1].sent, ring.nodes[2].sent) == (TOTAL, TOTAL)
    status = json.loads((ring.folder / "1.json").read_text())
    assert {name: entry["state"] for name, entry in status["nodes"].items()} == {
        "n1": "done",
        "n2": "done",
        "n3": "done",
    }


def test_parts_that_are_here_are_not_sent(ring: Ring) -> None:
    big = FILES[4]
    damaged = bytearray(big)
    damaged[5678] ^= 1
    place = ring.folder / "final"
    place.write_bytes(damaged)
    ring.begin(1, [], [2], ring.source())
    local = {name: path for name, path in ring.source().items() if name != sha(big)}
    node = ring.begin(2, [1], [], local, [str(place)])
    assert ring.end(2)["state"] == "done"
    # one bit of one part was wrong
    assert node.received == PART
    assert ring.have(2) == {sha(big): big}
    assert place.read_bytes() == bytes(damaged)


def test_a_later_run_goes_on_where_the_earlier_one_stopped(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(str(ring.incoming(2)), PART, contents())
    parts.adopt({}, [])
    first = parts.contents[-1].first
    for index in range(first, first + 5):
        parts.store(index, FILES[4][parts.offsets[index] : parts.offsets[index] + PART])
    assert sorted(ring.have(2)) == sorted(
        [sha(b"")] + [f"{name}.{end}" for name in WHOLE if name != sha(b"") for end in ("have", "part")]
    )
    # after a loss of power a note may speak of data that never reached the disk
    os.pwrite(parts.contents[-1].fd, b"?" * PART, parts.offsets[first])
    monkeypatch.setattr(fanout, "boot_id", lambda: "b" * 36)
    again = Parts(str(ring.incoming(2)), PART, contents())
    again.adopt({}, [])
    assert [index - first for index in range(first, again.total) if again.have[index]] == [1, 2, 3, 4]
    ring.begin(1, [], [2], ring.source())
    node = ring.begin(2, [1])
    ring.end(2)
    assert node.received == TOTAL - 4 * PART
    assert ring.have(2) == WHOLE


def test_a_wrong_key_gets_and_gives_nothing(ring: Ring) -> None:
    seed = ring.begin(1, [], [2], ring.source(), patience=3)
    node = ring.begin(2, [1], key="22" * 32)
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "n1 (127.0.1.1) does not hold the key of this run" in report["error"]
    assert (node.received, seed.sent) == (0, 0)
    assert sha(FILES[0]) not in ring.have(2)


def test_a_client_without_the_key_is_refused_by_the_server(ring: Ring) -> None:
    seed = ring.begin(1, [], [2], ring.source())
    ring.listening(1)
    with socket.create_connection((ring.address(1), ring.port), source_address=(ring.address(2), 0)) as sock:
        sock.settimeout(5)
        sock.sendall(fanout.MAGIC + fanout.HELLO.pack(b"ab" * 8, b"n2", b"n" * 32))
        assert len(sock.recv(96, socket.MSG_WAITALL)) == 96
        sock.sendall(b"?" * 32)
        assert sock.recv(1) == b""
    assert list(seed.own_report()["refused"]) == ["127.0.1.2: a peer without the key of this run"]
    assert seed.sent == 0


def test_a_stranger_is_not_even_asked(ring: Ring) -> None:
    seed = ring.begin(1, [], [2], ring.source())
    ring.listening(1)
    with socket.create_connection((ring.address(1), ring.port), source_address=("127.0.9.9", 0)) as sock:
        sock.settimeout(5)
        assert sock.recv(1) == b""
    assert list(seed.own_report()["refused"]) == ["127.0.9.9: no host of the fabric"]


def test_another_manifest_is_refused(ring: Ring) -> None:
    ring.begin(1, [], [2], ring.source())
    ring.begin(2, [1], wanted=contents([FILES[0], b"other"]))
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "another manifest" in report["error"]


def test_a_damaged_source_is_named_and_nothing_of_it_is_kept(ring: Ring) -> None:
    source = ring.source()
    with open(source[sha(FILES[4])], "r+b") as file:
        file.seek(3000)
        file.write(b"?")
    ring.begin(1, [], [2], source, patience=5)
    ring.begin(2, [1], names={sha(FILES[4]): "tiny/model.safetensors"})
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "tiny/model.safetensors arrives damaged from n1" in report["error"]
    assert sha(FILES[4]) not in ring.have(2)


def test_hosts_behind_a_lost_one_take_the_one_before_it(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "SILENCE_LIMIT", 1)
    # nothing ever listens on n2
    ring.begin(1, [], [3], ring.source())
    node = ring.begin(3, [2, 1])
    assert ring.end(3)["state"] == "done"
    assert node.own_report()["upstream"] == "n1"
    assert ring.have(3) == WHOLE


def test_giving_up_names_the_peers_and_keeps_what_came(ring: Ring) -> None:
    ring.begin(2, [1], patience=1)
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "nothing arrived for 1 s: no answer from n1 over the fabric" in report["error"]
    assert "run again" in report["error"]


def test_a_full_disk_is_a_sentence(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(FanoutError, match=r"became full .*make room and run again"):
        Parts(str(ring.incoming(2)), PART, contents()).adopt({}, [])


def test_a_manifest_whose_parts_do_not_add_up(tmp_path: Path) -> None:
    with pytest.raises(FanoutError, match="not those of 2500 bytes"):
        Parts(str(tmp_path), PART, [[sha(FILES[0]), 2500, [sha(b"")]]])


def reading(seconds: float, until: threading.Event | None = None) -> Callable[[Parts], None]:
    """A host that reads its own files for so long, or until it is told, before it knows what it lacks."""
    told = until or threading.Event()

    def read(parts: Parts) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not told.wait(0.1):
            parts.looked = time.monotonic()

    return read


def test_others_wait_for_a_host_that_still_reads_what_it_has(ring: Ring) -> None:
    """Longer than anybody's patience: the first must not leave, those behind must not give up."""
    ring.begin(1, [], [2, 3, 4], ring.source(), patience=4)
    ring.begin(2, [1], [3, 4], before=reading(6.5), patience=4)
    ring.begin(3, [2], [4], patience=4)
    ring.begin(4, [3], [], patience=4)
    time.sleep(3)
    assert ring.nodes[2].own_report()["preparing"] is True
    # the first knows of the one that reads
    assert ring.nodes[1].all_reports()["n2"]["state"] == "running"
    assert [ring.end(number)["state"] for number in (1, 2, 3, 4)] == ["done"] * 4
    assert ring.have(2) == ring.have(3) == ring.have(4) == WHOLE


def test_a_host_behind_that_reads_keeps_those_before_it(ring: Ring) -> None:
    read = threading.Event()
    ring.begin(1, [], [2, 3], ring.source(), patience=3)
    ring.begin(2, [1], [3], patience=3)
    ring.begin(3, [2], [], before=reading(60, read), patience=3)
    assert ring.nodes[2].finished.wait(60)
    time.sleep(4)
    # both have all they want, and stay
    assert ring.nodes[2].own_report()["state"] == "done"
    assert all(ring.threads[number].is_alive() for number in (1, 2))
    read.set()
    assert [ring.end(number)["state"] for number in (1, 2, 3)] == ["done"] * 3
    assert ring.have(3) == WHOLE


def test_whoever_can_takes_another_upstream_while_one_reads(ring: Ring) -> None:
    read = threading.Event()
    ring.begin(1, [], [2, 3], ring.source(), patience=3)
    ring.begin(2, [1], [3], before=reading(60, read), patience=3)
    node = ring.begin(3, [2, 1], [], patience=3)
    assert ring.end(3, 50)["state"] == "done"
    assert node.own_report()["upstream"] == "n1"
    read.set()
    assert ring.end(2)["state"] == "done"


def test_a_host_that_reads_reports_to_another_upstream_where_its_own_is_gone(
    ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fanout, "SILENCE_LIMIT", 1)
    # nothing ever listens on n2
    read = threading.Event()
    ring.begin(1, [], [3], ring.source(), patience=4)
    ring.begin(3, [2, 1], [], before=reading(60, read), patience=4)
    time.sleep(5.5)
    assert ring.threads[1].is_alive()
    read.set()
    assert ring.end(3)["state"] == "done"
    assert ring.have(3) == WHOLE


def test_a_disk_that_does_not_answer_is_no_excuse_for_ever(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "STEP_LIMIT", 1.0)
    release = threading.Event()
    ring.begin(1, [], [2, 3], ring.source(), patience=2)
    ring.begin(2, [1], [3], before=lambda parts: release.wait(30) and None, patience=2)
    ring.begin(3, [2], [], patience=2)
    report = ring.end(2)
    assert report["state"] == "failed"
    assert "does not answer for 1 s: look at its disk" in report["error"]
    assert ring.end(1)["state"] == "done"
    # the first was told
    assert ring.nodes[1].all_reports()["n2"]["state"] == "failed"
    assert ring.end(3)["state"] == "failed"
    release.set()


def test_what_goes_wrong_while_reading_is_said(ring: Ring) -> None:
    def broken(parts: Parts) -> None:
        raise ValueError("no such thing")

    ring.begin(1, [], [2], ring.source(), patience=3)
    ring.begin(2, [1], [], before=broken)
    assert ring.end(2)["error"] == "ValueError: no such thing"
    ring.end(1)
    assert ring.nodes[1].all_reports()["n2"]["error"] == "ValueError: no such thing"


def test_contents_of_no_bytes_at_all_are_there_in_the_end(ring: Ring) -> None:
    wanted = contents([b""])
    ring.begin(1, [], [2], ring.source([b""]), wanted=wanted)
    ring.begin(2, [1], [], wanted=wanted, before=reading(1))
    assert ring.end(2)["state"] == "done"
    assert ring.have(2) == {sha(b""): b""}


def test_a_full_file_that_nobody_verified_is_looked_through(ring: Ring) -> None:
    """A run over ssh that was killed before it had read what it brought."""
    big = bytearray(FILES[4])
    big[5678] ^= 1
    left = ring.incoming(2) / sha(FILES[4])
    left.write_bytes(big)
    ring.begin(1, [], [2], ring.source())
    local = {name: path for name, path in ring.source().items() if name != sha(FILES[4])}
    node = ring.begin(2, [1], [], local)
    assert ring.end(2)["state"] == "done"
    assert node.received == PART
    assert ring.have(2) == {sha(FILES[4]): FILES[4]}
    assert left.stat().st_mode & 0o777 == 0o400
    # and the next one takes it as it is
    parts = Parts(str(ring.incoming(2)), PART, contents([FILES[4]]))
    parts.adopt({}, [])
    assert parts.contents[0].path == str(left)


def test_a_part_file_that_another_run_took_away_is_a_sentence(ring: Ring) -> None:
    parts = Parts(str(ring.incoming(2)), PART, contents([FILES[2]]))
    parts.adopt({}, [])
    (ring.incoming(2) / f"{sha(FILES[2])}.part").unlink()
    with pytest.raises(FanoutError, match="No such file"):
        parts.store(0, FILES[2])
