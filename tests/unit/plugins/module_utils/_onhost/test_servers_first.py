# Copyright (c) 2026, sparkthor.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A group whose workers serve the head: real connections and processes, llama.cpp's stand-in on three addresses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.sparkthor.cluster.plugins.module_utils._lib import peer
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost import rank_link, serving, watchdog_service
from ansible_collections.sparkthor.cluster.plugins.module_utils._onhost.engines.llama_cpp import LLAMA_CPP

from tests.unit.plugins.module_utils._onhost.rank_site import HOSTS, STAY, Site, alive, run, until
from tests.unit.plugins.module_utils.serving_head import Systemd, make_service

STAND_IN = Path(__file__).parents[5] / "lab" / "engine" / "llama_stand_in.py"
WORKERS = {"two": "127.0.0.2", "three": "127.0.0.3"}


class Engines:
    """The programs of one group: the same port on each worker's address."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.site, self.folder = site, site.folder
        self.socket = self.folder / "s.sock"
        for name in ("llama-server", "ggml-rpc-server"):
            (self.folder / name).symlink_to(STAND_IN)
        self.model = self.folder / "m.gguf"
        self.model.write_bytes(b"GGUF" + bytes(64))
        with socket.socket() as free:
            free.bind((WORKERS["two"], 0))
            self.port = free.getsockname()[1]
        monkeypatch.setenv("LLAMA_STAND_IN_LOAD", "0.05")

    def start(self, host: str, **more: Any) -> Any:
        return self.site.start(host, **{"engine": "llama_cpp", **self.part(host), **more})

    def part(self, host: str) -> dict[str, Any]:
        if host == "one":
            workers = ",".join(f"{address}:{self.port}" for address in WORKERS.values())
            words = ["--model", str(self.model), "--host", str(self.socket), "--rpc", workers, "--metrics", "-np", "1"]
            return {"command": [sys.executable, str(self.folder / "llama-server"), *words]}
        place = WORKERS[host]
        words = ["-H", place, "-p", str(self.port)]
        return {
            "command": [sys.executable, str(self.folder / "ggml-rpc-server"), *words],
            "listen": f"{place}:{self.port}",
        }

    async def serves(self) -> None:
        for _time in range(2400):
            if (await asyncio.to_thread(serving.complete, str(self.socket), "m", 5.0, engine=LLAMA_CPP)).ok:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it does not serve")

    def pid(self, host: str) -> int:
        process = self.site.sides[host].rank.process
        return int(process.pid) if process is not None else 0


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
    """Programs that read no file, and a model's folder; the real ones where .lab/llama_cpp has them and a model."""

    async def story(site: Site) -> None:
        engines, real = Engines(site, monkeypatch), STAND_IN.parents[2] / ".lab" / "llama_cpp"
        models = sorted(real.glob("*.gguf"))
        (tmp_path / "m@1").mkdir()
        (tmp_path / "m@1" / "m.gguf").symlink_to(models[0] if models else engines.model)
        workers = ",".join(f"{address}:{engines.port}" for address in WORKERS.values())
        told = {host: {"host": address, "port": engines.port} for host, address in WORKERS.items()}
        options = {"rpc": workers, "metrics": True, "cache-ram": 0, "ctx-size": 256, "parallel": 1, "fit": "off"}
        told["one"] = {"model": str(tmp_path / "m@1"), "host": str(engines.socket), "alias": "m,other", **options}
        for host in HOSTS.values():
            path = tmp_path / f"{host}.yaml"
            path.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in told[host].items()))
            name = "llama-server" if host == "one" else "ggml-rpc-server"
            program = [str(real / name)] if models else [sys.executable, str(tmp_path / name)]
            engines.start(host, command=[*program, "--config", str(path)])
        await engines.serves()
        os.kill(engines.pid("three"), signal.SIGKILL)
        assert await site.tasks["one"] == 1
        assert "rank on three failed" in site.sides["one"].failure

    run(tmp_path, story)


def watched(engines: Engines, **settings: Any) -> tuple[watchdog_service.Service, Systemd]:
    """The watchdog of the group, by a clock ten times as fast as its own."""
    folder, systemd = engines.folder, Systemd()
    config = {
        "engine": "llama_cpp",
        "socket": str(engines.socket),
        "model": "m",
        "group_state": str(folder / "state.json"),
        "settings": {"expected": HOSTS, **settings},
    }
    (folder / "serving.json").write_text(json.dumps(config))
    own, _said = make_service(
        folder,
        str(folder / "serving.json"),
        systemd,
        ranks=watchdog_service.group_ranks,
        signs=watchdog_service.group_signs,
        clock=lambda: 10 * time.monotonic(),
    )
    return own, systemd


async def rounds(own: watchdog_service.Service, until_said: str, most: int = 600) -> list[str]:
    """What it says, one round after the other, until these words are among it."""
    lines: list[str] = []
    for _time in range(most):
        decision = await asyncio.to_thread(own.round)
        lines.append(decision.line if decision else "")
        if until_said in lines[-1]:
            return lines
        await asyncio.sleep(0.2)
    raise AssertionError(lines[-5:])


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
        engines = Engines(site, monkeypatch)
        for name in HOSTS.values():
            engines.start(name, watchdog_state=str(tmp_path / "run" / "state.json"))
        own, systemd = watched(engines)
        await rounds(own, "serving")
        body = json.dumps({"prompt": "x", "max_tokens": 100_000, "ignore_eos": True})
        with contextlib.closing(peer.opened(peer.unix(str(engines.socket)), 300)) as client:
            client.request("POST", "/v1/completions", body)
            await until(lambda: "requests_processing 1" in serving.metrics(str(engines.socket)))
            os.kill(engines.pid("two"), signal.SIGSTOP)
            lines = await rounds(own, "restarting")
        assert "a process of the rank on two is stopped" in lines[-1]
        assert ["--no-block", "restart", "sparkthor-vllm.service"] in systemd.calls
        assert any(line.startswith("serving: slow: no token for") for line in lines)

    run(tmp_path, story)
