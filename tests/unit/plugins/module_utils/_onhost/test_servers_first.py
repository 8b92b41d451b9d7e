# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group whose workers serve the head: real connections and processes, llama.cpp's stand-in on three addresses."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_link, serving

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, STAY, Site, alive, run, until
from tests.unit.plugins.module_utils._onhost.server_site import (
    WORKERS,
    Engines,
    a_worker_is_killed,
    a_worker_stops_in_a_request,
    watched,
)


def test_the_head_comes_when_all_servers_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        engines.start("one")
        engines.start("two")
        late = "sleep 1; exec {} {} -H {} -p {}".format(
            sys.executable, engines.folder / "ggml-rpc-server", WORKERS["three"], engines.port
        )
        engines.start("three", command=["sh", "-c", late])
        await until(lambda: engines.pid("three") > 0)
        # a worker whose server does not listen yet has not begun
        await until(lambda: engines.site.sides["two"].state == rank_link.RUNNING)
        assert engines.pid("one") == 0
        await engines.serves()
        assert site.state()["phase"] == rank_link.RUN
        assert not site.sides["one"].failure

    run(tmp_path, story)


@pytest.mark.parametrize("host", WORKERS)
def test_a_worker_that_is_killed_ends_the_generation_and_all_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """The engine itself would go on saying that all is well until the next request."""

    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        for name in HOSTS.values():
            engines.start(name)
        await engines.serves()
        pids = [engines.pid(name) for name in HOSTS.values()]
        os.kill(engines.pid(host), signal.SIGKILL)
        assert await site.tasks["one"] == 1
        assert f"rank on {host} failed" in site.sides["one"].failure
        for name in WORKERS:
            await site.tasks[name]
        assert [alive(pid) for pid in pids] == [False] * 3
        # a new generation has new servers
        for name in HOSTS.values():
            engines.start(name)
        await engines.serves()
        assert not {engines.pid(name) for name in HOSTS.values()} & set(pids)
        assert site.state()["generation"] == 2

    run(tmp_path, story)


def test_the_end_of_the_head_ends_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        for name in HOSTS.values():
            engines.start(name)
        await engines.serves()
        pids = [engines.pid(name) for name in WORKERS]
        os.kill(engines.pid("one"), signal.SIGKILL)
        await site.tasks["one"]
        assert [await site.tasks[name] for name in WORKERS] == [rank_link.AGAIN] * 2
        assert [alive(pid) for pid in pids] == [False] * 2

    run(tmp_path, story)


def test_a_server_that_never_listens_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        engines.start("one")
        engines.start("two")
        engines.start("three", command=["sh", "-c", STAY.format(tmp_path / "three")], listen_patience=0.5)
        assert await site.tasks["one"] == 1
        assert "sh on three does not listen on 127.0.0.3:" in site.sides["one"].failure
        assert engines.pid("one") == 0

    run(tmp_path, story)


def test_a_server_that_ends_before_it_listens_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        with socket.create_server((WORKERS["three"], engines.port)):
            for name in HOSTS.values():
                engines.start(name, **({"listen": f"127.0.0.4:{engines.port}"} if name == "three" else {}))
            assert await site.tasks["one"] == 1
        assert "rank on three failed: Failed to create server socket (fix: another program holds" in (
            site.sides["one"].failure
        )

    run(tmp_path, story)


def test_a_worker_that_goes_before_it_listens_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        engines.start("one")
        engines.start("two")
        engines.start("three", command=["sh", "-c", STAY.format(tmp_path / "three")])
        await until(lambda: engines.pid("three") > 0)
        await site.end("three")
        assert await site.tasks["one"] == 1
        assert any("lost three before its server listened" in line for line in site.said)

    run(tmp_path, story)


def test_the_files_of_the_plan_start_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that read no file, and a model's folder."""

    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        engines.start_by_files(tmp_path / "m@1")
        await a_worker_is_killed(engines)

    run(tmp_path, story)


def test_the_watchdog_sees_no_work_in_an_idle_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own questions of the same round are closed a moment after their answer."""

    async def story(site: Site) -> None:
        engines = Engines(site, monkeypatch)
        for name in HOSTS.values():
            engines.start(name)
        await engines.serves()
        own, _systemd = watched(engines)
        for _time in range(20):
            await until(lambda: serving.connections(str(engines.socket)) == 0)
            seen = await asyncio.to_thread(own.observe)
            assert seen is not None
            assert (seen.counters is not None, seen.in_flight) == (True, 0)

    run(tmp_path, story)


def test_a_worker_that_stops_in_a_request_is_named_and_costs_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(site: Site) -> None:
        lines = await a_worker_stops_in_a_request(Engines(site, monkeypatch))
        assert "a process of the rank on two is stopped" in lines[-1]
        assert any(line.startswith("serving: slow: no token for") for line in lines)

    run(tmp_path, story)
