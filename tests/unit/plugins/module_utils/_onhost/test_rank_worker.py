# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A worker's decisions, heard over real connections with real child processes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
import types
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    hang,
    rank_head,
    rank_link,
    rank_worker,
    series,
)

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, TOKEN, Site, alive, run, until


def test_a_head_without_the_token_is_not_obeyed(tmp_path: Path) -> None:
    async def imposter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = rank_link.RankLink(reader, writer, 1)
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


def test_a_worker_that_is_refused_again_and_again_asks_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MAXIMUM_DELAY", 0.1)
    ticks = itertools.count(1000.0, 2.0)
    clock = types.SimpleNamespace(time=lambda: next(ticks), monotonic=time.monotonic)
    monkeypatch.setattr(rank_worker, "time", clock)
    pauses: list[float] = []

    async def story(site: Site) -> None:
        site.start("one")
        for _start in range(6):
            side = site.start("two", token="another-token-of-length")
            assert await site.tasks["two"] == rank_link.AGAIN
            pauses.append(side.pause)

    run(tmp_path, story)
    assert pauses == [0, 0, 0, 0, 0.1, 0.1]


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

        async def frozen(link: rank_link.RankLink) -> rank_head.Member:
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


def test_every_rank_loads_the_head_s_revision_of_the_model(tmp_path: Path) -> None:
    """Power lost in the middle of a run: the hosts' configurations name different revisions of one model."""
    new, old = (f"/models/tiny@{digit * 16}" for digit in "ab")

    def more(host: str, model: str) -> dict[str, object]:
        config = tmp_path / f"{host}.yaml"
        config.write_text(f"# ours\nmodel: {model}\nuds: /run/x\n")
        # after "serve" comes what vLLM takes before its configuration
        script = f'echo "$@" > {tmp_path / host}.arguments; exec sleep 60'
        return {"command": ["sh", "-c", script, "vllm", "serve", "--config", str(config)]}

    async def story(site: Site) -> None:
        for host, model in (("one", old), ("two", new), ("three", old)):
            site.start(host, **more(host, model))
        asked = {host: tmp_path / f"{host}.arguments" for host in HOSTS.values()}
        await until(lambda: all(path.exists() and path.read_text() for path in asked.values()))
        assert asked["one"].read_text() == f"serve --config {tmp_path}/one.yaml\n"
        assert asked["two"].read_text() == f"serve {old} --config {tmp_path}/two.yaml\n"
        assert asked["three"].read_text() == f"serve --config {tmp_path}/three.yaml\n"

    run(tmp_path, story)


def test_a_host_that_is_set_up_for_another_model_is_refused(tmp_path: Path) -> None:
    async def story(site: Site) -> None:
        for host, model in (("one", "/models/a@" + "1" * 16), ("two", "/models/b@" + "1" * 16)):
            config = tmp_path / f"{host}.yaml"
            config.write_text(f"model: {model}\n")
            site.start(host, command=["true", "--config", str(config)])
        await until(lambda: sum("run site.yml again" in line for line in site.said) == 2)
        assert "two" not in site.sides["one"].members

    site = run(tmp_path, story)
    assert (
        f"two is set up for /models/b@{'1' * 16}, and this host for /models/a@{'1' * 16}; run site.yml again"
        in site.said
    )


def test_a_rank_that_cannot_be_started_ends_the_generation_with_its_reason(tmp_path: Path) -> None:
    """As after an update that was broken off: the engine's program is gone on one host."""

    async def story(site: Site) -> None:
        site.start("one")
        site.start("two", command=["/nonexistent/vllm", "serve"])
        site.start("three")
        assert await site.tasks["one"] == 1
        why = "/nonexistent/vllm cannot be started on two: No such file or directory; run site.yml on this host again"
        assert f"RuntimeError: rank on two failed: {why}" in site.said
        # its own journal says it as well, and systemd starts it anew
        assert await site.tasks["two"] == rank_link.AGAIN
        assert why in site.said
        assert not site.began("two")

    run(tmp_path, story)


@pytest.mark.parametrize(
    "word", ["[" * 60_000, '{"phase": "prepare", "generation": [1]}', '{"phase": "prepare", "generation": NaN}']
)
def test_strange_words_of_a_head_end_a_connection_and_nothing_else(tmp_path: Path, word: str) -> None:
    async def strange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = rank_link.RankLink(reader, writer, 5)
        with contextlib.suppress(*rank_link.BROKEN):
            await link.send(nonce="0")
            hello = await link.receive()
            met.append(str(hello["host"]))
            await link.send(proof=rank_link.proof(TOKEN, "head", str(hello["nonce"]), "0"))
            writer.write(word.encode() + b"\n")
            await writer.drain()

    met: list[str] = []

    async def story(site: Site) -> None:
        server = await asyncio.start_server(strange, "127.0.0.1", site.port)
        site.start("two")
        # it comes again
        await until(lambda: len(met) > 2 or site.tasks["two"].done())
        assert not site.tasks["two"].done()
        server.close()

    run(tmp_path, story)


def test_all_hosts_keep_what_their_ranks_do_when_the_watchdog_wants_it(tmp_path: Path) -> None:
    def paths(host: str) -> hang.Paths:
        return hang.Paths(*(str(tmp_path / f"{host}.{name}") for name in ("wanted", "request", "taken", "others")))

    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host, hang=paths(host))
        await site.running()
        await until(lambda: all(site.sides[host].state == rank_link.RUNNING for host in ("two", "three")))
        head = paths("one")
        (tmp_path / "one.wanted").write_text("it hangs\n")
        # the hosts' own systems, which sparkthor-hang.path starts
        await until(lambda: all((tmp_path / f"{host}.request").exists() for host in ("two", "three")))
        (tmp_path / "two.taken").write_text("1")
        await asyncio.sleep(0.5)
        assert not hang.stamp(head.others)
        (tmp_path / "three.taken").write_text("1")
        await until(lambda: hang.stamp(head.others) > 0)
        # once for each wish
        asked = [hang.stamp(paths(host).request) for host in ("two", "three")]
        await asyncio.sleep(0.5)
        assert asked == [hang.stamp(paths(host).request) for host in ("two", "three")]

    run(tmp_path, story)
