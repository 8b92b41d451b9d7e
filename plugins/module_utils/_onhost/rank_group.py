# Copyright (c) 2026, sparkthor.cluster contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# runs on the host without Ansible:
# pylint: disable=ansible-bad-function
"""Ranks of the executor C(mp) as one group: started in order, ended together, without Ansible and without Ray.

The same program is the main process of C(sparkthor-vllm.service) on every host and has the engine as its child.  The
head's listens on its control address; each worker's keeps one connection to it.  A start of the group is a
*generation*:

1. gather: the head waits until every worker stands by, which means that no rank of an earlier generation runs there
2. prepare: the head counts the generation up; all hosts drop their page cache
3. run: the head starts its rank, then lets the workers start theirs

What ends a generation ends all of it: the head's program going away (stopped, crashed, restarted with another
configuration) makes the workers end their rank and stand by again; a rank that fails says why to the head, which ends.
A rank that comes back cannot join a generation that runs; the watchdog on the head sees it lost and restarts the unit.

A lower generation never wins: workers remember the highest they took part in, over reboots as well, and the head
starts above all that it hears of.  Both sides prove that they hold the cluster's token; the token itself is not sent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping

from .._lib import files
from .notify import ALIVE, notify
from .rank_head import Head
from .rank_link import CONFIG, GroupError, RankLinkSettings, say
from .rank_worker import Worker


def read_rank_token(environment: Mapping[str, str]) -> str:
    path = os.path.join(environment.get("CREDENTIALS_DIRECTORY", ""), "ray_token")
    try:
        with open(path, encoding="utf-8") as stream:
            token = stream.read().strip()
    except OSError as error:
        raise GroupError(f"{path}: {error.strerror}; start this through sparkthor-vllm.service") from error
    if not token:
        raise GroupError(f"{path} is empty; run the playbook again")
    return token


async def supervise(settings: RankLinkSettings, token: str, talk: Callable[[str], None] = say) -> int:
    """Run this host's side until it ends or a signal asks for it."""
    side: Head | Worker = (Head if settings.is_head else Worker)(settings, token, talk)
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(side.run())
    alive = asyncio.ensure_future(tell_alive())
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if stopped:
            return 0
        raise
    finally:
        alive.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def tell_alive(seconds: float = 10.0) -> None:
    """That this program's loop turns: a worker's that hangs would keep the whole group waiting for it."""
    while True:
        notify(ALIVE)
        await asyncio.sleep(seconds)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="sparkthor_host rank", description="Run this host's rank of the group.")
    parser.add_argument("config", nargs="?", default=CONFIG)
    path = parser.parse_args(argv).config
    try:
        settings = RankLinkSettings.from_dict(files.read_json(path))
    except TypeError:
        print(f"{path} is missing or incomplete; run the playbook again", file=sys.stderr, flush=True)
        return 78
    try:
        return asyncio.run(supervise(settings, read_rank_token(os.environ)))
    except (GroupError, OSError) as error:
        print(f"RuntimeError: {error}", file=sys.stderr, flush=True)
        return 1
