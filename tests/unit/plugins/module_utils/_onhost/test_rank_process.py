# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import life, rank_process

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, Site, alive, run, until


def test_a_rank_gets_no_time_for_half_an_answer_and_is_killed_with_its_children(tmp_path: Path) -> None:
    wait = "sleep 600 & echo $! > {0}.child; echo $$ > {0}.pid; date +%s%N >> {0}.began; wait; sleep 600"
    script = f"trap 'touch {{0}}.asked' TERM; {wait}"

    async def story(site: Site) -> None:
        for host in HOSTS.values():
            site.start(host, script)
        await site.running()
        grandchild = int((tmp_path / "two.child").read_text())
        await site.end("two")
        await until(lambda: not alive(site.pid("two")) and not alive(grandchild))
        assert not (tmp_path / "two.asked").exists()

    run(tmp_path, story)


def test_who_asks_for_metrics_is_no_sign_of_life(tmp_path: Path) -> None:
    asked = '[2026-11-27 20:36:52] INFO:     127.0.0.1:53968 - "GET /metrics HTTP/1.1" 200 OK'
    command = ("/bin/sh", "-c", f"echo '{asked}'; echo '{asked}'; echo 'Load weight begin'; echo '{asked}'")

    async def story(site: Site) -> None:
        rank = rank_process.RankProcess(site.settings("one", engine="sglang", command=command))
        await rank.start()
        assert await rank.wait() == 0
        assert (rank.said, len(rank.lines)) == (1, 4)

    run(tmp_path, story)


def test_a_stopped_rank_is_seen_in_its_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"vllm-small": [life.Process(5, "sglang::schedul", "T", 5, 1.0)]}
    monkeypatch.setattr(life, "of_container", found.__getitem__)
    monkeypatch.setattr(life, "_NVIDIA_SMI", ["false"])
    cleanup = ["container", "remove", "vllm-small"]

    async def story(site: Site) -> None:
        rank = rank_process.RankProcess(site.settings("one", engine="sglang", cleanup=cleanup))
        rank.process = await asyncio.create_subprocess_exec("true")
        rank.sample(True)
        await until(lambda: bool(rank.signs))
        assert rank.signs["stopped"] is True

    run(tmp_path, story)


def test_what_was_logged_before_an_answer_was_owed_is_no_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "_NVIDIA_SMI", ["false"])
    seen: list[bool] = []

    async def story(site: Site) -> None:
        rank = rank_process.RankProcess(site.settings("one"))
        rank.process = await asyncio.create_subprocess_exec("true")
        for moment, lines, owed_before in ((0.0, 5, True), (life.WINDOW, 6, True), (2 * life.WINDOW, 7, False)):
            if not owed_before:
                rank.sample(False)
            rank.said, rank._sampler.clock = lines, lambda moment=moment: moment  # type: ignore[misc]
            rank.signs = {}
            rank.sample(True)
            await until(lambda: bool(rank.signs))
            seen.append(rank.signs["spoke"])

    run(tmp_path, story)
    assert seen == [False, True, False]


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


def test_a_program_that_wants_the_model_on_its_command_line_is_told_the_file_s(tmp_path: Path) -> None:
    config, told = tmp_path / "sglang.yaml", tmp_path / "told"
    config.write_text("model-path: /models/a\n")
    command = ("/bin/sh", "-c", f'echo "$@" > {told}', "sh", "serve", "--config", str(config))

    async def story(site: Site) -> None:
        rank = rank_process.RankProcess(site.settings("one", engine="sglang", command=command))
        for model in ("/models/a", "/models/b"):
            rank.load(model)
            await rank.start()
            await until(lambda: told.exists() and told.read_text().endswith("\n"))
            assert told.read_text().split() == ["serve", "--config", str(config), "--model-path", model]
            await rank.stop()
            told.unlink()

    run(tmp_path, story)


def test_the_one_file_of_a_model_s_folder_is_given(tmp_path: Path) -> None:
    given = tmp_path / "m@1"
    given.mkdir()
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "mmproj-f16.gguf", "README.md"):
        (given / name).touch()
    found = rank_process.file_in(str(given), ".gguf")
    assert found == str(given / "m-00001-of-00002.gguf")
    assert rank_process.file_in(found, ".gguf") == found
    (given / "other.gguf").touch()
    with pytest.raises(ValueError, match=r"m@1 holds 2 models \(m-00001-of-00002\.gguf, other\.gguf\)"):
        rank_process.file_in(str(given), ".gguf")
    with pytest.raises(ValueError, match=r"holds 0 models \(no \.safetensors\)"):
        rank_process.file_in(str(given), ".safetensors")


def test_a_program_that_reads_no_file_gets_its_lines_as_options(tmp_path: Path) -> None:
    for name in ("m@1", "m@2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.gguf").touch()
    config = tmp_path / "llama.yaml"
    config.write_text(
        f'# made\nmodel: "{tmp_path}/m@1"\nalias: "x \\"y\\""\nctx-size: 512\nmetrics: true\njinja: false\n'
    )

    async def story(site: Site) -> None:
        side = site.start("one", engine="llama_cpp", command=["llama-server", "--config", str(config)])
        rank = side.rank
        options = ["--alias", 'x "y"', "--ctx-size", "512", "--metrics"]
        assert rank_process.served(rank.settings) == f"{tmp_path}/m@1"
        assert rank._command() == ["llama-server", "--model", f"{tmp_path}/m@1/a.gguf", *options]
        # the group's revision wins over the own configuration's
        rank.load(f"{tmp_path}/m@2")
        assert rank._command() == ["llama-server", "--model", f"{tmp_path}/m@2/a.gguf", *options]
        config.write_text("model: nothing\n")
        with pytest.raises(rank_process.RankError, match=r"one: .*run site\.yml again"):
            rank._command()
        config.unlink()
        with pytest.raises(rank_process.RankError, match=r"llama\.yaml"):
            rank._command()

    run(tmp_path, story)
