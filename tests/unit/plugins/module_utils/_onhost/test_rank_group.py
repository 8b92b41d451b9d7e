# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real connections over loopback, real child processes; only systemd and the engine are absent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_group, rank_link, rank_state

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, Site, alive, run, until


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


def test_a_configuration_that_is_missing_is_no_reason_to_try_again(tmp_path: Path) -> None:
    assert rank_group.main([str(tmp_path / "absent.json")]) == 78


def test_the_token_is_a_credential(tmp_path: Path) -> None:
    (tmp_path / "ray_token").write_text("secret\n")
    assert rank_group.read_rank_token({"CREDENTIALS_DIRECTORY": str(tmp_path)}) == "secret"
    (tmp_path / "ray_token").write_text("\n")
    with pytest.raises(rank_link.GroupError, match="is empty"):
        rank_group.read_rank_token({"CREDENTIALS_DIRECTORY": str(tmp_path)})
    with pytest.raises(rank_link.GroupError, match=r"sparkthor-vllm\.service"):
        rank_group.read_rank_token({"CREDENTIALS_DIRECTORY": os.devnull})


def test_systemd_hears_that_the_loop_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "s"))

    async def story() -> list[bytes]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
            door.bind(str(tmp_path / "s"))
            door.settimeout(10)
            task = asyncio.ensure_future(rank_group.tell_alive(0.01))
            heard = [await asyncio.to_thread(door.recv, 100) for _time in range(2)]
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return heard

    assert asyncio.run(story()) == [b"WATCHDOG=1"] * 2
