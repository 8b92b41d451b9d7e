# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._store.manifest import Entry
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._delivery import fanout as run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def item(letter: str, size: int = 10, have: int = 0) -> dict[str, Any]:
    return {"sha256": letter * 64, "size": size, "have": have}


def test_the_plan_follows_from_the_results_alone() -> None:
    hostvars = {
        "s1": {"r": {"models": {}, "need": [item("a"), item("b")]}},
        "s2": {"r": {"models": {}, "need": [item("b", have=4)]}},
        "s3": {"r": {"models": {}}},
    }
    found = run.plan(hostvars, ["s1", "s2", "s3"], "r", "s1")
    assert (found.seed, found.order) == ("s3", ["s3", "s1", "s2"])
    assert [entry["sha256"][0] for entry in found.wanted] == ["a", "b"]
    assert found.need["s3"] == []
    hostvars["s4"] = {"r": {"skipped": True}}
    assert run.plan(hostvars, ["s1", "s2", "s3", "s4"], "r", "s1").order == found.order
    with pytest.raises(run.RunError, match="no host was checked"):
        run.plan(hostvars, ["s4"], "r", "s4")


def test_contents_come_with_the_digests_of_their_parts(tmp_path: Path) -> None:
    data = b"x" * 2500
    (tmp_path / "w").write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    wanted = [{"sha256": digest, "size": 2500}]
    (found,) = run.contents([(str(tmp_path), [Entry("w", 2500, digest)])], wanted, 1000)
    assert found[:2] == [digest, 2500]
    assert found[2] == [hashlib.sha256(data[at : at + 1000]).hexdigest() for at in (0, 1000, 2000)]


def test_what_the_controller_has_not_comes_with_what_the_seed_told(tmp_path: Path) -> None:
    (tmp_path / "here").write_bytes(b"h")
    here = Entry("here", 1, hashlib.sha256(b"h").hexdigest())
    folders = [(str(tmp_path), [here, Entry("away", 9, "a" * 64)]), ("", [Entry("image.tar", 5, "b" * 64)])]
    wanted = [{"sha256": entry.sha256, "size": entry.size} for _folder, entries in folders for entry in entries]
    assert run.absent(folders, wanted) == ["a" * 64, "b" * 64]
    known: dict[str, list[str]] = {"a" * 64: ["1" * 64, "2" * 64], "b" * 64: []}
    assert run.contents(folders, wanted, 5, known) == [
        [here.sha256, 1, [here.sha256]],
        ["a" * 64, 9, known["a" * 64]],
        ["b" * 64, 5, known["b" * 64]],
    ]


def test_a_key_is_the_users_alone_and_gone_afterwards(home: Path) -> None:
    name = run.new_run()
    path = home / "cache/sparkthor/fanout" / f"{name}.key"
    assert len(run.key(name)) == 64
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    os.utime(path, (0, 0))
    other = run.new_run()
    assert not path.exists()  # a run broken off long ago
    run.forget(other)
    run.forget(other)
    assert list(path.parent.iterdir()) == []
    with pytest.raises(run.RunError):
        run.key("../../x")


def entry(state: str = "running", **values: Any) -> dict[str, Any]:
    return {"state": state, "received": 50 << 20, "want": 100 << 20, "seconds": 5.0, "error": "", **values}


@pytest.mark.parametrize(
    ("report", "text"),
    [
        ({}, "h: not heard of yet"),
        (entry(), "h: 50.0 MiB of 100.0 MiB, 10.0 MiB/s, 5 s left"),
        (entry(received=0), "h: 0 B of 100.0 MiB, 0 B/s, waiting"),
        (entry("done", received=100 << 20), "h: 100.0 MiB in 5.0 s (20.0 MiB/s)"),
        (entry("failed", error="no answer"), "h: no answer"),
    ],
)
def test_a_line_says_bytes_rate_and_time_left(report: dict[str, Any], text: str) -> None:
    assert run.line("h", report) == text


class Said(list):
    def __call__(self, text: str, newline: bool = True) -> None:
        self.append((text, newline))


def test_plain_lines_are_few() -> None:
    said = Said()
    board = run.Board(["a", "b"], False, said)
    for second in range(1, 12):
        board.show({"a": entry(received=second << 20), "b": entry()}, 100.0 + second)
    assert len(said) == 3  # both at second 6, the one that moved at second 11
    board.show({"a": entry("done"), "b": entry("done")}, 111.5, last=True)
    assert [text for text, _newline in said[-2:]] == [f"sparkthor: {run.line(host, entry('done'))}" for host in "ab"]


def test_on_a_terminal_lines_are_changed_in_place() -> None:
    said = Said()
    board = run.Board(["a", "b"], True, said)
    board.show({"a": entry()}, 1.0)
    board.show({"a": entry()}, 1.5)
    assert said[0] == ("\r\x1b[2K  " + run.line("a", entry()) + "\n\r\x1b[2K  b: not heard of yet\n", False)
    assert said[1][0].startswith("\x1b[2A\r\x1b[2K  a: ")


def test_following_ends_with_all_hosts_or_with_the_seed() -> None:
    answers = [({}, True), ({"a": entry()}, True), ({"a": entry("done"), "b": entry("failed")}, True)]
    clock = iter(range(100))
    nodes = run.follow(
        run.Board(["a", "b"], False, Said()), lambda: answers.pop(0), lambda: next(clock), lambda s: None
    )
    assert nodes["b"]["state"] == "failed"
    assert answers == []
    nodes = run.follow(run.Board(["a"], False, Said()), lambda: ({}, False), lambda: next(clock), lambda s: None)
    assert nodes == {}


def test_a_status_of_another_run_is_none() -> None:
    text = json.dumps({"run": "x", "nodes": {"a": {**entry("done"), "more": 1}}})
    assert run.read_status(text, "x")["a"].items() >= entry("done").items()
    assert "more" not in run.read_status(text, "x")["a"]
    assert run.read_status(text, "y") == {}
    assert run.read_status("cat: no such file", "x") == {}
    for strange in (
        "[" * 50_000,
        '{"run": "x", "nodes": [1]}',
        '{"run": "x", "nodes": {"a": {"state": "\\u001b[2J"}}}',
    ):
        assert run.read_status(strange, "x") == {}


def test_a_host_with_empty_parts_is_no_seed() -> None:
    """A fan-out that broke off at once has taken the disk for everything, and brought nothing."""
    hostvars = {
        "head": {"r": {"models": {}, "need": [{**item("a", 1000), "held": 1000}]}},
        "w": {"r": {"models": {}, "need": []}},
    }
    assert run.plan(hostvars, ["head", "w"], "r", "head").seed == "w"


def test_a_host_that_reads_says_so() -> None:
    assert run.line("h", entry(preparing=True)) == "h: reads what it has"


@pytest.mark.parametrize("in_place", [True, False])
def test_the_board_draws_and_hosts_do_not(in_place: bool) -> None:
    said = Said()
    board = run.Board(["a"], in_place, said)
    board.show({"a": entry("failed", error="\x1b]52;c;eA==\x07\x1b[?1049hbad\u202e\nname\x9b2J")}, 1.0, last=True)
    drawn = "\r\x1b[2K  a: bad\ufffd name\n" if in_place else "sparkthor: a: bad\ufffd name"
    assert [text for text, _newline in said] == [drawn]


DECLARED = [Entry("w", 10, "a" * 64), Entry("v", 20, "b" * 64)]


def test_what_a_host_asks_for_is_said_in_the_controllers_own_words() -> None:
    need = [{"sha256": "a" * 64, "size": 999, "have": 4, "path": "/etc/shadow"}, {"sha256": "b" * 64, "held": 7}]
    assert run.asked(need, DECLARED) == [
        {"sha256": "a" * 64, "size": 10, "have": 4},
        {"sha256": "b" * 64, "size": 20, "have": 0, "held": 7},
    ]


@pytest.mark.parametrize(
    ("need", "words"),
    [
        ([item("c")], "it asks for a content that was not declared for it"),
        ([{"size": 5}], "was not declared"),
        ([{"sha256": ["a" * 64]}], "was not declared"),
        (["a" * 64], "was not declared"),
        ({"sha256": "c" * 64}, "was not declared"),
        (7, "was not declared"),
        ([item("a", have=11)], "it says that it has more of a content than there is of it"),
        ([item("a", have=-1)], "it says that it has more of a content than there is of it"),
        ([{**item("a"), "held": "much"}], "it says that it has more of a content than there is of it"),
    ],
)
def test_a_host_gets_what_was_declared_for_it_and_nothing_else(need: Any, words: str) -> None:
    with pytest.raises(run.RunError, match=words):
        run.asked(need, DECLARED)


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"a" * 64: None},
        {"a" * 64: ["1" * 64]},
        {"a" * 64: ["1" * 64] * 3},
        {"a" * 64: ["1" * 64, "x"]},
        {"a" * 64: ["1" * 64, 7]},
    ],
)
def test_parts_are_told_as_many_as_there_are(told: Any) -> None:
    wanted = [{"sha256": "a" * 64, "size": 1500}]
    with pytest.raises(run.RunError, match=r"what it tells about the parts of a{12}… are not 2 digests"):
        run.told_parts(told, wanted, 1000)
    right = {"a" * 64: ["1" * 64, "2" * 64]}
    assert run.told_parts({**right, "b" * 64: []}, wanted, 1000) == right


def test_nothing_of_the_controllers_own_stands_for_what_a_host_has() -> None:
    told = Entry("/etc/hostname", 5, "a" * 64)
    with pytest.raises(run.RunError, match="the hosts that had it do not have it any more"):
        run.contents([("", [told])], [{"sha256": "a" * 64, "size": 5}], 1000)
