# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The head's decisions, heard over real connections with real child processes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import life, rank_link

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, STAY, TOKEN, Site, run, until


def test_a_rank_that_comes_back_is_seen_and_not_let_in(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host)
        await site.running()
        first = site.sides["two"].instance
        await site.end("two")
        await until(lambda: "127.0.0.2" not in site.state()["ranks"])
        site.start("two")
        await until(lambda: site.state()["ranks"].get("127.0.0.2", first) != first)
        await until(lambda: any("runs without this rank" in line for line in site.said))
        assert len(site.began("two")) == 1
        assert not site.tasks["one"].done()

    run(tmp_path, story)


def test_a_rank_that_fails_ends_the_generation_with_its_reason(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("one")
        site.start("two")
        site.start("three", "echo 'OSError: /models/tiny does not appear to have a file named config.json'; exit 3")
        assert await site.tasks["one"] == 1
        assert await site.tasks["three"] == 1
        assert await site.tasks["two"] == rank_link.AGAIN

    site = run(tmp_path, story)
    [line] = [line for line in site.said if line.startswith("RuntimeError: ")]
    assert "rank on three failed" in line
    assert "config.json" in line
    assert "check vllm_serve_model" in line


def test_a_worker_that_cannot_take_part_is_asked_ever_less_often(tmp_path: Path) -> None:
    began = time.monotonic()

    async def story(site: Site) -> None:
        site.start("one")
        site.start("two")
        # nothing can be written there, as on a full disk
        site.start("three", memory_path="/dev/null/memory")
        await until(lambda: rank_link.remembered(str(tmp_path / "one.memory")) >= 6)
        assert not site.began("one")

    site = run(tmp_path, story)
    # each pause twice as long as the one before
    assert time.monotonic() - began > 0.05 * (1 + 2 + 4 + 8 + 16)
    assert any("/dev/null/memory cannot be written" in line for line in site.said)


def test_the_exit_of_the_heads_rank_is_its_own(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("two")
        site.start("three")
        site.start("one", "exit 7")
        assert await site.tasks["one"] == 7

    run(tmp_path, story)


def test_another_token_gets_nowhere(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("one")
        site.start("two")
        site.start("three", token="another-token-of-length")
        await until(lambda: any("token is not the head's" in line for line in site.said))
        await asyncio.sleep(0.3)
        assert not site.began("one")

    site = run(tmp_path, story)
    assert "three has another token; run the playbook on all hosts" in site.said
    assert not [line for line in site.said if TOKEN in line]


def test_a_stranger_is_refused_by_name(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("one")
        site.start("four", members={**HOSTS, "127.0.0.4": "four"})
        await until(lambda: any("four is not a member of the group of one" in line for line in site.said))

    run(tmp_path, story)


def test_a_lower_generation_never_wins(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        rank_link.remember(str(tmp_path / "two.memory"), 41)  # it served under another head meanwhile
        rank_link.remember(str(tmp_path / "one.memory"), 3)
        for host in HOSTS.values():
            site.start(host)
        await site.running()
        await until(lambda: site.state()["phase"] == rank_link.RUN)
        assert site.state()["generation"] == 42

    run(tmp_path, story)


def test_changed_files_of_a_worker_are_seen_on_the_head(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("a: 1\n")

    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host, inputs=[str(path)] if host == "two" else [])
        await site.running()
        assert site.state()["stale"] == {}
        path.write_text("a: 2\n")
        await until(lambda: site.state()["stale"] == {"two": [str(path)]})
        assert not site.tasks["two"].done()

    run(tmp_path, story)


def test_the_head_collects_signs_of_life_while_the_watchdog_waits_for_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "WINDOW", 0.2)
    monkeypatch.setattr(life, "_NVIDIA_SMI", ["false"])
    watchdog = tmp_path / "watchdog.json"
    busy = "echo $$ > {0}.pid; date +%s%N >> {0}.began; while :; do :; done"

    def cores(site: Site, host: str) -> float:
        return float(site.state()["signs"].get(host, {}).get("cores") or 0.0)

    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host, busy if host == "two" else STAY, watchdog_state=str(watchdog))
        await site.running()
        await until(lambda: site.state()["phase"] == rank_link.RUN)
        assert site.state()["signs"] == {}
        watchdog.write_text(json.dumps({"stall": {"overdue": True}}))
        await until(lambda: set(site.state()["signs"]) == set(HOSTS.values()))
        await until(lambda: cores(site, "two") > 0.1)
        assert (cores(site, "one"), cores(site, "three")) == (0.0, 0.0)
        os.kill(site.pid("three"), signal.SIGSTOP)
        await until(lambda: site.state()["signs"]["three"]["stopped"] is True)
        os.kill(site.pid("three"), signal.SIGCONT)
        watchdog.write_text("{}")
        await until(lambda: site.state()["signs"] == {})

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("memories", "generation"),
    [
        # two agree, however far this head is behind: it was installed anew
        ({"one": 0, "two": 5000, "three": 5000}, 5001),
        ({"one": 7000, "two": 0, "three": 0}, 7001),
        ({"one": 3, "two": 1003, "three": 0}, 1004),
    ],
)
def test_the_newest_generation_that_others_believe(tmp_path: Path, memories: dict[str, int], generation: int) -> None:
    async def story(site: Site) -> None:
        for host, number in memories.items():
            rank_link.remember(str(tmp_path / f"{host}.memory"), number)
        for host in HOSTS.values():
            site.start(host)
        await site.running()
        await until(lambda: site.state()["phase"] == rank_link.RUN)
        assert site.state()["generation"] == generation

    run(tmp_path, story)


@pytest.mark.parametrize("first", ["two", "three"])
def test_a_worker_does_not_raise_the_generation_beyond_what_others_know(tmp_path: Path, first: str) -> None:
    async def story(site: Site) -> None:
        rank_link.remember(str(tmp_path / "one.memory"), 3)
        rank_link.remember(str(tmp_path / "two.memory"), 2**40)
        last = "three" if first == "two" else "two"
        site.start("one")
        site.start(first)
        await until(lambda: len(site.sides["one"].members) == 1)
        site.start(last)
        known = f"two says that it took part in generation {2**40}, and no other host knows one above 3"
        await until(lambda: any(line.startswith(known) and "two.memory on two" not in line for line in site.said))
        await until(lambda: any(line.startswith(f"one refuses: {known}") for line in site.said))
        assert not site.began("one")
        assert rank_link.remembered(str(tmp_path / "three.memory")) == 0
        # as its owner does
        await site.end("two")
        (tmp_path / "two.memory").unlink()
        site.start("two")
        await site.running()
        await until(lambda: site.state()["phase"] == rank_link.RUN)
        assert site.state()["generation"] == 4

    run(tmp_path, story)


@pytest.mark.parametrize(
    "word",
    [
        {"state": ["running"]},
        {"state": "running", "generation": "9"},
        {"state": "running", "generation": 10**30},
        {"state": "running", "signs": [1]},
        {"state": "running", "stale": 5},
        {"state": "running", "stale": [{"a": 1}]},
    ],
)
def test_strange_words_of_a_worker_end_its_connection(tmp_path: Path, word: dict[str, object]) -> None:
    async def story(site: Site) -> None:
        site.start("one")
        await until((tmp_path / "state.json").exists)
        reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
        link = rank_link.RankLink(reader, writer, 5)
        nonce = str((await link.receive())["nonce"])
        proof = rank_link.proof(TOKEN, "worker", nonce, "1", "two", "i")
        await link.send(host="two", instance="i", nonce="1", proof=proof)
        await until(lambda: "two" in site.sides["one"].members)
        await link.send(**word)
        await until(lambda: "two" not in site.sides["one"].members)
        assert not site.tasks["one"].done()
        writer.close()

    run(tmp_path, story)
