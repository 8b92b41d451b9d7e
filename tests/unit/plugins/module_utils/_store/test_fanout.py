# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a fan-out as threads on loopback addresses, each with a folder of its own."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store import fanout
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.fanout_parts import Parts

from tests.unit.fanout_ring import FILES, PART, TOTAL, WHOLE, Ring, contents, sha


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


def test_a_stranger_is_not_even_asked(ring: Ring) -> None:
    seed = ring.begin(1, [], [2], ring.source())
    ring.listening(1)
    with socket.create_connection((ring.address(1), ring.port), source_address=("127.0.9.9", 0)) as sock:
        sock.settimeout(5)
        assert sock.recv(1) == b""
    assert list(seed.own_report()["refused"]) == ["127.0.9.9: no host of the fabric"]


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


def reading(seconds: float, until: threading.Event | None = None) -> Callable[[Parts], None]:
    """A host that reads its own files for so long, or until it is told, before it knows what it lacks."""
    told = until or threading.Event()

    def read(parts: Parts) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not told.wait(0.1):
            parts.last_step = time.monotonic()

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

    ring.begin(1, [], [2], ring.source(), patience=30)
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


FALSE = random.Random(7).randbytes(len(FILES[4]))


@pytest.mark.parametrize("size", [12345, PART])
def test_a_first_host_that_lies_about_a_content_is_named_by_everybody(ring: Ring, size: int) -> None:
    """It has another file, and tells the digests of that one's parts: each part is right, and the whole is not."""
    data, other = FILES[4][:size], FALSE[:size]
    told = [[sha(data), size, contents([other])[0][2]]]
    lie = ring.folder / "lie"
    lie.write_bytes(other)
    names = {sha(data): "tiny/model.safetensors"}
    ring.begin(1, [], [2, 3], {sha(data): str(lie)}, wanted=told)
    ring.begin(2, [1], [3], wanted=told, names=names, told_by="n1")
    ring.begin(3, [2], [], wanted=told, names=names, told_by="n1")
    for number in (2, 3):
        report = ring.end(number)
        assert report["state"] == "failed"
        assert (
            f"tiny/model.safetensors has SHA-256 {sha(other)[:12]}…, and the controller knows it as {sha(data)[:12]}…, "
            "although each of its parts is as n1 told: it was discarded. Verify the copy of n1 in full"
        ) in report["error"]
        # nothing of it looks like something that was verified, nor is taken up by the next run
        assert ring.have(number) == {}


def test_what_an_earlier_lie_left_is_no_part_of_the_next_run(ring: Ring) -> None:
    big = FILES[4]
    told = [[sha(big), len(big), contents([FALSE])[0][2]]]
    parts = Parts(str(ring.incoming(2)), PART, told)
    parts.adopt({}, [])
    for index in range(5):
        parts.store(index, FALSE[index * PART : (index + 1) * PART])
    ring.begin(1, [], [2], ring.source([big]), wanted=contents([big]))
    node = ring.begin(2, [1], [], wanted=contents([big]))
    assert ring.end(2)["state"] == "done"
    assert node.received == len(big)
    assert ring.have(2) == {sha(big): big}


@pytest.mark.parametrize(
    "report",
    [
        "[" * 50_000,
        "[1]",
        '{"n3": 5}',
        '{"n3": {"state": "won"}}',
        '{"n3": {"state": "done", "at": "now"}}',
        '{"n3": {"state": "done", "at": 1e999}}',
        '{"n3": {"state": "failed", "error": ["x"]}}',
        '{"n3": {"state": "done", "refused": [1]}}',
    ],
)
def test_a_strange_report_is_nobodys(ring: Ring, report: str) -> None:
    seed = ring.begin(1, [], [2], ring.source())
    ring.listening(1)
    speaker = ring.begin(2, [1], before=reading(60, told := threading.Event()))
    with speaker.connect(speaker.upstreams[0], 0) as sock:
        data = report.encode()
        sock.sendall(fanout.FRAME.pack(b"S", 0, len(data)) + data)
        assert sock.recv(1) == b""
    assert set(seed.all_reports()) <= {"n1", "n2"}
    told.set()
    assert ring.end(2)["state"] == "done"


def test_a_report_says_what_a_report_says_and_commands_no_terminal(ring: Ring) -> None:
    seed = ring.begin(1, [], [2], ring.source())
    entry = {"state": "failed", "at": 5, "error": "\x1b]52;c;eA==\x07\x9b31m\u202egone", "more": {"a": 1}}
    seed._take_report(json.dumps({"n2": entry, "stranger": entry, "n1": entry}).encode())
    assert set(seed.all_reports()) == {"n1", "n2"}
    assert seed.all_reports()["n2"]["error"] == "\ufffdgone"
    assert "more" not in seed.all_reports()["n2"]
    assert seed.all_reports()["n1"]["state"] != "failed"
