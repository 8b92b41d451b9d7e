# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TensorRT-LLM's stand-in, started as the plan's files have it: it serves, is killed, stopped and drained."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import (
    control,
    exporter,
    observation,
    places,
    progress,
    serving,
    watchdog_report,
    watchdog_service,
)
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.tensorrt_llm import TENSORRT_LLM
from ansible_collections.sparkthor.cluster.plugins.plugin_utils._plan.engines.registry import planned_engine

from tests.unit.plugins.module_utils._onhost.rank_site import Site, alive, run, until
from tests.unit.plugins.module_utils._onhost.server_site import rounds
from tests.unit.plugins.module_utils.serving_head import Systemd, make_service
from tests.unit.plugins.plugin_utils._plan.vllm_plan import files, plan
from tests.unit.ports import free_port
from tests.unit.test_engine_visitors import given_to

STAND_IN = Path(__file__).parents[5] / "lab" / "engine" / "trt_stand_in.py"
ALONE = {"127.0.0.1": "one"}


class Engine:
    """The program of one host, with the files that the role writes for it."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch, **args: Any) -> None:
        self.site, self.folder, self.port = site, site.folder, free_port()
        self.place = f"127.0.0.1:{self.port}"
        monkeypatch.setenv("TRT_STAND_IN_LOAD", "0.05")
        model = self.folder / "tiny@1"
        model.mkdir()
        found = files(plan(given_to(planned_engine("tensorrt_llm"), args=args), vllm_serve_engine_port=self.port))
        name = "/etc/sparkthor/trtllm.yaml"
        lines = found[name].splitlines()
        config = self.folder / "trtllm.yaml"
        config.write_text("\n".join(f"model: {model}" if line.startswith("model: ") else line for line in lines) + "\n")
        words = json.loads(found["/etc/sparkthor/group.json"])["command"]
        self.words = [str(config) if word == name else word for word in words[words.index("serve") :]]

    def start(self, **more: Any) -> Any:
        command = [sys.executable, str(STAND_IN), *self.words]
        return self.site.start("one", engine="tensorrt_llm", command=command, members=ALONE, **more)

    async def serves(self) -> None:
        for _time in range(2400):
            if (await asyncio.to_thread(serving.complete, self.place, "tiny", 30.0, engine=TENSORRT_LLM)).ok:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it does not serve")

    @property
    def pid(self) -> int:
        process = self.site.sides["one"].rank.process
        return int(process.pid) if process is not None else 0

    @property
    def rank(self) -> int:
        """The process that computes."""
        return int(Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()[0])

    def page(self) -> str:
        return serving.metrics(self.place, engine=TENSORRT_LLM)

    def in_flight(self) -> int | None:
        return watchdog_report.requests_in_flight(self.page(), TENSORRT_LLM.metrics)

    @contextlib.contextmanager
    def request(self, tokens: int) -> Any:
        """One that runs, at a connection of its own."""
        body = json.dumps({"model": "any", "prompt": "x", "max_tokens": tokens})
        with contextlib.closing(peer.opened(peer.tcp("127.0.0.1", self.port), 300)) as client:
            client.request("POST", "/v1/completions", body, {"Content-Type": "application/json", "Connection": "close"})
            yield client

    def watched(self) -> tuple[watchdog_service.Service, Systemd]:
        systemd = Systemd()
        config = {
            **{"engine": "tensorrt_llm", "socket": self.place, "model": "tiny"},
            "group_state": str(self.folder / "state.json"),
            "settings": {"expected": ALONE},
        }
        (self.folder / "serving.json").write_text(json.dumps(config))
        own, _said = make_service(
            self.folder,
            str(self.folder / "serving.json"),
            systemd,
            ranks=watchdog_service.group_ranks,
            signs=watchdog_service.group_signs,
            # ten times as fast as its own
            clock=lambda: 10 * time.monotonic(),
        )
        return own, systemd


def test_it_is_started_by_the_plan_s_files_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch, **{"kv-cache-config.max_tokens": 4096, "tool-parser": "qwen3"})
        engine.start()
        await engine.serves()
        said = site.sides["one"].rank.lines
        assert any("for max tokens in paged KV cache (4096)" in line for line in said)
        own, _systemd = engine.watched()
        assert "serving" in (await rounds(own, "serving"))[-1]
        # the page for Prometheus, and not the one that is read once
        config = json.dumps({"engine": "tensorrt_llm", "socket": engine.place})
        (tmp_path / "own.json").write_text(config)
        monkeypatch.setattr(places.Places, "config", property(lambda _self: str(tmp_path / "own.json")))
        target = exporter.engine_target(places.OWN)
        status, text = await asyncio.to_thread(exporter.engine, engine.place, target)
        assert (status, target) == (200, "/prometheus/metrics")
        assert b"\nsparkthor_engine_tokens_total{" in text
        assert b"\nsparkthor_engine_requests_running{" in text

    run(tmp_path, story)


def test_a_long_request_is_counted_as_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch)
        engine.start()
        await engine.serves()
        before = watchdog_report.engine_counters(engine.page(), TENSORRT_LLM.metrics)
        with engine.request(400):
            await until(lambda: engine.in_flight() == 1)
            first = watchdog_report.engine_counters(engine.page(), TENSORRT_LLM.metrics)
            await until(lambda: watchdog_report.engine_counters(engine.page(), TENSORRT_LLM.metrics) != first)
            assert engine.in_flight() == 1
            assert serving.connections(engine.place) is not None
        assert before is not None

    run(tmp_path, story)


@pytest.mark.parametrize("which", ["program", "rank"])
def test_it_is_killed_and_serves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch)
        engine.start()
        await engine.serves()
        pids = {"program": engine.pid, "rank": engine.rank}
        os.kill(pids[which], signal.SIGKILL)
        assert await site.tasks["one"] == 1
        await until(lambda: not any(alive(pid) for pid in pids.values()))
        engine.start()
        await engine.serves()
        assert engine.pid not in pids.values()

    run(tmp_path, story)


def test_a_rank_that_stops_in_a_request_ends_in_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its own pages go on saying 200."""

    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch)
        engine.start(watchdog_state=str(engine.folder / "run" / "state.json"))
        await engine.serves()
        own, systemd = engine.watched()
        await rounds(own, "serving")
        with engine.request(4000):
            await until(lambda: engine.in_flight() == 1)
            rank = engine.rank
            os.kill(rank, signal.SIGSTOP)
            await rounds(own, "restarting")
            status, _text = await asyncio.to_thread(serving.request, engine.place, "GET", "/health", 5.0)
            assert status == 200
        assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
        await site.end("one")
        await until(lambda: not alive(rank))
        engine.start()
        await engine.serves()

    run(tmp_path, story)


def test_a_drain_waits_for_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch)
        engine.start()
        await engine.serves()
        engine.watched()
        seen: list[int] = []

        def pause(_seconds: float) -> None:
            seen.append(one.outcome.in_flight or 0)
            time.sleep(0.2)

        one = control.Control(
            config_path=str(tmp_path / "serving.json"),
            draining=str(tmp_path / "draining"),
            markers=(str(tmp_path / "maintenance"),),
            runner=Systemd(),
            sleep=pause,
        )
        with engine.request(150) as client:
            await until(lambda: engine.in_flight() == 1)
            outcome = await asyncio.to_thread(one.apply, "drained", "", 60)
            answer = json.loads(client.getresponse().read())
        assert len(answer["choices"][0]["text"].split()) == 150
        assert seen[0] == 1
        assert outcome.in_flight == 0

    run(tmp_path, story)


def test_a_wrong_option_ends_the_start_with_its_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch)
        engine.words.insert(1, "--served_model_name")
        engine.start()
        # as click ends
        assert await site.tasks["one"] == 2
        said = progress.explain(list(site.sides["one"].rank.lines), TENSORRT_LLM.log)
        assert (said.fix, said.final) == ("correct vllm_serve_args", True)
        probe = await asyncio.to_thread(serving.complete, engine.place, "tiny", 1.0, engine=TENSORRT_LLM)
        assert isinstance(probe, observation.Probe)
        assert not probe.ok

    run(tmp_path, story)


def test_its_port_is_refused_until_it_has_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        engine = Engine(site, monkeypatch)
        monkeypatch.setenv("TRT_STAND_IN_LOAD", "3")
        engine.start()
        await until(lambda: any("Loading weights" in line for line in site.sides["one"].rank.lines))
        assert not serving.listening(engine.place)
        with pytest.raises((OSError, http.client.HTTPException)):
            serving.request(engine.place, "GET", "/health", 1.0)

    run(tmp_path, story)
