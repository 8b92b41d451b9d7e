# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the page's document comes together; the rest is in tests/integration/page."""

from __future__ import annotations

import concurrent.futures
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import console_service, places

CONFIG = {
    "host": "a1",
    "groups": [
        {"name": "a", "beside": "", "head": "a1", "here": True, "hosts": ["a1"]},
        {"name": "embed", "beside": "embed", "head": "a1", "here": True, "hosts": ["a1"]},
        {"name": "b", "beside": "", "head": "b1", "here": False, "hosts": ["b1"]},
    ],
    "hosts": [{"name": "a1", "address": "10.0.0.1"}, {"name": "b1", "address": "10.0.0.2"}],
}


CHECKS = {"doctor": None, "drift": {"taken": "1970-01-01T00:00:41Z", "count": 1, "lines": ["a1: x"]}}


class Hands:
    """In the place of root's part."""

    def ask(self, what: str, **more: Any) -> Any:
        if what == "journal":
            return [(5.0, f"serving {more['group']}")]
        if what == "checks":
            return CHECKS
        told = {"jobs": [], "playbook": None, "keys": ["ci"], "blocked": ["ci"]}
        return {**told, "audit": [{"do": "stop", "who": "anna", "at": 9, "state": "done"}, "x"]}


def test_one_document_of_three_groups_and_two_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUN", "ETC", "LASTING"):
        monkeypatch.setattr(places, name, str(tmp_path))
    (tmp_path / "beside" / "embed").mkdir(parents=True)
    (tmp_path / "state.json").write_text(
        json.dumps({"version": 1, "state": "serving", "updated": 100.0, "healthy": True})
    )
    (tmp_path / "beside" / "embed" / "maintenance").write_text("stopped by anna: cables\n")
    asked: list[tuple[str, str]] = []
    pages = {
        (
            "10.0.0.1",
            "/metrics",
        ): 'sparkthor_node_uptime_seconds 7\nsparkthor_node_version{part="kernel",version="6.8"} 1\n',
        ("10.0.0.1", "/metrics/engine"): "vllm:num_requests_running 2\n",
        ("10.0.0.2", "/metrics"): 'sparkthor_serving_state{state="loading"} 1\n',
    }

    def fetch(address: str, path: str) -> str:
        asked.append((address, path))
        if address == "10.0.0.2" and path != "/metrics":
            raise ValueError("what nobody expects")
        return pages.get((address, path), "")

    collector = console_service.ConsoleCollector(CONFIG, Hands(), fetch, lambda: 101.0)  # type: ignore[arg-type]
    collector.round()
    found = collector.document
    assert [(group["name"], group["state"]) for group in found["groups"]] == [
        ("a", "serving"),
        ("embed", "stopped"),
        ("b", "loading"),
    ]
    assert found["groups"][0]["running"] == 2
    assert ("10.0.0.1", "/metrics/engine/embed") in asked
    assert [(host["name"], host["answers"]) for host in found["hosts"]] == [("a1", True), ("b1", True)]
    assert [event["text"] for event in found["events"]] == ["stop done", "serving ", "serving embed"]
    # the other host has an exporter of an earlier release, which tells no versions
    assert (found["versions"]["same"], found["versions"]["differ"]) == (["kernel 6.8"], [])
    assert found["checks"]["lines"] == [{"text": "drift.yml 1 min ago: 1 difference from the plan", "fine": False}]
    assert found["checks"]["drift"] == ["a1: x"]
    json.dumps(found, allow_nan=False)


def test_the_history_goes_on_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUN", "ETC", "LASTING"):
        monkeypatch.setattr(places, name, str(tmp_path))
    monkeypatch.setattr(console_service, "KEEP_EVERY", 0.0)
    with open(tmp_path / "history.json", "w+b", buffering=0) as file:
        now = [1000.0]

        def collector() -> console_service.ConsoleCollector:
            return console_service.ConsoleCollector(
                CONFIG,
                Hands(),  # type: ignore[arg-type]
                lambda _address, _path: "vllm:num_requests_running 2\n",
                lambda: now[0],
                file.fileno(),
            )

        first = collector()
        for _round in range(2):
            first.round()
        now[0] += 40
        second = collector()
        second.round()
        assert second.document["history"]["series"]["running/a"] == [2.0, None, None, None, 2.0]
        # what is none is begun anew, and a disk that takes nothing costs the history alone
        form = '{"step": 10.0, "slot": %s, "series": %s}'
        for text in (b"", b"{", (form % ('"x"', "{}")).encode(), (form % ("1", '{"a": 1}')).encode()):
            file.seek(0)
            file.truncate()
            file.write(text)
            third = collector()
            third.round()
            assert third.document["history"]["series"]["running/a"] == [2.0]
    third.round()


def test_a_group_beside_the_own_one_of_another_head_is_asked_for_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "ETC", str(tmp_path))
    told = 'sparkthor_serving_state{state="degraded"} 1\nsparkthor_serving_rank_alive{rank="b2"} 0\n'
    pages = {("10.0.0.2", "/metrics/group/embed"): told}
    group = {"name": "embed", "beside": "embed", "head": "b1", "here": False, "hosts": ["b1", "b2"]}
    collector = console_service.ConsoleCollector(
        {**CONFIG, "groups": [group]},
        Hands(),  # type: ignore[arg-type]
        lambda address, path: pages.get((address, path), ""),
        lambda: 101.0,
    )
    collector.round()
    (found,) = collector.document["groups"]
    assert (found["state"], found["missing"]) == ("degraded", ["b2"])


def test_hosts_differ_in_what_their_kind_and_group_have_in_common() -> None:
    def runs(**versions: str) -> str:
        return "".join(f'sparkthor_node_version{{part="{part}",version="{own}"}} 1\n' for part, own in versions.items())

    pages = {
        "a": runs(vllm="1", kernel="6.8"),
        "b": runs(sglang="5", kernel="6.9"),
        "c": runs(sglang="6", kernel="6.8"),
    }
    groups = [{"name": "x", "hosts": ["a"]}, {"name": "y", "hosts": ["b", "c"]}]
    groups += [{"name": "z", "beside": "z", "hosts": ["b"]}]
    hosts = [{"name": name, "kind": "thor" if name == "b" else "spark"} for name in pages]
    found = console_service.ConsoleCollector._versions(hosts, groups, pages)
    assert found["differ"] == ["sglang differs: b 5, c 6"]


def test_the_store_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("qwen", "qwen@6f1e", ".part"):
        (tmp_path / "models" / name).mkdir(parents=True)
    declared = tmp_path / "cluster.json"
    monkeypatch.setattr(places, "DECLARED", str(declared))
    monkeypatch.setattr(places, "ETC", str(tmp_path))

    def store() -> object:
        collector = console_service.ConsoleCollector(
            {**CONFIG, "groups": []},
            Hands(),  # type: ignore[arg-type]
            lambda _address, _path: "",
        )
        collector.round()
        return collector.document["store"]

    assert store() == []
    declared.write_text(json.dumps({"folders": {"models": str(tmp_path / "models")}}))
    assert store() == ["qwen"]
    declared.write_text(json.dumps({"folders": ["x"]}))
    assert store() == []


def test_who_only_looks_sees_no_name_of_a_key() -> None:
    one = {"name": "web", "requests": 2, "refused": 1, "tokens": 5, "limits": {"minute": {"limit": 9}}}
    done = {"do": "block", "key": "ci", "address": "192.0.2.7", "id": "0" * 8}
    document = {"keys": [one, {**one, "name": "ci"}], "hosts": [1], "jobs": [done], "events": [done]}
    assert console_service.for_right(document, "operate") == document
    seen = console_service.for_right(document, "view")
    both = {"name": "", "requests": 4, "refused": 2, "tokens": 10, "limits": {}, "known": False, "blocked": False}
    assert seen == {"keys": [both], "hosts": [1], "jobs": [{"do": "block"}], "events": [{"do": "block"}]}


def test_it_looks_seldom_while_nobody_does_and_at_once_when_somebody_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("EVERY", 0.2), ("SELDOM", 60.0), ("LOOKED_AT", 0.5)):
        monkeypatch.setattr(console_service, name, seconds)
    pace = console_service.Pace()
    rounds: list[float] = []
    came: list[bool] = []

    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            rounds.append(time.monotonic())
            came.append(pace.wait(rounds[-1]))

    thread = threading.Thread(target=look)
    thread.start()
    time.sleep(1.0)
    assert len(rounds) == 1
    # the newest round is of after the question
    asked = time.monotonic()
    pace.wanted()
    assert rounds[-1] >= asked
    assert time.monotonic() - asked < 1.0
    assert came == [True]
    # and goes on for as long as somebody looks
    for _question in range(10):
        time.sleep(0.1)
        pace.wanted()
    assert len(rounds) >= 4
    assert not any(came[1:])
    time.sleep(1.5)
    seen = len(rounds)
    time.sleep(0.5)
    assert len(rounds) == seen
    # all who come at once are answered by one round
    with concurrent.futures.ThreadPoolExecutor(8) as many:
        list(many.map(lambda _number: pace.wanted(), range(8)))
    assert len(rounds) == seen + 1
    over.set()
    pace.wanted()
    thread.join(5)
