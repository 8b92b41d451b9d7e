# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_link

GROUP = {
    "host": "two",
    "head": "one",
    "head_address": "10.0.0.1",
    "port": 6390,
    "members": {"10.0.0.1": "one", "10.0.0.2": "two", "10.0.0.3": "three"},
    "command": ["vllm", "serve"],
}


def test_settings_take_what_they_know_and_need_what_has_no_default() -> None:
    settings = rank_link.RankLinkSettings.from_dict({**GROUP, "patience": 3.0, "of a later release": 1})
    assert settings.patience == 3.0
    assert settings.heartbeat == rank_link.RankLinkSettings.heartbeat
    with pytest.raises(TypeError, match="command"):
        rank_link.RankLinkSettings.from_dict({key: value for key, value in GROUP.items() if key != "command"})


def test_every_member_but_the_head_is_a_worker() -> None:
    worker = rank_link.RankLinkSettings.from_dict(GROUP)
    head = rank_link.RankLinkSettings.from_dict({**GROUP, "host": "one"})
    assert (worker.is_head, head.is_head) == (False, True)
    assert worker.workers == head.workers == ["two", "three"]


def test_a_proof_holds_for_one_token_one_role_and_one_connection() -> None:
    proof = rank_link.proof("token", "worker", "nonce-1", "nonce-2")
    assert proof == rank_link.proof("token", "worker", "nonce-1", "nonce-2")
    assert "token" not in proof
    others = [
        rank_link.proof("another", "worker", "nonce-1", "nonce-2"),
        rank_link.proof("token", "head", "nonce-1", "nonce-2"),
        rank_link.proof("token", "worker", "nonce-2", "nonce-1"),
        # the parts are kept apart
        rank_link.proof("token", "worker", "nonce-1nonce-2"),
    ]
    assert proof not in others


def test_the_highest_generation_is_remembered(tmp_path: Path) -> None:
    path = str(tmp_path / "memory")
    assert rank_link.remembered(path) == 0
    rank_link.remember(path, 7)
    assert rank_link.remembered(path) == 7
    for damaged in ('{"generation": -1}', '{"generation": "7"}', "rubbish"):
        Path(path).write_text(damaged)
        assert rank_link.remembered(path) == 0


def test_without_a_path_nothing_is_remembered() -> None:
    rank_link.remember("", 7)
    assert rank_link.remembered("") == 0


def test_a_generation_that_cannot_be_remembered_is_no_generation(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    path.mkdir()
    with pytest.raises(rank_link.GroupError, match=r"memory cannot be written: .+; free the disk of this host"):
        rank_link.remember(str(path), 7)


def connected(
    story: Callable[[rank_link.RankLink, asyncio.StreamWriter], Awaitable[None]], silence: float = 5.0
) -> None:
    """Run a story with a link over loopback and the bare other end of it."""

    async def main() -> None:
        others: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

        async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await others.put(writer)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=rank_link.LINE_LIMIT)
        link, other = rank_link.RankLink(reader, writer, silence), await others.get()
        try:
            await story(link, other)
        finally:
            link.close()
            other.close()
            server.close()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_messages_cross_a_link_one_by_one() -> None:
    async def story(link: rank_link.RankLink, other: asyncio.StreamWriter) -> None:
        other.write(b'{"phase": "run"}\n{"generation": 2}\n')
        assert await link.receive() == {"phase": "run"}
        assert await link.receive() == {"generation": 2}

    connected(story)


@pytest.mark.parametrize("line", [b"[1]\n", b"rubbish\n", b"x" * 2 * rank_link.LINE_LIMIT + b"\n", b""])
def test_whatever_is_no_message_breaks_the_link(line: bytes) -> None:
    async def story(link: rank_link.RankLink, other: asyncio.StreamWriter) -> None:
        other.write(line)
        other.close()
        with pytest.raises(rank_link.BROKEN):
            await link.receive()

    connected(story)


def test_silence_breaks_the_link() -> None:
    async def story(link: rank_link.RankLink, _other: asyncio.StreamWriter) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await link.receive()

    connected(story, silence=0.05)


def test_what_is_sent_is_what_the_other_side_receives() -> None:
    async def main() -> list[Any]:
        received: asyncio.Queue[Any] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            link = rank_link.RankLink(reader, writer, 5.0)
            await received.put(await link.receive())
            link.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        link = rank_link.RankLink(*await asyncio.open_connection(*server.sockets[0].getsockname()), 5.0)
        await link.send(state=rank_link.STANDBY, stale=["/etc/ä"])
        found = [await received.get()]
        link.close()
        server.close()
        return found

    assert asyncio.run(asyncio.wait_for(main(), 30)) == [{"state": "standby", "stale": ["/etc/ä"]}]
