# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real connections over loopback, real child processes; only systemd and the engine are absent."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    rank_group,
    rank_head,
    rank_link,
    rank_process,
    rank_state,
    rank_worker,
)

from tests.unit.ports import free_port

TOKEN = "a-token-of-some-length"
HOSTS = {"127.0.0.1": "one", "127.0.0.2": "two", "127.0.0.3": "three"}
#: writes its process id and when it began, then stays
STAY = "echo $$ > {0}.pid; date +%s%N >> {0}.began; exec sleep 60"


class Site:
    """Hosts of one group in one process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.tasks: dict[str, asyncio.Task[int]] = {}
        self.sides: dict[str, Any] = {}
        self.said: list[str] = []

    def settings(self, host: str, script: str = STAY, **more: Any) -> rank_link.Settings:
        values = {
            "host": host,
            "head": "one",
            "head_address": "127.0.0.1",
            "port": self.port,
            "members": HOSTS,
            "command": ["sh", "-c", script.format(self.folder / host)],
            "state_path": str(self.folder / "state.json"),
            "memory_path": str(self.folder / f"{host}.memory"),
            "drop_request": "",
            "heartbeat": 0.05,
            # long enough for a busy machine; tests of silence have their own
            "silence": 5.0,
            "patience": 5.0,
            "retry": 0.05,
            "stop_patience": 1.0,
        }
        return rank_link.Settings(**{**values, **more})

    def start(self, host: str, script: str = STAY, token: str = TOKEN, **more: Any) -> Any:
        settings = self.settings(host, script, **more)
        side = (rank_head.Head if settings.is_head else rank_worker.Worker)(settings, token, self.said.append)
        self.sides[host] = side
        self.tasks[host] = asyncio.create_task(side.run())
        return side

    async def end(self, host: str) -> None:
        self.tasks[host].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.tasks[host]

    def state(self) -> dict[str, Any]:
        return json.loads((self.folder / "state.json").read_text())

    def pid(self, host: str) -> int:
        return int((self.folder / f"{host}.pid").read_text())

    def began(self, host: str) -> list[int]:
        path = self.folder / f"{host}.began"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def forked(self, host: str) -> int:
        """By the kernel's clock, in ticks: what the child says of itself depends on who is scheduled first."""
        return int(Path(f"/proc/{self.pid(host)}/stat").read_text().rsplit(")", 1)[1].split()[19])

    async def running(self) -> None:
        await until(lambda: all(self.began(host) for host in HOSTS.values()))


async def until(true: Callable[[], bool], seconds: float = 25.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "did not come to be"
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """A zombie is no process that serves."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run(folder: Path, story: Callable[[Site], Awaitable[None]]) -> Site:
    @contextlib.asynccontextmanager
    async def site() -> AsyncIterator[Site]:
        made = Site(folder)
        try:
            yield made
        finally:
            for host in list(made.tasks):
                await made.end(host)

    async def main() -> Site:
        async with site() as made:
            await asyncio.wait_for(story(made), 60)
        return made

    return asyncio.run(main())


def test_the_group_starts_when_all_are_there_and_the_head_first(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("three")
        site.start("one")
        await until(lambda: any("waiting for two" in line for line in site.said))
        assert not site.began("one")
        site.start("two")
        await site.running()
        assert site.forked("one") <= min(site.forked("two"), site.forked("three"))
        await until(lambda: site.state()["phase"] == rank_link.RUN)
        assert site.state()["generation"] == 1
        assert sorted(site.state()["ranks"]) == sorted(HOSTS)
        assert rank_state.ranks(str(tmp_path / "state.json")) == site.state()["ranks"]
        assert rank_link.remembered(str(tmp_path / "two.memory")) == 1

    run(tmp_path, story)


def test_the_end_of_the_head_ends_every_rank(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host)
        await site.running()
        pids = [site.pid(host) for host in HOSTS.values()]
        await site.end("one")
        assert [await site.tasks[host] for host in ("two", "three")] == [rank_link.AGAIN, rank_link.AGAIN]
        assert [alive(pid) for pid in pids] == [False] * 3

    run(tmp_path, story)


def test_a_new_start_of_the_head_is_a_new_generation_for_all(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host)
        await site.running()
        await site.end("one")
        site.start("one")
        for host in ("two", "three"):
            assert await site.tasks[host] == rank_link.AGAIN
            site.start(host)  # systemd
        await until(lambda: all(len(site.began(host)) == 2 for host in HOSTS.values()))
        await until(lambda: site.state()["phase"] == rank_link.RUN)
        assert site.state()["generation"] == 2

    run(tmp_path, story)


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


def test_a_head_without_the_token_is_not_obeyed(tmp_path: Path) -> None:
    async def imposter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = rank_link.Link(reader, writer, 1)
        await link.send(nonce="0")
        await link.receive()
        await link.send(proof="0" * 64)
        with contextlib.suppress(*rank_link.BROKEN):
            await link.send(phase=rank_link.PREPARE, generation=99, admitted=True)
            await link.send(phase=rank_link.RUN, generation=99, admitted=True)

    async def story(site: Site) -> None:
        server = await asyncio.start_server(imposter, "127.0.0.1", site.port)
        site.start("two")
        await until(lambda: any("does not hold this cluster's token" in line for line in site.said))
        server.close()
        assert not site.began("two")

    run(tmp_path, story)


def test_a_stranger_is_refused_by_name(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        site.start("one")
        site.start("four", members={**HOSTS, "127.0.0.4": "four"})
        await until(lambda: any("four is no member of the group of one" in line for line in site.said))

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


def test_an_older_head_is_told_why_it_is_not_obeyed(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        worker = rank_worker.Worker(site.settings("two"), TOKEN, site.said.append)
        rank_link.remember(str(tmp_path / "two.memory"), 9)
        with pytest.raises(rank_link.GroupError, match="an older head does not win"):
            await worker._obey(None, {"phase": rank_link.PREPARE, "generation": 9, "admitted": True})

    run(tmp_path, story)


def test_a_head_that_falls_silent_is_left_after_a_while(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        head = site.start("one")
        for host in ("two", "three"):
            site.start(host, silence=0.5, patience=1.0)
        await site.running()

        async def frozen(link: rank_link.Link) -> rank_head.Member:
            raise ValueError(await asyncio.sleep(60))

        # a frozen head keeps its connections open and answers nobody
        head.beat.cancel()
        head._welcome = frozen
        assert await asyncio.wait_for(site.tasks["two"], 30) == rank_link.AGAIN
        assert not alive(site.pid("two"))

    site = run(tmp_path, story)
    assert any("a rank alone serves nobody" in line for line in site.said)


def test_a_short_cut_of_the_link_ends_nothing(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host, patience=20.0)
        await site.running()
        site.sides["one"].members["two"].link.close()
        await until(lambda: site.state()["ranks"].get("127.0.0.2") == site.sides["two"].instance)
        await asyncio.sleep(0.3)
        assert not site.tasks["two"].done()
        assert alive(site.pid("two"))

    run(tmp_path, story)


def test_a_child_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $! > {0}.child; echo $$ > {0}.pid; date +%s%N >> {0}.began; wait; sleep 60"

    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host, script, stop_patience=0.3)
        await site.running()
        grandchild = int((tmp_path / "two.child").read_text())
        await site.end("two")
        await until(lambda: not alive(site.pid("two")) and not alive(grandchild))

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


def test_a_rank_that_stands_by_reads_a_new_configuration_first(tmp_path: Path) -> None:
    path = tmp_path / "vllm.yaml"
    path.write_text("a: 1\n")

    async def story(site: Site) -> None:
        site.start("one")
        site.start("two", inputs=[str(path)])
        await until(lambda: "127.0.0.2" in site.sides["one"].admitted or site.sides["one"].members != {})
        path.write_text("a: 2\n")
        assert await site.tasks["two"] == rank_link.AGAIN

    run(tmp_path, story)


def test_the_page_cache_is_asked_for_through_the_requests_folder(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        (tmp_path / "requests").mkdir()
        request, done = tmp_path / "requests" / "drop", tmp_path / "done"
        settings = site.settings("two", drop_request=str(request), drop_done=str(done), drop_patience=0.3)
        assert await rank_process.drop_caches(settings) == "sparkthor-drop-caches.service did not answer"

        async def answer() -> None:
            request.unlink()
            await until(request.exists)
            done.write_text("")

        answering = asyncio.create_task(answer())
        await asyncio.sleep(0)
        assert await rank_process.drop_caches(dataclasses.replace(settings, drop_patience=5)) == ""
        await answering

    run(tmp_path, story)


def test_old_news_of_the_head_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"updated": time.time() - 60, "ranks": {"127.0.0.1": "a"}}))
    assert rank_state.published(str(path)) == {}
    assert rank_state.ranks(str(path)) is None
    assert rank_state.ranks(str(tmp_path / "absent")) is None


def test_a_configuration_that_is_missing_is_no_reason_to_try_again(tmp_path: Path) -> None:
    assert rank_group.main([str(tmp_path / "absent.json")]) == 78


def test_the_token_is_a_credential(tmp_path: Path) -> None:
    (tmp_path / "ray_token").write_text("secret\n")
    assert rank_group.read_token({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == "secret"
    (tmp_path / "ray_token").write_text("\n")
    with pytest.raises(rank_link.GroupError, match="is empty"):
        rank_group.read_token({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    with pytest.raises(rank_link.GroupError, match=r"sparkthor-vllm\.service"):
        rank_group.read_token({"CREDENTIALS_DIRECTORY": os.devnull})
