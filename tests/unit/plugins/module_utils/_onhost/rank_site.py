# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group of ranks in one process: real connections over loopback, real child processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_head, rank_link, rank_worker

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

    def settings(self, host: str, script: str = STAY, **more: Any) -> rank_link.RankLinkSettings:
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
        }
        return rank_link.RankLinkSettings(**{**values, **more})

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
        state: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return state

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


async def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
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
            await asyncio.wait_for(story(made), 300)
        return made

    return asyncio.run(main())
